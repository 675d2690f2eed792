"""The store: durable records with compare-and-set. One port, three adapters, one contract suite."""
