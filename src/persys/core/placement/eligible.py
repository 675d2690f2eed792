"""Which nodes could run a workload if they were empty and open."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Eligible:
    """By position: as an array for all nodes, and as bytes for single lookups."""

    mask: NDArray[np.bool_]
    each: bytes
