"""The demo workload of `persys up`, and its image, which is built without a registry.

The image is Debian's static busybox with a link per applet. Its label holds a digest of its contents, so that
a newer version of persys rebuilds it.
"""

import hashlib
import io
import subprocess
import tarfile
from importlib.resources import files
from pathlib import Path

from persys.cli.framework.exit_codes import SetupError
from persys.cli.framework.live import Progress
from persys.cli.local.docker import run_docker
from persys.cli.local.packages import find_command, install_packages
from persys.wire.gen.control.v1.control_pb2 import ApplyWorkloadRequest
from persys.wire.specfile.parser import read_spec_file

IMAGE = "persys-demo:latest"
_LABEL = "persys.demo"
_CHANGES = (
    'CMD ["/bin/httpd", "-f", "-p", "80", "-h", "/www"]',
    "ENV PATH=/bin",
    "EXPOSE 80",
)
_PAGE = """\
<!doctype html>
<title>Persys</title>
<h1>It runs.</h1>
<p>This page comes from a container that the Persys scheduler placed and its agent started.</p>
"""
# A dynamically linked program names its loader near the start of the file; an empty image cannot run it.
_LOADER = b"/ld-linux"
_HEAD_BYTES = 4096


def ensure_image(progress: Progress) -> None:
    busybox = _static_busybox(progress)
    digest = _digest(busybox)
    found = run_docker(
        "image", "inspect", "--format", f'{{{{index .Config.Labels "{_LABEL}"}}}}', IMAGE
    )
    if found.returncode == 0 and found.stdout.decode().strip() == digest:
        progress.done(f"image {IMAGE} exists")
        return
    progress.step(f"building image {IMAGE}")
    changes = [
        word for change in (*_CHANGES, f"LABEL {_LABEL}={digest}") for word in ("-c", change)
    ]
    ended = run_docker("import", *changes, "-", IMAGE, stdin=root_file_system(busybox))
    if ended.returncode != 0:
        raise SetupError(f"docker import {IMAGE} failed: {ended.stderr.decode()}")
    progress.done(f"built image {IMAGE}")


def demo_request(*, host_port: int | None) -> ApplyWorkloadRequest:
    """The workload of hello.yaml, with another host port if one is given."""
    (document,) = read_spec_file(
        (files("persys.cli.local") / "hello.yaml").read_text(encoding="utf-8")
    )
    if host_port is not None:
        document.request.spec.container.ports[0].host_port = host_port
    return document.request


def _static_busybox(progress: Progress) -> Path:
    found = find_command("busybox")
    if found is None or _LOADER in Path(found).read_bytes()[:_HEAD_BYTES]:
        install_packages(["busybox-static"], progress)
        found = find_command("busybox")
    if found is None:
        raise SetupError("busybox-static is installed, but the busybox command was not found")
    return Path(found)


def _digest(busybox: Path) -> str:
    parts = (busybox.read_bytes(), _PAGE.encode(), *(change.encode() for change in _CHANGES))
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


def root_file_system(busybox: Path) -> bytes:
    applets = subprocess.run(
        [busybox, "--list"], capture_output=True, text=True, timeout=10, check=True
    ).stdout.split()
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name, mode in (("bin", 0o755), ("etc", 0o755), ("tmp", 0o1777), ("www", 0o755)):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, mode
            tar.addfile(folder)
        _add(tar, "bin/busybox", busybox.read_bytes(), 0o755)
        for applet in applets:
            if applet != "busybox":
                link = tarfile.TarInfo(f"bin/{applet}")
                link.type, link.linkname = tarfile.SYMTYPE, "busybox"
                tar.addfile(link)
        _add(tar, "etc/passwd", b"root:x:0:0:root:/:/bin/sh\n", 0o644)
        _add(tar, "www/index.html", _PAGE.encode(), 0o644)
    return archive.getvalue()


def _add(tar: tarfile.TarFile, name: str, content: bytes, mode: int) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(content), mode
    tar.addfile(info, io.BytesIO(content))
