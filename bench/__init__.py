"""Benchmarks, as ratios to a baseline of the same run. Processes run without TLS, like the baselines."""

import os

os.environ.setdefault("PERSYS_INSECURE", "true")
