"""The VM image store: real files, the real qemu-img, a real web server. No libvirt."""

import asyncio
import hashlib
import subprocess
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random
from typing import Any

import pytest

from builders import a_supervisor
from persys.agent.api.images import ImageApi
from persys.agent.app import Agent
from persys.agent.components import Environment
from persys.agent.images.files import BadImageError
from persys.agent.images.store import ImageStore
from persys.agent.journal.store import Journal
from persys.agent.node import host
from persys.agent.runtimes.detect import NodeRuntimes
from persys.agent.settings import AgentSettings
from persys.agent.uplink.heartbeat import PendingReports
from persys.agent.uplink.link import Link
from persys.agent.volumes.detect import detect_drivers
from persys.agent.volumes.managed import ManagedVolumes
from persys.agent.volumes.programs import Programs
from persys.agent.volumes.registry import VolumeRegistry
from persys.agent.workloads.node_policy import NodePolicy
from persys.core.agent.report import DownloadProgress
from persys.errors import InvalidError, NotFoundError, RefusedError
from persys.infra.aio.owned_work import OwnedWork
from persys.infra.aio.path_calls import DirectPathCalls, ThreadPathCalls
from persys.infra.clock import SystemClock
from persys.infra.process import serve
from persys.model.ids import NodeId
from persys.model.status import FailureReason
from persys.wire.gen.agent.v1 import agent_pb2
from persys.wire.gen.control.v1 import control_pb2
from shells.agent.runtimes.vm.storage.test_pools import Scheduler, until

DEADLINE_SECONDS = 20


class Needs:
    """Users of images, set by the test."""

    def __init__(self) -> None:
        self.named: dict[str, frozenset[str]] = {}
        self.stood_on: dict[str, frozenset[str]] = {}
        self.root = Path("/nowhere")

    def by_name(self) -> dict[str, frozenset[str]]:
        return self.named

    def by_path(self) -> dict[str, frozenset[str]]:
        return self.stood_on


class Watch:
    def __init__(self) -> None:
        self.reported: list[str] = []
        self.begins = 0

    def queued(self, why: str) -> None:
        self.reported.append(why)

    def began(self) -> None:
        self.begins += 1

    def progress(self, fetching: object) -> None:
        assert isinstance(fetching, DownloadProgress)
        self.reported.append(fetching.describe())

    async def fetched(self, _image: str, _image_id: str) -> None: ...


