"""Models of the programs that the agent runs: git, Compose, qemu-img and the tools of volumes.

They do what the agent needs to continue: they create the files that it reads later, and the containers of
Compose in the Docker of the test.
"""

import json
import platform
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from faults.memory_docker import MemoryDocker
from faults.virtual_loop import Command, ExitResult

COMMIT = "c" * 40
COMPOSE_FILE = b"""
services:
  app:
    image: app:1
    volumes: ["data:/data", "./site:/site:ro"]
  tool:
    build: .
volumes: {data: {}}
"""
PLAIN_FILE = b"services: {app: {image: 'app:2'}}"
EMULATOR = f"qemu-system-{platform.machine()}"
_ENDED_BY_GUEST = 85
NAMES = (
    EMULATOR,
    *("test", "mkdir", "touch", "rm", "rmdir", "mv"),
    *("docker", "git", "qemu-img", "genisoimage", "mount", "umount", "losetup", "blkid"),
    *("mkfs.ext4", "resize2fs", "e2fsck", "rbd", "mount.nfs"),
)

_BY = ("com.docker.compose.project", "com.docker.compose.service")
_HASH = "persys.config_hash"


def install(directory: Path) -> str:
    """A value of PATH with all these programs. They are never executed."""
    directory.mkdir(parents=True)
    for name in NAMES:
        (directory / name).write_text("#!/bin/false\n")
        (directory / name).chmod(0o755)
    return str(directory)


class Programs:
    def __init__(self, docker: MemoryDocker) -> None:
        self._docker = docker
        self.mounts: dict[str, str] = {}  # the mounted source, by mount point
        self._fetched: dict[Path, str] = {}  # the repository in a store
        self.rbd_images: dict[str, int] = {}  # sizes in GiB
        self._rbd_mapped: dict[str, str] = {}  # devices, by image
        self._models: dict[str, Callable[[Command], ExitResult]] = {
            "git": self._git,
            "docker": self._compose,
            "qemu-img": _qemu_img,
            "genisoimage": _seed,
            "mount": self._mount,
            "rbd": self._rbd,
            "umount": self._unmount,
            "resize2fs": self._resize,
            "blkid": lambda _command: ExitResult(out=b"ext4\n"),
            EMULATOR: lambda _command: ExitResult(_ENDED_BY_GUEST),
        }

    def run(self, command: Command) -> ExitResult:
        return self._models.get(Path(command.words[0]).name, _succeed)(command)

    def _git(self, command: Command) -> ExitResult:
        store = Path(command.words[1].removeprefix("--git-dir="))
        match command.words[2:]:
            case ("init", *_):
                (store / "objects").mkdir(parents=True, exist_ok=True)
                (store / "HEAD").write_text("ref: refs/heads/main\n")
            case ("rev-parse", *_):
                return ExitResult(out=COMMIT.encode())
            case ("checkout-index", *_):
                tree = Path(command.env["GIT_WORK_TREE"])
                (tree / "site").mkdir(exist_ok=True)
                (tree / "site" / "page").write_text("hello")
                (tree / "Dockerfile").write_text("FROM scratch")
                local = self._fetched.get(store, "").startswith("file:")
                (tree / "compose.yaml").write_bytes(PLAIN_FILE if local else COMPOSE_FILE)
            case ("fetch", *_, repository, _ref):
                self._fetched[store] = repository
            case ("read-tree", *_):
                Path(command.env["GIT_INDEX_FILE"]).write_text("index")
        return ExitResult()

    def _compose(self, command: Command) -> ExitResult:
        words = list(command.words)
        if words[-2:] == ["version", "--short"]:
            return ExitResult(out=b"2.24.0\n")
        name = words[words.index("--project-name") + 1]
        file, verb = words[words.index("--file") + 1], words[words.index("--file") + 2]
        if verb == "config":
            return ExitResult(out=_resolved(Path(file), name))
        document = yaml.safe_load(command.stdin)
        if verb == "up":
            named = set(words) & set(document["services"])
            again = named if "--force-recreate" in words else set()
            self._bring_up(name, document, starts="--detach" in words, again=again)
        return ExitResult()

    def _bring_up(
        self, project: str, document: dict[str, Any], *, starts: bool, again: set[str]
    ) -> None:
        docker = self._docker
        for name, volume in (document.get("volumes") or {}).items():
            known = f"{project}_{name}"
            labels = {**_labels(volume), "com.docker.compose.volume": name}
            docker.volumes.setdefault(known, {"Name": known, "Labels": labels})
        network = f"{project}_default"
        labels = _labels(document["networks"]["default"])
        docker.networks.setdefault(network, {"Id": network, "Name": network, "Labels": labels})
        for service, parts in document["services"].items():
            if not again or service in again:
                created = self._service(project, service, parts, again=bool(again))
                if starts and created["State"]["Status"] != "running":
                    docker.start(created)

    def _service(
        self, project: str, service: str, parts: dict[str, Any], *, again: bool
    ) -> dict[str, Any]:
        """Its container, created again if its description has changed."""
        labels = _labels(parts) | {
            "com.docker.compose.project": project,
            "com.docker.compose.service": service,
        }
        for one in list(self._docker.containers.values()):
            found = one["Config"]["Labels"]
            if all(found.get(name) == labels[name] for name in _BY):
                if not again and found[_HASH] == labels[_HASH]:
                    return one
                self._docker.remove(one)
        self._docker.images.add(parts["image"])
        host = {"NetworkMode": f"{project}_default"}
        body = {"Image": parts["image"], "Labels": labels, "HostConfig": host}
        return self._docker.create(f"{project}-{service}-1", body)

    def _rbd(self, command: Command) -> ExitResult:
        """As with Ceph, an image that is mapped cannot be removed."""
        match command.words[1:]:
            case ("ls", *_):
                return _json(list(self.rbd_images))
            case ("info", image, *_) if _image(image) in self.rbd_images:
                return _json({"size": self.rbd_images[_image(image)] << 30})
            case (("create" | "resize"), _, size, image):
                self.rbd_images[_image(image)] = int(size.removesuffix("G"))
            case ("map", _, image):
                device = self._rbd_mapped[_image(image)] = f"/dev/rbd-{_image(image)}"
                return ExitResult(out=f"{device}\n".encode())
            case ("device", *_):
                return _json(
                    [
                        {"pool": "rbd", "name": name, "device": device}
                        for name, device in self._rbd_mapped.items()
                    ]
                )
            case ("unmap", device):
                self._rbd_mapped = {
                    name: path for name, path in self._rbd_mapped.items() if path != device
                }
            case ("rm", _, image) if _image(image) not in self._rbd_mapped:
                self.rbd_images.pop(_image(image), None)
            case _:
                return ExitResult(1)
        return ExitResult()

    def _mount(self, command: Command) -> ExitResult:
        self.mounts[command.words[-1]] = command.words[-2]
        return ExitResult()

    def _resize(self, command: Command) -> ExitResult:
        """Not permitted while it is mounted."""
        return ExitResult(1 if command.words[-1] in self.mounts.values() else 0)

    def _unmount(self, command: Command) -> ExitResult:
        """Data written below the mount point belongs to the mounted file system."""
        self.mounts.pop(command.words[-1], None)
        for path in Path(command.words[-1]).iterdir():
            shutil.rmtree(path)
        return ExitResult()


