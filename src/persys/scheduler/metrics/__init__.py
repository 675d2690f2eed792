"""Prometheus metrics of the scheduler.

counters.py         counters and histograms, incremented by all parts
workload_counts.py  counts workloads in slices
gauges.py           gauges, computed when they are scraped

`server` exports them.
"""
