"""Progress of an image pull, from the lines that the engine reports for each layer."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

LAYERS_MAX = 1_000  # that are tracked; Docker itself allows 127
_MB = 1_000_000
_DOWNLOADING = "Downloading"
_DOWNLOADED = frozenset({"Verifying Checksum", "Download complete", "Extracting"})
_HERE = frozenset({"Pull complete", "Already exists"})
_LAYER = frozenset({"Pulling fs layer", "Waiting", _DOWNLOADING}) | _DOWNLOADED | _HERE


class Layers:
    """Takes the lines of the engine. The size of a layer is known only after its download has begun."""

    def __init__(self, image: str) -> None:
        self._image = image
        self._here: dict[str, bool] = {}
        self._got: dict[str, int] = {}
        self._size: dict[str, int] = {}

    def take(self, line: Mapping[str, Any]) -> None:
        name, word = str(line.get("id", "")), line.get("status", "")
        if not name or word not in _LAYER:
            return
        if name not in self._here and len(self._here) >= LAYERS_MAX:
            return
        self._here[name] = word in _HERE
        detail = line.get("progressDetail") or {}
        if word == _DOWNLOADING and detail.get("total", 0) > 0:
            self._got[name], self._size[name] = int(detail["current"]), int(detail["total"])
        elif word in _DOWNLOADED or word in _HERE:
            self._got[name] = self._size.get(name, 0)

    @property
    def bytes_got(self) -> int:
        return sum(self._got.values())

    def told(self) -> str:
        """One line for users."""
        text = f"pulling {self._image}"
        if not self._here:
            return text
        text = f"{text}: {sum(self._here.values())} of {len(self._here)} layers"
        size = sum(self._size.values())
        if not size:
            return text
        return f"{text}, {_megabytes(self.bytes_got)} of {_megabytes(size)} MB"


class Download(Struct, frozen=True):
    """The download of an image that is a single file."""

    image: str
    bytes_got: int
    size_bytes: int = 0  # 0: not known

    def told(self) -> str:
        text = f"pulling {self.image}: {_megabytes(self.bytes_got)}"
        return f"{text} of {_megabytes(self.size_bytes)} MB" if self.size_bytes else f"{text} MB"


def _megabytes(count: int) -> str:
    return f"{count / _MB:.0f}" if count >= 10 * _MB else f"{count / _MB:.1f}"
