"""Benchmarks, as ratios to a baseline of the same run. Processes run without TLS, like the baselines."""

import os
import sys
from pathlib import Path

# A Docker daemon of its own is started like in the tests.
sys.path.append(str(Path(__file__).parents[1] / "tests"))
os.environ.setdefault("PERSYS_INSECURE", "true")
