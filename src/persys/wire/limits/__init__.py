"""Limits of every protobuf field: length, count, range and characters.

The servers check requests, and trim reports of nodes, before they read them.

`table.py`  the limits by field name
`check.py`  refuses a request, or trims a report
"""
