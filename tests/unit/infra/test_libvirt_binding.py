"""Which Python binding of libvirt is used, and what to do without one."""

import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import ModuleType

import pytest

from persys.errors import RuntimeUnavailableError
from persys.infra import libvirt_binding
from persys.infra.libvirt_binding import load_binding

OTHER = ".cpython-37-x86_64-linux-gnu.so"
SOURCE = """\
import libvirtmod
def getVersion(): return 9_000_001
def registerErrorHandler(function, context): pass
"""


@pytest.fixture(autouse=True)
def _no_binding(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in an environment without libvirt-python. None makes an import fail."""
    monkeypatch.setitem(sys.modules, "libvirt", None)
    monkeypatch.setitem(sys.modules, "libvirtmod", ModuleType("libvirtmod"))


def distribution(place: Path, suffix: str) -> Path:
    (place / "libvirt.py").write_text(SOURCE)
    (place / f"libvirtmod{suffix}").write_bytes(b"")
    return place


def load_native(name: str, path: Path) -> ModuleType:
    """Loads Python source only: a shared library for a test would have to be compiled."""
    if name == "libvirtmod":
        return ModuleType(name)
    module = ModuleType(name)
    exec(path.read_text(), module.__dict__)
    return module


def test_a_binding_of_pip_is_used_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of_pip = ModuleType("libvirt")
    of_pip.__file__ = "/venv/libvirt.py"
    of_pip.registerErrorHandler = lambda *_: None  # type: ignore[attr-defined]
    of_pip.getVersion = lambda: 12_008_000  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "libvirt", of_pip)

    found = load_binding((distribution(tmp_path, EXTENSION_SUFFIXES[0]),))

    assert found.module is of_pip
    version = f"3.{sys.version_info.minor}"
    expected = f"libvirt-python of pip for libvirt 12.8.0, Python {version}: /venv/libvirt.py"
    assert str(found) == expected


def test_without_pip_the_binding_of_the_distribution_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = distribution(tmp_path, EXTENSION_SUFFIXES[0])
    monkeypatch.setattr(libvirt_binding, "_load_file", load_native)

    found = load_binding((place,))

    assert found.source == "python3-libvirt of the distribution"
    assert found.path == str(place / f"libvirtmod{EXTENSION_SUFFIXES[0]}")
    assert "for libvirt 9.0.1" in str(found)


def test_a_binding_for_another_python_is_named_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(RuntimeUnavailableError) as refused:
        load_binding((distribution(tmp_path, OTHER),))

    ours = f"Python 3.{sys.version_info.minor}"
    assert f"is for Python 3.7, and this is {ours}" in str(refused.value)
    assert f"{sys.executable} -m pip install libvirt-python" in str(refused.value)


def test_without_any_binding_both_packages_are_named(tmp_path: Path) -> None:
    with pytest.raises(RuntimeUnavailableError, match="install python3-libvirt, or libvirt-python"):
        load_binding((tmp_path,))
