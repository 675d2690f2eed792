"""The VM image store of the node.

store.py    adds, lists, downloads and removes images; one file per checksum, one record per name
files.py    writes an image file and verifies checksum, format and size with qemu-img
sources.py  opens an http, https or file URL

Called by `api/images.py` for users and by the VM runtime for the pull step.
"""
