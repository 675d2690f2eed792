"""Measures, as ratios to floors of the same run. Processes talk in plain text here, as the floors do."""

import os

os.environ.setdefault("PERSYS_INSECURE", "true")
