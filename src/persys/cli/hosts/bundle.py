"""The archive that is sent to each host: a wheel or Debian packages, and wheels of dependencies.

Without `--package` the wheel is made from the files of this installation: an installed wheel has all of them,
and a clone has the same ones in its source directory. The same files always give the same archive, so a
second run finds its record on the hosts.
"""

import base64
import hashlib
import io
import json
import tarfile
import zipfile
from collections.abc import Iterable, Sequence
from importlib.metadata import Distribution, packages_distributions
from pathlib import Path

import persys
from persys.cli.framework.exit_codes import SetupError, UsageError
from persys.cli.hosts.plan import Package

WHEEL, DEB = ".whl", ".deb"
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time that a zip file can hold
_METADATA = ("METADATA", "entry_points.txt", "top_level.txt")
_WHEEL_TEXT = "Wheel-Version: 1.0\nGenerator: persys\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def pack(given: Sequence[str], wheelhouse: str, directory: Path) -> Package:
    """Raises UsageError for files that cannot be installed."""
    files = [_file(name) for name in given] or [own_wheel(directory)]
    kinds = {path.suffix for path in files}
    if kinds not in ({WHEEL}, {DEB}) or (kinds == {WHEEL} and len(files) > 1):
        names = ", ".join(path.name for path in files)
        raise UsageError(f"invalid packages '{names}': expected one .whl file, or .deb files")
    entries = [(path.name, path) for path in files]
    if wheelhouse:
        if kinds == {DEB}:
            raise UsageError("--wheelhouse needs a wheel: Debian packages have their dependencies")
        entries += [(f"wheels/{path.name}", path) for path in _wheels(wheelhouse)]
    bundle = directory / "bundle.tar"
    digest = _write_tar(bundle, entries)
    title = (
        " and ".join(path.name for path in files) if len(files) < 3 else f"{len(files)} packages"
    )
    return Package(bundle, digest, title, debs=kinds == {DEB})


def _file(name: str) -> Path:
    path = Path(name).expanduser()
    if not path.is_file():
        raise UsageError(f"invalid --package '{name}': expected a .whl or .deb file")
    return path


def _wheels(name: str) -> list[Path]:
    found = sorted(Path(name).expanduser().glob(f"*{WHEEL}"))
    if not found:
        raise UsageError(
            f"invalid --wheelhouse '{name}': expected a directory with wheels, for example of "
            "`pip download --dest DIR -r requirements/runtime.txt`"
        )
    return found


def _write_tar(path: Path, entries: Iterable[tuple[str, Path]]) -> str:
    """The digest of the archive. Times, owners and modes of the files are not part of it."""
    with tarfile.open(path, "w") as tar:
        for name, source in sorted(entries):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = source.stat().st_size, 0o644
            with source.open("rb") as file:
                tar.addfile(entry, file)
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def own_wheel(directory: Path) -> Path:
    """A wheel of this installation."""
    distribution = _own_distribution()
    name = distribution.metadata["Name"].replace("-", "_")
    stem = f"{name}-{distribution.version}"
    files = dict(_contents(distribution, stem))
    info = f"{stem}.dist-info"
    for part in _METADATA:
        if (text := distribution.read_text(part)) is not None:
            files[f"{info}/{part}"] = text.encode()
    files[f"{info}/WHEEL"] = _WHEEL_TEXT.encode()
    files[f"{info}/RECORD"] = _record(files, info).encode()
    path = directory / f"{stem}-py3-none-any{WHEEL}"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for each, content in sorted(files.items()):
            entry = zipfile.ZipInfo(each, _EPOCH)
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(entry, content)
    return path


def _own_distribution() -> Distribution:
    names = packages_distributions().get(persys.__name__, [])
    if not names:
        raise SetupError("this installation has no metadata: name a package with --package FILE")
    return Distribution.from_name(names[0])


def _contents(distribution: Distribution, stem: str) -> Iterable[tuple[str, bytes]]:
    package = Path(persys.__file__).parent
    for path in package.rglob("*"):
        if path.is_file() and path.suffix != ".pyc":
            yield f"{package.name}/{path.relative_to(package).as_posix()}", path.read_bytes()
    if _is_editable(distribution):
        return
    for file in distribution.files or ():
        # Data files, such as manual pages, are installed relative to the prefix: ../../../share/...
        parts = file.parts[file.parts.count("..") :]
        if file.parts[:1] == ("..",) and parts[:1] != ("bin",):
            path = Path(str(distribution.locate_file(file)))
            if path.is_file():
                yield f"{stem}.data/data/{'/'.join(parts)}", path.read_bytes()


def _is_editable(distribution: Distribution) -> bool:
    described = json.loads(distribution.read_text("direct_url.json") or "{}")
    return bool(described.get("dir_info", {}).get("editable"))


def _record(files: dict[str, bytes], info: str) -> str:
    lines = io.StringIO()
    for name, content in sorted(files.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        lines.write(f"{name},sha256={digest},{len(content)}\n")
    lines.write(f"{info}/RECORD,,\n")
    return lines.getvalue()
