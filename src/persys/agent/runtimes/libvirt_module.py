"""Finds libvirt's binding for Python, which comes with libvirt and not with this project.

It must be of the very libvirt that the machine has, so it is no dependency here: in a virtual environment the
distribution's own (Debian: python3-libvirt) is loaded by its path. The only file that imports it.
"""

import sys
from functools import cache
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from persys.errors import RuntimeUnavailableError

_PLACES = (
    "/usr/lib/python3/dist-packages",
    f"/usr/lib64/python3.{sys.version_info.minor}/site-packages",
    f"/usr/lib/python3.{sys.version_info.minor}/site-packages",
)
_NATIVE = "libvirtmod"  # what libvirt.py imports itself


@cache
def load() -> Any:
    """The module `libvirt`. RuntimeUnavailableError: there is none for this Python."""
    try:
        return _quiet(import_module("libvirt"))
    except ImportError:
        pass
    for place in map(Path, _PLACES):
        native = _native_in(place)
        if native is not None and (place / "libvirt.py").is_file():
            _load_file(_NATIVE, native)
            return _quiet(_load_file("libvirt", place / "libvirt.py"))
    raise RuntimeUnavailableError(
        "this machine has no libvirt for Python: install python3-libvirt, or run without machines"
    )


def _native_in(place: Path) -> Path | None:
    paths = (place / f"{_NATIVE}{suffix}" for suffix in EXTENSION_SUFFIXES)
    return next((path for path in paths if path.is_file()), None)


def _load_file(name: str, path: Path) -> ModuleType:
    spec: ModuleSpec | None = spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except ImportError as err:
        del sys.modules[name]
        raise RuntimeUnavailableError(f"{path} does not suit this Python: {err}") from err
    return module


def _quiet(libvirt: Any) -> Any:
    """It writes every error to standard error beside raising it, unless told what to do with them."""
    libvirt.registerErrorHandler(lambda _context, _error: None, None)
    return libvirt