def _json(value: object) -> ExitResult:
    return ExitResult(out=json.dumps(value).encode())


def _image(name: str) -> str:
    """Without its pool."""
    return name.partition("/")[2]


def _labels(parts: dict[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in (parts.get("labels") or {}).items()}


def _resolved(file: Path, project: str) -> bytes:
    """The output of `config`: absolute paths, and names for everything."""
    document = yaml.safe_load(file.read_text())
    document["name"] = project
    document["networks"] = {"default": {"name": f"{project}_default"}}
    for name in document.get("volumes") or {}:
        document["volumes"][name] = {"name": f"{project}_{name}"}
    for service in document["services"].values():
        service["networks"] = {"default": None}
        if "build" in service:
            service["build"] = {"context": str(file.parent), "dockerfile": "Dockerfile"}
        service["volumes"] = [_mount_of(one, file.parent) for one in service.get("volumes", ())]
    return yaml.safe_dump(document).encode()


def _mount_of(text: str, base: Path) -> dict[str, Any]:
    source, target, *options = text.split(":")
    kind = "bind" if source.startswith((".", "/")) else "volume"
    path = str(base / source.removeprefix("./")) if source.startswith(".") else source
    found: dict[str, Any] = {"type": kind, "source": path, "target": target}
    return found | ({"read_only": True} if "ro" in options else {})


def _qemu_img(command: Command) -> ExitResult:
    match command.words[1:]:
        case ("create", *_, path, _size):
            Path(path).write_bytes(b"disk")
        case ("info", *_):
            form = command.words[command.words.index("-f") + 1]
            described = {"format": form, "virtual-size": 1 << 30}
            return ExitResult(out=json.dumps(described).encode())
    return ExitResult()


def _seed(command: Command) -> ExitResult:
    words = command.words
    Path(words[words.index("-output") + 1]).write_bytes(b"seed")
    return ExitResult()


def _succeed(_command: Command) -> ExitResult:
    return ExitResult()
