"""Disk space taken from named storage pools."""

# Pool name and GB. Any further disk space is taken from the node's first pool.
Draws = tuple[tuple[str, int], ...]

DISKS = ""  # in place of a name: the node's default pool for disks