class Web:
    """An HTTP server with content of the test. Counts the requests."""

    def __init__(self) -> None:
        self.pages: dict[str, bytes] = {}
        self.request_stream: list[str] = []
        self.cuts_off = False
        web = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                web.request_stream.append(self.path)
                page = web.pages.get(self.path)
                self.send_response(404 if page is None else 200)
                self.send_header("Content-Length", str(len(page or b"")))
                self.end_headers()
                self.wfile.write((page or b"")[: len(page or b"") // 2 if web.cuts_off else None])

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.root = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def web() -> Iterator[Web]:
    created = Web()
    yield created
    created.close()


@pytest.fixture
def needs() -> Needs:
    return Needs()


@pytest.fixture
def pending_reports() -> PendingReports:
    return PendingReports()


@pytest.fixture
def reopen(
    tmp_path: Path, needs: Needs, pending_reports: PendingReports
) -> Callable[[], Awaitable[ImageStore]]:
    """Open the store again, as a restart of the agent does."""

    async def made() -> ImageStore:
        policy = NodePolicy(False, (str(tmp_path / "allowed"),), ())
        store = ImageStore(
            tmp_path / "images",
            SystemClock(),
            ThreadPathCalls(),
            policy=policy,
            users=needs,
            changed=pending_reports.add_node,
        )
        await store.open()
        return store

    return made


@pytest.fixture
async def store(reopen: Callable[[], Awaitable[ImageStore]]) -> ImageStore:
    return await reopen()


def qemu_img(*words: object) -> None:
    subprocess.run(["qemu-img", *map(str, words)], check=True, timeout=60, capture_output=True)


@pytest.fixture
def disk(tmp_path: Path) -> bytes:
    path = tmp_path / "disk.qcow2"
    raw = tmp_path / "disk.raw"
    raw.write_bytes(b"once" * 64 * 1024)
    qemu_img("convert", "-f", "raw", "-O", "qcow2", raw, path)
    return path.read_bytes()


async def parts(*data: bytes) -> AsyncIterator[bytes]:
    for one in data:
        yield one


async def add(store: ImageStore, name: str, data: bytes, *, sha256: str = "") -> str:
    cut = len(data) // 3
    image = await store.add(
        name, parts(data[:cut], data[cut:]), sha256=sha256, progress=lambda *_: None
    )
    return image.sha256


def files(store_root: Path) -> set[str]:
    found = (path for path in store_root.rglob("*") if path.is_file())
    return {str(path.relative_to(store_root)) for path in found}


async def test_an_image_is_stored_unchanged_and_read_only(
    store: ImageStore, disk: bytes, tmp_path: Path
) -> None:
    expected = hashlib.sha256(disk).hexdigest()

    assert await add(store, "debian-12", disk, sha256=expected.upper()) == expected

    base = await store.base("debian-12")
    assert base is not None
    assert (base.format, base.virtual_size_bytes) == ("qcow2", 256 * 1024)
    assert base.path == tmp_path / "images" / "files" / expected
    assert base.path.read_bytes() == disk
    assert base.path.stat().st_mode & 0o777 == 0o444
    assert store.names == {"debian-12"}


async def test_a_wrong_checksum_stores_nothing(
    store: ImageStore, disk: bytes, tmp_path: Path
) -> None:
    with pytest.raises(BadImageError, match=f"expected {'0' * 64}"):
        await add(store, "debian", disk, sha256="0" * 64)

    assert files(tmp_path / "images") == set()
    assert store.names == frozenset()


@pytest.mark.parametrize("kind", ["empty", "text", "cut", "vmdk", "backed", "huge", "short"])
async def test_an_invalid_image_is_refused_with_its_reason(
    store: ImageStore, disk: bytes, tmp_path: Path, kind: str
) -> None:
    other = tmp_path / "other"
    match kind:
        case "empty":
            data, problem = b"", "empty"
        case "text":
            data, problem = b"hello\n", "a multiple of 512"
        case "cut":
            data, problem = disk[: len(disk) // 2], "damaged"
        case "short":
            data, problem = disk[:60], "a multiple of 512|damaged"
        case "vmdk":
            qemu_img("create", "-f", "vmdk", other, "1M")
            data, problem = other.read_bytes(), "invalid image format 'vmdk': expected qcow2 or raw"
        case "backed":
            (tmp_path / "below").write_bytes(bytes(1024))
            qemu_img("create", "-f", "qcow2", "-b", tmp_path / "below", "-F", "raw", other)
            data, problem = other.read_bytes(), "refers to another file"
        case _:
            qemu_img("create", "-f", "qcow2", other, "100T")
            data, problem = other.read_bytes(), "expected 1 to"

    with pytest.raises(BadImageError, match=problem):
        await add(store, "bad", data)

    assert files(tmp_path / "images") == set()


async def test_an_interrupted_upload_stores_nothing(store: ImageStore, tmp_path: Path) -> None:
    began = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        yield bytes(1024)
        await asyncio.Event().wait()

    async with asyncio.TaskGroup() as group:
        task = group.create_task(store.add("slow", endless(), progress=lambda *_: began.set()))
        await began.wait()
        assert len(files(tmp_path / "images")) == 1
        task.cancel()

    assert files(tmp_path / "images") == set()


async def test_an_incomplete_upload_is_refused(store: ImageStore, disk: bytes) -> None:
    with pytest.raises(RefusedError, match="incomplete image: received"):
        await store.add("part", parts(disk), size=len(disk) + 1, progress=lambda *_: None)


async def test_an_image_larger_than_the_free_space_is_refused_at_once(store: ImageStore) -> None:
    with pytest.raises(RefusedError, match="not enough disk space"):
        await store.add("all", parts(b"x"), size=1 << 60, progress=lambda *_: None)


async def test_the_next_start_removes_the_remains_of_a_crash_and_keeps_images(
    store: ImageStore,
    reopen: Callable[[], Awaitable[ImageStore]],
    needs: Needs,
    disk: bytes,
    tmp_path: Path,
) -> None:
    await add(store, "debian", disk)
    root = tmp_path / "images"
    before = files(root)
    (root / "incoming" / "half").write_bytes(b"half")
    (root / "files" / "without-a-name").write_bytes(b"whole")
    stood_on = root / "files" / "replaced"
    stood_on.write_bytes(b"old")
    needs.stood_on = {str(stood_on): frozenset({"web"})}

    again = await reopen()

    assert files(root) == before | {"files/replaced"}
    assert again.names == {"debian"}
    assert [(image.name, users) for image, users in await again.images_with_users()] == [
        ("debian", [])
    ]


async def test_an_image_in_use_is_not_removed(
    store: ImageStore, needs: Needs, disk: bytes, tmp_path: Path
) -> None:
    sha256 = await add(store, "debian", disk)
    needs.named = {"debian": frozenset({"new"})}
    needs.stood_on = {str(tmp_path / "images" / "files" / sha256): frozenset({"old"})}

    with pytest.raises(RefusedError, match="in use by new, old"):
        await store.remove("debian")
    needs.named, needs.stood_on = {}, {}
    await store.remove("debian")

    assert files(tmp_path / "images") == set()
    with pytest.raises(NotFoundError, match="image not found: debian"):
        await store.remove("debian")


async def test_two_names_share_a_file_until_both_are_removed(
    store: ImageStore, disk: bytes, tmp_path: Path
) -> None:
    sha256 = await add(store, "one", disk)
    await add(store, "two", disk)

    await store.remove("one")
    assert f"files/{sha256}" in files(tmp_path / "images")
    await store.remove("two")
    assert files(tmp_path / "images") == set()


async def test_a_name_can_be_reassigned_and_disks_keep_the_old_file(
    store: ImageStore, needs: Needs, disk: bytes, tmp_path: Path
) -> None:
    root = tmp_path / "images"
    old = await add(store, "debian", disk)
    needs.stood_on = {str(root / "files" / old): frozenset({"web"})}

    new = await add(store, "debian", bytes(1024))
    assert {f"files/{old}", f"files/{new}"} < files(root)
    newest = await add(store, "debian", bytes(2048))

    assert files(root) == {f"files/{old}", f"files/{newest}", "records/debian.json"}


async def test_only_a_change_of_the_names_is_reported(
    store: ImageStore, pending_reports: PendingReports, disk: bytes
) -> None:
    reported = []
    for change in (
        lambda: add(store, "debian", disk),
        lambda: add(store, "debian", bytes(1024)),
        lambda: store.remove("debian"),
    ):
        await change()
        reported.append(pending_reports.node_changed)
        pending_reports.take()

    assert reported == [True, False, True]


async def test_a_url_is_downloaded_once_for_concurrent_requests(
    store: ImageStore, web: Web, disk: bytes
) -> None:
    web.pages["/debian.qcow2"] = disk
    url, watches = f"{web.root}/debian.qcow2", [Watch(), Watch()]

    async with asyncio.TaskGroup() as group:
        for watch in watches:
            group.create_task(store.fetch(url, watch))

    base = await store.base(url)
    assert base is not None
    assert base.path.read_bytes() == disk
    assert len(web.request_stream) == 1
    assert sorted(watch.begins for watch in watches) == [0, 1]
    assert any(f"pulling {url}: 0." in reported for watch in watches for reported in watch.reported)
    assert store.names == frozenset()  # a URL can be used on every node


async def test_download_errors_are_classified(
    store: ImageStore, web: Web, disk: bytes, tmp_path: Path
) -> None:
    web.pages["/text"] = b"no image"

    missing = await store.fetch(f"{web.root}/missing", Watch())
    broken = await store.fetch(f"{web.root}/text", Watch())
    web.pages["/cut"], web.cuts_off = disk, True
    cut = await store.fetch(f"{web.root}/cut", Watch())
    silent = await store.fetch("http://127.0.0.1:1/x", Watch())

    assert missing is not None
    assert broken is not None
    assert cut is not None
    assert silent is not None
    assert (missing.reason, missing.retryable) == (FailureReason.IMAGE_NOT_FOUND, False)
    assert (broken.reason, broken.retryable) == (FailureReason.IMAGE_PULL_FAILED, False)
    assert broken.code == "DamagedImage"
    assert (cut.reason, cut.retryable) == (FailureReason.IMAGE_PULL_FAILED, True)
    assert (silent.reason, silent.retryable) == (FailureReason.IMAGE_PULL_FAILED, True)
    assert files(tmp_path / "images") == set()


async def test_a_missing_image_name_suggests_the_next_step(store: ImageStore) -> None:
    failure = await store.fetch("debian", Watch())

    assert failure is not None
    assert failure.reason is FailureReason.IMAGE_NOT_FOUND
    assert "persysctl image add" in failure.message


async def test_a_truncated_image_file_is_detected_before_a_vm_uses_it(
    store: ImageStore, disk: bytes
) -> None:
    await add(store, "debian", disk)
    base = await store.base("debian")
    assert base is not None
    assert await store.fetch("debian", Watch()) is None

    base.path.chmod(0o644)
    base.path.write_bytes(disk[:100])

    failure = await store.fetch("debian", Watch())
    assert failure is not None
    assert (failure.code, failure.retryable) == ("DamagedImage", False)
    assert f"has 100 bytes, expected {len(disk)}" in failure.message
    await add(store, "debian", disk)
    assert await store.fetch("debian", Watch()) is None


async def test_a_file_url_is_read_only_below_allowed_roots(
    store: ImageStore, disk: bytes, tmp_path: Path
) -> None:
    (tmp_path / "allowed").mkdir()
    (tmp_path / "allowed" / "a disk").write_bytes(disk)

    image = await store.add_from(
        "debian", f"file://{tmp_path}/allowed/a%20disk", progress=lambda *_: None
    )

    assert image.sha256 == hashlib.sha256(disk).hexdigest()
    for path, problem in (
        (tmp_path / "disk.qcow2", "PERSYS_BIND_ROOTS"),
        (tmp_path / "allowed" / "none", "image not found"),
        (tmp_path / "allowed", "is not a regular file"),
    ):
        with pytest.raises(RefusedError, match=problem):
            await store.add_from("other", f"file://{path}", progress=lambda *_: None)


async def request_stream(
    *requests: agent_pb2.AddImageRequest,
) -> AsyncIterator[agent_pb2.AddImageRequest]:
    for one in requests:
        yield one


@pytest.fixture
async def image_api(store: ImageStore) -> AsyncIterator[ImageApi]:
    owned = OwnedWork(a_supervisor(), limit=10)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(owned.run())
        await asyncio.sleep(0)
        yield ImageApi(store, owned)
        running.cancel()


async def test_an_upload_reports_its_progress_and_result(image_api: ImageApi, disk: bytes) -> None:
    reported: list[agent_pb2.ImageProgress] = []

    async def write(progress: agent_pb2.ImageProgress) -> None:
        reported.append(agent_pb2.ImageProgress.FromString(progress.SerializeToString()))

    start = agent_pb2.AddImageStart(name="debian", size_bytes=len(disk))
    data = agent_pb2.AddImageRequest(data=disk)
    await image_api.add(request_stream(agent_pb2.AddImageRequest(start=start), data), write)

    assert reported[0].size_bytes == len(disk)
    assert (reported[-1].image.name, reported[-1].received_bytes) == ("debian", len(disk))
    assert [view.name for view in (await image_api.list()).images] == ["debian"]
    assert "image not found" in (await image_api.remove("other")).message
    assert (await image_api.remove("debian")).success


@pytest.mark.parametrize(
    ("start", "field"),
    [
        ({}, "start"),
        ({"name": "a b"}, "name"),
        ({"name": "http://x/y"}, "name"),
        ({"name": "a", "sha256": "12"}, "sha256"),
        ({"name": "a", "size_bytes": -1}, "size_bytes"),
        ({"name": "a", "url": "ftp://x/y"}, "url"),
    ],
)
async def test_an_invalid_upload_is_refused_by_field(
    image_api: ImageApi, start: dict[str, str | int], field: str
) -> None:
    async def write(_progress: agent_pb2.ImageProgress) -> None: ...

    first = agent_pb2.AddImageRequest(data=b"x")
    if start:
        first = agent_pb2.AddImageRequest(start=agent_pb2.AddImageStart(**start))  # type: ignore[arg-type]
    with pytest.raises(InvalidError) as refused:
        await image_api.add(request_stream(first), write)

    assert refused.value.field == field


async def silent(_progress: agent_pb2.ImageProgress) -> None: ...


def a_start(**fields: Any) -> agent_pb2.AddImageRequest:
    return agent_pb2.AddImageRequest(start=agent_pb2.AddImageStart(**fields))


async def test_a_download_completes_when_the_caller_disconnects(
    image_api: ImageApi, store: ImageStore, web: Web, disk: bytes
) -> None:
    web.pages["/debian.qcow2"] = disk
    adding = image_api.add(
        request_stream(a_start(name="debian", url=f"{web.root}/debian.qcow2")), silent
    )
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await adding

    await until(lambda: store.names == {"debian"})


async def test_an_upload_of_a_disconnected_caller_stores_nothing(
    image_api: ImageApi, store: ImageStore, disk: bytes, tmp_path: Path
) -> None:
    came = asyncio.Event()

    async def half() -> AsyncIterator[agent_pb2.AddImageRequest]:
        yield a_start(name="debian")
        yield agent_pb2.AddImageRequest(data=disk[: len(disk) // 2])
        came.set()
        await asyncio.Event().wait()

    async with asyncio.TaskGroup() as group:
        adding = group.create_task(image_api.add(half(), silent))
        await came.wait()
        adding.cancel()

    await until(lambda: not files(tmp_path / "images"))
    await until(lambda: image_api._uploads == 0)
    assert store.names == frozenset()


async def test_a_cancelled_upload_that_looks_complete_stores_nothing(
    image_api: ImageApi, store: ImageStore, disk: bytes, tmp_path: Path
) -> None:
    """gRPC first ends the request stream of a cancelled call."""
    ended = asyncio.Event()

    async def cut_off() -> AsyncIterator[agent_pb2.AddImageRequest]:
        yield a_start(name="debian")
        yield agent_pb2.AddImageRequest(data=disk[:-512])
        ended.set()

    async with asyncio.TaskGroup() as group:
        adding = group.create_task(image_api.add(cut_off(), silent))
        await ended.wait()
        await asyncio.sleep(0)
        adding.cancel()

    await until(lambda: image_api._uploads == 0)
    assert store.names == frozenset()
    assert files(tmp_path / "images") == set()


async def test_a_refused_upload_is_read_to_its_end(image_api: ImageApi) -> None:
    reported: list[str] = []
    received: list[int] = []

    async def write(progress: agent_pb2.ImageProgress) -> None:
        reported.append(progress.problem)

    async def long() -> AsyncIterator[agent_pb2.AddImageRequest]:
        yield a_start(name="debian", size_bytes=1 << 60)
        for number in range(20):
            yield agent_pb2.AddImageRequest(data=b"x")
            received.append(number)

    with pytest.raises(RefusedError, match="not enough disk space"):
        await image_api.add(long(), write)

    assert any("not enough disk space" in problem for problem in reported)
    assert received == list(range(20))


async def test_a_cancelled_removal_completes(
    image_api: ImageApi, store: ImageStore, disk: bytes
) -> None:
    for turns in range(1, 12):
        await add(store, "debian", disk)
        async with asyncio.TaskGroup() as group:
            removing = group.create_task(image_api.remove("debian"))
            for _ in range(turns):
                await asyncio.sleep(0)
            removing.cancel()
        await until(lambda: store.names == frozenset())


class RareHeartbeatScheduler(Scheduler):
    """A scheduler with a heartbeat interval of ten minutes."""

    async def register(
        self, request: control_pb2.RegisterNodeRequest
    ) -> control_pb2.RegisterNodeResponse:
        response = await super().register(request)
        response.heartbeat_interval_seconds = 600
        return response


async def test_a_node_reports_a_new_image_at_once(
    store: ImageStore, pending_reports: PendingReports, disk: bytes, tmp_path: Path
) -> None:
    scheduler = RareHeartbeatScheduler()

    @asynccontextmanager
    async def connect(_address: str) -> AsyncIterator[Link]:
        yield scheduler

    settings = AgentSettings(insecure=True, storage_local_root=tmp_path, gc_enabled=False)
    journal = Journal(tmp_path / "state.db", cluster_id="default", node_id=NodeId("n1"))
    registry, clock, paths = VolumeRegistry(journal), SystemClock(), DirectPathCalls()
    environment = Environment(
        journal=journal,
        runtimes=NodeRuntimes(images=store),
        volumes=ManagedVolumes(
            detect_drivers(settings, registry, Programs(), paths),
            registry,
            clock,
            paths,
        ),
        host=host,
        clock=clock,
        paths=paths,
        connect=connect,
        random=Random(1),
        boot_id="b1",
        pending_reports=pending_reports,
    )
    agent = Agent(settings, NodeId("n1"), environment)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(serve(agent.parts(1), asyncio.Event()))
        await until(lambda: scheduler.beats >= 1)

        await add(store, "debian-12", disk)
        await until(lambda: len(scheduler.registered) == 2)
        await store.remove("debian-12")
        await until(lambda: len(scheduler.registered) == 3)
        running.cancel()
    journal.close()

    reported = [[one for one in each.features if "image" in one] for each in scheduler.registered]
    assert reported == [[], ["image:debian-12"], []]
