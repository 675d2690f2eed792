"""Finds the Python binding of libvirt. The only module that imports it.

The binding is compiled for one Python version and one libvirt, so it is not a dependency. A `libvirt-python`
in the environment of this program is used first (extra `libvirt`); otherwise the binding of the distribution
(Debian: python3-libvirt) is loaded by path, if it is for this Python version.
"""

import re
import sys
from functools import cache
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from persys.errors import RuntimeUnavailableError

PLACES = (
    "/usr/lib/python3/dist-packages",
    f"/usr/lib64/python3.{sys.version_info.minor}/site-packages",
    f"/usr/lib/python3.{sys.version_info.minor}/site-packages",
)
_NATIVE = "libvirtmod"  # imported by libvirt.py
_CPYTHON = re.compile(r"\.cpython-3(\d+)")


class Binding(NamedTuple):
    module: Any
    source: str  # how it was installed
    path: str

    def __str__(self) -> str:
        number = self.module.getVersion()
        version = f"{number // 1_000_000}.{number // 1_000 % 1_000}.{number % 1_000}"
        return (
            f"{self.source} for libvirt {version}, Python 3.{sys.version_info.minor}: {self.path}"
        )


@cache
def find_binding() -> Binding:
    """Raises RuntimeUnavailableError if there is none for this Python."""
    return load_binding(tuple(map(Path, PLACES)))


def load_binding(places: tuple[Path, ...]) -> Binding:
    """`places` are the directories of the distribution."""
    try:
        found = import_module("libvirt")
    except ImportError:
        pass
    else:
        return Binding(_quiet(found), "libvirt-python of pip", str(getattr(found, "__file__", "")))
    for place in places:
        native = _native_in(place)
        if native is not None and (place / "libvirt.py").is_file():
            _load_file(_NATIVE, native)
            module = _quiet(_load_file("libvirt", place / "libvirt.py"))
            return Binding(module, "python3-libvirt of the distribution", str(native))
    raise RuntimeUnavailableError(_missing(places))


def _missing(places: tuple[Path, ...]) -> str:
    ours = f"3.{sys.version_info.minor}"
    others = sorted({found for place in places for found in _versions_in(place)})
    with_pip = f"{sys.executable} -m pip install libvirt-python"
    if others:
        return (
            f"python3-libvirt of the distribution is for Python {', '.join(others)}, and this is Python "
            f"{ours}: install the binding with `{with_pip}`, which needs libvirt-dev, pkg-config and a C "
            "compiler, or set PERSYS_VM_ENABLED=false"
        )
    return (
        "the Python binding of libvirt is not installed: install python3-libvirt, or libvirt-python with "
        f"`{with_pip}`, or set PERSYS_VM_ENABLED=false"
    )


def _versions_in(place: Path) -> list[str]:
    """The Python versions that the binding in this directory is for."""
    names = (path.name for path in place.glob(f"{_NATIVE}.*.so"))
    return [f"3.{found[1]}" for name in names if (found := _CPYTHON.search(name)) is not None]


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
