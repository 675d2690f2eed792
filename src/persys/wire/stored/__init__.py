"""Formats of stored data. What is written here must be readable by later versions.

`records.py`   records of the store and the journal: JSON with a checksum and a schema number
`revision.py`  the revision of a spec
`snapshot.py`  snapshot files
"""
