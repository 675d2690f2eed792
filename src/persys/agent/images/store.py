"""The VM image store of the node: read-only files named by their checksum, and a record for each image name.

A file is added atomically: it is written and verified in a separate directory, and moved to its place before
its record is written. A name may be reassigned to another file; disks that use the old file as their base
keep it. An image that was downloaded from a URL is stored under that URL.
"""

import asyncio
import hashlib
import shutil
import uuid
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

import msgspec
import structlog
from msgspec import Struct

from persys.agent.images import files as image_files
from persys.agent.images import sources as image_sources
from persys.agent.images.files import BadImageError
from persys.agent.ports import BaseImage, PullWatch
from persys.agent.workloads.node_policy import NodePolicy
from persys.core.agent.report import DownloadProgress
from persys.errors import NotFoundError, RefusedError, UnavailableError
from persys.infra.aio.keyed_lock import KeyedLock
from persys.infra.aio.path_calls import LONG_SECONDS, PathCalls, PathTimeoutError
from persys.infra.atomic_files import write_file
from persys.infra.clock import Clock
from persys.model.node import Image
from persys.model.spec import is_address
from persys.model.status import Failure, FailureReason

log = structlog.get_logger()

IMAGE_FILES = "files"  # the directory of the image files, below the store
PER_HOST_MAX = 4
_PASSABLE, _READ_ONLY = 0o711, 0o444  # QEMU runs as another user
_DAMAGED = "DamagedImage"

OnProgress = Callable[[int, int], None]
"""Called with the bytes received and the total size; 0: unknown."""

Needs = Mapping[str, frozenset[str]]


class ImageUsers(Protocol):
    """Workloads that need images."""

    root: Path  # the directory that `by_path` reads

    def by_name(self) -> Needs:
        """Workloads by the image name in their spec."""

    def by_path(self) -> Needs:
        """Workloads by the base file of their disks. Blocks. Raises OSError."""


class _UsersNow(Struct, frozen=True):
    by_name: Needs
    by_path: Needs


