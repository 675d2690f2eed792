"""Which nodes could take a workload if they were empty and open: what they are, not what they hold."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Eligible:
    """By position: for all at once, and the same for one at a time."""

    mask: NDArray[np.bool_]
    each: bytes
