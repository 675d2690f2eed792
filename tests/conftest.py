"""Shared by tests of whole processes: an image, unique names and free ports."""

import fcntl
import io
import logging
import os
import shutil
import signal
import socket
import subprocess
import tarfile
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from hypothesis import HealthCheck, settings

DEMO_IMAGE = "persys-test:latest"

# A shell starts background jobs with SIGINT ignored, and child processes inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The host is busy during the tests; tests of admission override these.
for _resource in ("CPU", "MEMORY", "DISK"):
    os.environ.setdefault(f"PERSYS_ADMISSION_{_resource}_PERCENT", "100")

# Clusters of tests are insecure, except in tests of TLS.
os.environ.setdefault("PERSYS_INSECURE", "true")

# Detection of Compose takes time at each start of an agent; tests of stacks override this.
os.environ.setdefault("PERSYS_COMPOSE_ENABLED", "false")

# A slow example shows that the host is busy, not a defect of the code.
settings.register_profile("full", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("busy", parent=settings.get_profile("full"), max_examples=50)
settings.register_profile("quick", parent=settings.get_profile("busy"), max_examples=10)
settings.load_profile("busy")


@pytest.fixture(autouse=True)
def logs_of_one_test() -> Iterator[None]:
    """A program in a test configures logging to the captured stream, which is closed afterwards."""
    before, handlers = structlog.get_config(), logging.getLogger().handlers[:]
    yield
    structlog.configure(**before)
    logging.getLogger().handlers = handlers


@pytest.fixture(scope="session")
def demo_image() -> str:
    """A small image with a shell and the usual tools, created from the static busybox of this host."""
    # Other test runs import it too, and Docker fails parallel imports of one name.
    with (Path(tempfile.gettempdir()) / "persys-test-image.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _has_image(DEMO_IMAGE):
            _import_demo_image()
    return DEMO_IMAGE


def _has_image(name: str) -> bool:
    inspect = ["docker", "image", "inspect", name]
    return subprocess.run(inspect, capture_output=True, timeout=60, check=False).returncode == 0


def _import_demo_image() -> None:
    subprocess.run(
        [
            *("docker", "import"),
            *("--change", 'CMD ["/bin/sh"]', "--change", "ENV PATH=/bin"),
            *("-", DEMO_IMAGE),
        ],
        input=_busybox_root(),
        capture_output=True,
        timeout=120,
        check=True,
    )


@pytest.fixture
def unique_id() -> str:
    """A unique workload id."""
    return f"t-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def free_port() -> int:
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        port: int = trial.getsockname()[1]
    return port


def _busybox_root() -> bytes:
    busybox = shutil.which("busybox")
    assert busybox is not None, "the tests need busybox-static"
    listed = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True)
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for directory in ("bin", "tmp", "proc", "sys", "dev", "etc"):
            entry = tarfile.TarInfo(directory)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(entry)
        binary = Path(busybox).read_bytes()
        entry = tarfile.TarInfo("bin/busybox")
        entry.size, entry.mode = len(binary), 0o755
        tar.addfile(entry, io.BytesIO(binary))
        for applet in listed.stdout.split():
            if applet != "busybox":
                entry = tarfile.TarInfo(f"bin/{applet}")
                entry.type, entry.linkname = tarfile.SYMTYPE, "busybox"
                tar.addfile(entry)
    return content.getvalue()
