"""What is drawn from named storage pools."""

# Pool and GB, by name. What a workload needs beyond that is of the node's first pool.
Draws = tuple[tuple[str, int], ...]

DISKS = ""  # in the place of a name: the pool that a node keeps disks in
