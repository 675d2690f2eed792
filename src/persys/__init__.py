"""Persys Compute: containers, Compose stacks and virtual machines on ordinary servers."""

__version__ = "0.1.0"