class ImageStore:
    def __init__(
        self,
        root: Path,
        clock: Clock,
        paths: PathCalls,
        *,
        policy: NodePolicy,
        users: ImageUsers,
        changed: Callable[[], None],
    ) -> None:
        """`changed` is called when the list of image names changes."""
        self._root = root.absolute()
        self._files = self._root / IMAGE_FILES
        self._records = self._root / "records"
        self._incoming = self._root / "incoming"
        self._clock = clock
        self._paths = paths
        self._policy = policy
        self._users = users
        self._locks: KeyedLock[str] = KeyedLock()
        self._files_lock = asyncio.Lock()  # for storing and removing files
        self._places: defaultdict[str, asyncio.Semaphore] = defaultdict(
            lambda: asyncio.Semaphore(PER_HOST_MAX)
        )
        self._changed = changed
        self._images: dict[str, Image] = {}

    async def open(self) -> None:
        """Read the records and remove the remains of interrupted operations. Raises OSError."""
        images = await self._paths.run(self._root, self._read, deadline_seconds=LONG_SECONDS)
        self._images = {image.name: image for image in images}
        for path in await self._paths.run(self._files, partial(_listed, self._files)):
            await self._remove_unused(path)

    @property
    def names(self) -> frozenset[str]:
        """Image names that a workload can use. URLs are left out: they are downloaded on demand."""
        return frozenset(name for name in self._images if not is_address(name))

    async def images_with_users(self) -> list[tuple[Image, list[str]]]:
        """All images, each with the workloads that use it. Raises UnavailableError."""
        users = await self._users_now()
        return [(image, self._needed_by(image, users)) for _, image in sorted(self._images.items())]

    async def add(
        self,
        name: str,
        parts: AsyncIterator[bytes],
        *,
        sha256: str = "",
        size: int = 0,
        progress: OnProgress,
    ) -> Image:
        """Add an image. On RefusedError or UnavailableError the store is unchanged."""
        place = self._incoming / uuid.uuid4().hex
        await self._check_space(size)
        try:
            written = await image_files.write(
                place,
                parts,
                self._paths,
                expected=sha256,
                size_bytes=size,
                progress=lambda got: progress(got, size),
            )
            if size and written.size_bytes != size:
                raise RefusedError(
                    f"incomplete image: received {written.size_bytes} of {size} bytes"
                )
            info = await image_files.inspect(place, self._paths)
            image = Image(
                name,
                written.sha256,
                info.format,
                written.size_bytes,
                info.virtual_size_bytes,
                self._clock.now(),
            )
            await self._store(image, place)
        except BaseException:
            with suppress(OSError, PathTimeoutError):  # the next start of the agent removes it
                await self._paths.run(place, partial(place.unlink, missing_ok=True))
            raise
        log.info("image.added", image=name, sha256=image.sha256, size_bytes=image.size_bytes)
        return image

    async def add_from(
        self, name: str, url: str, *, sha256: str = "", progress: OnProgress
    ) -> Image:
        """Raises RefusedError, UnavailableError."""
        async with image_sources.open_source(url, self._policy, self._paths) as source:
            return await self.add(
                name, source.parts, sha256=sha256, size=source.size_bytes, progress=progress
            )

    async def remove(self, name: str) -> None:
        """Raises NotFoundError; RefusedError while a workload uses the image, or if it cannot be removed."""
        async with self._files_lock:
            image = self._images.get(name)
            if image is None:
                raise NotFoundError("image", name)
            if users := self._needed_by(image, await self._users_now()):
                raise RefusedError(
                    f"image {name} is in use by {', '.join(users)}; delete these workloads first"
                )
            record = self._record(name)
            try:
                await self._paths.run(record, partial(record.unlink, missing_ok=True))
                del self._images[name]
                self._changed()
                await self._remove_unused(self._path(image))
            except OSError as err:
                raise RefusedError(f"cannot remove image {name}: {err.strerror}") from err
        log.info("image.removed", image=name)

    async def fetch(self, os_image: str, watch: PullWatch) -> Failure | None:
        """Implements agent.ports.Images."""
        async with self._locks.hold(os_image):  # concurrent requests share one download
            if os_image in self._images:
                image = self._images[os_image]
                return await self._paths.run(self._path(image), partial(self._damage, image))
            if not is_address(os_image):
                text = f"image {os_image} is not on this node; add it with persysctl image add"
                return Failure(FailureReason.IMAGE_NOT_FOUND, text, retryable=False)
            places = self._places[urlsplit(os_image).netloc]
            if places.locked():
                watch.queued(f"{PER_HOST_MAX} images are already being downloaded from this host")
            async with places:
                watch.began()
                return await self._fetch(os_image, watch)

    async def base(self, os_image: str) -> BaseImage | None:
        image = self._images.get(os_image)
        if image is None:
            return None
        return BaseImage(self._path(image), image.format, image.virtual_size_bytes)

    async def _fetch(self, url: str, watch: PullWatch) -> Failure | None:
        def progress(got: int, size: int) -> None:
            watch.progress(DownloadProgress(url, got, size))

        reason = FailureReason.IMAGE_PULL_FAILED
        try:
            await self.add_from(url, url, progress=progress)
        except NotFoundError as err:
            return Failure(FailureReason.IMAGE_NOT_FOUND, str(err), retryable=False)
        except BadImageError as err:
            text = f"invalid VM image {url}: {err}"
            return Failure(reason, text, retryable=False, code=_DAMAGED)
        except (RefusedError, UnavailableError) as err:
            return Failure(reason, str(err))
        return None

    def _damage(self, image: Image) -> Failure | None:
        """Compare the file size with the record, which is cheap. Disks are checked when a VM starts."""
        try:
            size = self._path(image).stat().st_size
        except OSError as err:
            size, found = -1, f"cannot be read: {err.strerror}"
        else:
            found = f"has {size} bytes, expected {image.size_bytes}"
        if size == image.size_bytes:
            return None
        text = f"image {image.name} is damaged: its file {found}; add it again with persysctl image add"
        reason = FailureReason.IMAGE_PULL_FAILED
        return Failure(reason, text, retryable=False, code=_DAMAGED)

    async def _check_space(self, size: int) -> None:
        looking = partial(image_files.free_bytes_below, self._incoming)
        try:
            free = await self._paths.run(self._incoming, looking)
        except OSError as err:
            raise RefusedError(f"{self._incoming}: {err.strerror}") from err
        if size > free:
            raise RefusedError(f"not enough disk space for {size} bytes in {self._root}")

    async def _store(self, image: Image, place: Path) -> None:
        async with self._files_lock:  # the file must not be removed before its record exists
            try:
                await self._paths.run(place, partial(self._move, image, place))
            except OSError as err:
                raise RefusedError(f"cannot store the image: {err.strerror}") from err
            before = self._images.get(image.name)
            self._images[image.name] = image
            if before is None:
                self._changed()
            elif image.name not in self._users.by_name():
                # Otherwise a VM may be about to use the old file: it stays until the next start of the agent.
                with suppress(OSError, UnavailableError):
                    await self._remove_unused(self._path(before))

    def _move(self, image: Image, place: Path) -> None:
        place.chmod(_READ_ONLY)
        place.replace(self._path(image))
        write_file(self._record(image.name), msgspec.json.encode(image))

    async def _remove_unused(self, path: Path) -> None:
        """Remove a file that no record and no disk uses. Raises OSError, UnavailableError."""
        named = any(self._path(image) == path for image in self._images.values())
        if not named and str(path) not in (await self._users_now()).by_path:
            unlink = partial(path.unlink, missing_ok=True)
            await self._paths.run(path, unlink, deadline_seconds=LONG_SECONDS)

    async def _users_now(self) -> "_UsersNow":
        try:
            by_path = await self._paths.run(self._users.root, self._users.by_path)
        except OSError as err:
            raise UnavailableError(f"cannot read the disks of VMs: {err}") from err
        return _UsersNow(self._users.by_name(), by_path)

    def _read(self) -> list[Image]:
        """Create the directories and read all records."""
        for directory in (self._root, self._files):
            directory.mkdir(parents=True, exist_ok=True, mode=_PASSABLE)
        self._records.mkdir(exist_ok=True, mode=0o700)
        shutil.rmtree(self._incoming, ignore_errors=True)
        self._incoming.mkdir(mode=0o700)
        images = []
        for path in self._records.glob("*.json"):
            try:
                images.append(msgspec.json.decode(path.read_bytes(), type=Image))
            except msgspec.DecodeError as err:
                log.warning("image.unreadable", record=path.name, reason=str(err))
        return images

    def _needed_by(self, image: Image, users: "_UsersNow") -> list[str]:
        none: frozenset[str] = frozenset()
        by_path = users.by_path.get(str(self._path(image)), none)
        return sorted(by_path | users.by_name.get(image.name, none))

    def _path(self, image: Image) -> Path:
        return self._files / image.sha256

    def _record(self, name: str) -> Path:
        short = hashlib.sha256(name.encode()).hexdigest() if is_address(name) else name
        return self._records / f"{short}.json"


def _listed(directory: Path) -> list[Path]:
    return list(directory.iterdir())
