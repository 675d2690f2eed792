"""Pulls images, from private registries with a credential of this node.

The credential is read for each pull, passed to Docker in a header, and never part of a message. Docker's HTTP
status classifies a failure: 404 means that the image does not exist. All other errors are retried, also a
wrong password, which the operator can fix without a new revision.

Concurrent pulls are limited per registry, and a pull without progress fails: a registry that hangs delays
only its own images.
"""

import asyncio
import json
from base64 import urlsafe_b64encode
from collections import defaultdict
from contextlib import aclosing
from functools import partial
from http import HTTPStatus

from persys.agent.credentials import Credentials
from persys.agent.ports import PullWatch
from persys.agent.runtimes.docker.engine import (
    Engine,
    EngineError,
    as_unavailable,
    parsing_response,
)
from persys.core.agent.report import LayerProgress
from persys.errors import InvalidError, NotFoundError
from persys.infra.aio.keyed_lock import KeyedLock
from persys.infra.aio.path_calls import PathCalls
from persys.model.spec import ContainerSpec, PullPolicy
from persys.model.status import Failure, FailureReason

CREDENTIAL_UNUSABLE = "CredentialUnusable"
HUB_HOST = "docker.io"
NO_PROGRESS = "NoProgress"
PER_REGISTRY_MAX = 4
PROGRESS_DEADLINE_SECONDS = 120.0
_HUB = "https://index.docker.io/v1/"
_HUB_NAMES = ("docker.io", "index.docker.io", "registry-1.docker.io")


