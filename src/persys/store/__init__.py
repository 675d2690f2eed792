"""The store: what was acknowledged survives here. One port, three adapters, one contract suite."""
