"""Loads the Python binding of libvirt, which comes with libvirt and not with this project.

The binding must match the host's libvirt, so it is not a dependency: in a virtual environment the binding of
the distribution (Debian: python3-libvirt) is loaded by path. The only module that imports it.
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
_NATIVE = "libvirtmod"  # imported by libvirt.py


@cache
def load() -> Any:
    """The module `libvirt`. Raises RuntimeUnavailableError if there is none for this Python."""
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
        "the Python binding of libvirt is not installed: install python3-libvirt, or set "
        "PERSYS_VM_ENABLED=false"
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
        raise RuntimeUnavailableError(f"{path} cannot be loaded by this Python: {err}") from err
    return module


def _quiet(libvirt: Any) -> Any:
    """Disable the default error handler, which also prints every error to standard error."""
    libvirt.registerErrorHandler(lambda _context, _error: None, None)
    return libvirt