class Puller:
    def __init__(
        self,
        engine: Engine,
        credentials: Credentials,
        paths: PathCalls,
        *,
        progress_deadline: float = PROGRESS_DEADLINE_SECONDS,
    ) -> None:
        """A pull fails if Docker reports no progress for `progress_deadline` seconds."""
        self._engine = engine
        self._credentials = credentials
        self._paths = paths
        self._progress_deadline = progress_deadline
        self._slots: defaultdict[str, asyncio.Semaphore] = defaultdict(
            lambda: asyncio.Semaphore(PER_REGISTRY_MAX)
        )
        self._checks: KeyedLock[str] = KeyedLock()
        self._check_count = 0
        # By image: the number of the last check, and its result.
        self._checked: dict[str, tuple[int, bool]] = {}
        # The waits for a slot, with their image. They end when the image is present.
        self._waits: dict[asyncio.Timeout, str] = {}

    async def pull(self, spec: ContainerSpec, watch: PullWatch) -> Failure | None:
        """Make the image available according to its pull policy."""
        if spec.pull_policy is not PullPolicy.ALWAYS and await self._is_present(spec.image):
            return None
        if spec.pull_policy is PullPolicy.NEVER:
            return image_not_found(
                f"image {spec.image} is not on this node and its pull policy is Never: "
                "pull or upload it, or change the pull policy"
            )
        try:
            headers = await self._headers(spec)
        except (NotFoundError, InvalidError) as err:
            return Failure(
                FailureReason.IMAGE_PULL_FAILED,
                f"image {spec.image}: {err}",
                code=CREDENTIAL_UNUSABLE,
            )
        registry = registry_of(spec.image)
        slots = self._slots[registry]
        if slots.locked():
            watch.queued(f"{PER_REGISTRY_MAX} images of {registry} are being pulled")
        while not await self._acquire(slots, spec):
            if await self._is_present(spec.image):
                return None  # another workload pulled it in the meantime
        try:
            if spec.pull_policy is not PullPolicy.ALWAYS and await self._is_present(spec.image):
                return None
            watch.began()
            failure = await self._fetch_in_time(tagged(spec.image), headers, watch)
        finally:
            slots.release()
        if failure is None and (image_id := await self._id(spec.image)):
            self._end_waits(spec.image)
            await watch.fetched(tagged(spec.image), image_id)
        return failure

    async def _acquire(self, slots: asyncio.Semaphore, spec: ContainerSpec) -> bool:
        """Wait for a slot. False: the image is present meanwhile, and no slot was acquired.

        Otherwise a workload would wait for pulls that hang, although its image is present.
        """
        if spec.pull_policy is PullPolicy.ALWAYS:
            return await slots.acquire()
        image = tagged(spec.image)
        try:
            async with asyncio.timeout(None) as wait:
                self._waits[wait] = image
                try:
                    return await slots.acquire()
                finally:
                    self._waits.pop(wait, None)
        except TimeoutError:
            if not wait.expired():
                raise
            return False

    async def _is_present(self, image: str) -> bool:
        """Whether the image is on this node. Waiting callers share a check that begins after their calls."""
        started_count = self._check_count
        async with self._checks.hold(image):
            number, is_present = self._checked.get(image, (0, False))
            if number <= started_count:
                self._check_count = number = self._check_count + 1
                is_present = bool(await self._id(image))
                self._checked[image] = (number, is_present)
        if not self._checks.is_held(image):
            self._checked.pop(image, None)
        if is_present:
            self._end_waits(image)
        return is_present

    def _end_waits(self, image: str) -> None:
        now = asyncio.get_running_loop().time()
        for wait in [one for one, awaited in self._waits.items() if awaited == tagged(image)]:
            del self._waits[wait]
            wait.reschedule(now)

    async def _fetch_in_time(
        self, image: str, headers: dict[str, str], watch: PullWatch
    ) -> Failure | None:
        try:
            async with asyncio.timeout(self._progress_deadline) as deadline:
                return await self._fetch(image, headers, watch, deadline)
        except TimeoutError:
            if not deadline.expired():
                raise
            text = f"image {image}: no progress for {self._progress_deadline:g} s"
            return Failure(FailureReason.IMAGE_PULL_FAILED, text, code=NO_PROGRESS)

    async def _fetch(
        self, image: str, headers: dict[str, str], watch: PullWatch, deadline: asyncio.Timeout
    ) -> Failure | None:
        layers = LayerProgress(image)
        params = {"fromImage": image}
        now = asyncio.get_running_loop().time
        try:
            async with aclosing(
                self._engine.stream(
                    "POST",
                    "images/create",
                    params=params,
                    headers=headers,
                    begins_within=None,  # Docker contacts the registry first; `deadline` bounds that
                )
            ) as lines:
                async for line in lines:
                    if "error" in line:
                        return _streamed_error(line)
                    deadline.reschedule(now() + self._progress_deadline)
                    with parsing_response(f"the pull of {image}"):
                        layers.take(line)
                    watch.progress(layers)
        except EngineError as err:
            if err.status == HTTPStatus.NOT_FOUND:
                return image_not_found(err.message)
            if err.status == HTTPStatus.BAD_REQUEST:
                return Failure(FailureReason.INVALID_SPEC, err.message, retryable=False)
            return Failure(FailureReason.IMAGE_PULL_FAILED, err.message)
        return None

    async def _headers(self, spec: ContainerSpec) -> dict[str, str]:
        """Raises NotFoundError, InvalidError."""
        if not spec.image_credential:
            return {}
        name, host = spec.image_credential, registry_host(spec.image)
        found = await self._paths.run(
            self._credentials.directory, partial(self._credentials.get_for, name, host)
        )
        if not found.username or not found.password:
            raise InvalidError(
                f"credential {spec.image_credential}", "has no username and password for a registry"
            )
        auth = {
            "username": found.username,
            "password": found.password,
            "serveraddress": registry_of(spec.image),
        }
        return {"X-Registry-Auth": urlsafe_b64encode(json.dumps(auth).encode()).decode()}

    async def credential_for(self, image: str, name: str) -> str:
        """The credential if it belongs to the registry of this image; "" to pull without one.

        An invalid credential is returned as well, so that the pull reports what is wrong with it.
        """
        if not name:
            return ""
        try:
            hosts = await self._paths.run(
                self._credentials.directory, partial(self._credentials.hosts, name)
            )
        except (NotFoundError, InvalidError):
            return name
        return name if registry_host(image) in hosts else ""

    async def _id(self, image: str) -> str:
        """The image id, or "" if the image is not on this node."""
        try:
            found = await self._engine.call("GET", f"images/{image}/json")
        except EngineError as err:
            # 400: the image name is invalid. The pull reports that.
            if err.status in (HTTPStatus.NOT_FOUND, HTTPStatus.BAD_REQUEST):
                return ""
            raise as_unavailable(err) from err
        with parsing_response(image):
            return str(found["Id"])


def tagged(image: str) -> str:
    """Add the default tag: without a tag Docker pulls all tags."""
    last = image.rpartition("/")[2]
    return image if ":" in last or "@" in last else f"{image}:latest"


def registry_of(image: str) -> str:
    """The registry by Docker's rule: the first part is a host if it contains a dot or a port."""
    first, slash, _ = image.partition("/")
    is_host = bool(slash) and ("." in first or ":" in first or first == "localhost")
    return first if is_host else _HUB


def registry_host(image: str) -> str:
    """The registry name as credentials list it."""
    registry = registry_of(image)
    return HUB_HOST if registry == _HUB or registry in _HUB_NAMES else registry.lower()


def image_not_found(message: str) -> Failure:
    return Failure(FailureReason.IMAGE_NOT_FOUND, message, retryable=False)


def _streamed_error(line: dict[str, object]) -> Failure:
    """An error in the progress stream: engines with the containerd image store report it there."""
    detail = line.get("errorDetail")
    code = detail.get("code") if isinstance(detail, dict) else None
    if code == HTTPStatus.NOT_FOUND:
        return image_not_found(str(line["error"]))
    return Failure(FailureReason.IMAGE_PULL_FAILED, str(line["error"]))
