"""Plumbing that knows no workloads."""
