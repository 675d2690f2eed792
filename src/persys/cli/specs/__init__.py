"""Spec files of a command: read, applied and compared.

`sources.py`     the texts of -f: files, directories, URLs and standard input; variables of --env-file
`spec_files.py`  `read`: the workloads and node pools of a command, with the position of every error
`changes.py`     the fields that an apply changed, with secrets masked
`apply.py`       `apply_specs`: creates or updates workloads and node pools, and reports each
"""
