"""Fetching an image, from a private registry with a credential of this node.

The credential is read for each fetch, goes to Docker in a header, and is in no message of ours. Why a fetch
failed is told by Docker's HTTP status: 404 is an image that is not there; all else may pass, also a wrong
password, which the operator of the node can put right without a new revision.

Each registry has a few places of its own, taken only when the image is absent, and a pull that makes no
progress fails: a registry that hangs delays only its own images.
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
from persys.agent.runtimes.docker_engine import Engine, EngineError, as_unavailable, understood
from persys.core.pulling import Layers
from persys.errors import InvalidError, NotFoundError
from persys.infra.aio.path_calls import PathCalls
from persys.model.failure import Failure, FailureReason
from persys.model.spec import ContainerSpec, PullPolicy

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
        """A pull fails when Docker reports nothing new of it for `progress_deadline` seconds."""
        self._engine = engine
        self._credentials = credentials
        self._paths = paths
        self._progress_deadline = progress_deadline
        self._places: defaultdict[str, asyncio.Semaphore] = defaultdict(
            lambda: asyncio.Semaphore(PER_REGISTRY_MAX)
        )

    async def pull(self, spec: ContainerSpec, watch: PullWatch) -> Failure | None:
        """Have the image here, as the pull policy says."""
        if spec.pull_policy is not PullPolicy.ALWAYS and await self._id(spec.image):
            return None
        if spec.pull_policy is PullPolicy.NEVER:
            return image_not_found(f"image {spec.image} is not here and its pull policy is Never")
        try:
            headers = await self._headers(spec)
        except (NotFoundError, InvalidError) as err:
            return Failure(
                FailureReason.IMAGE_PULL_FAILED,
                f"image {spec.image}: {err}",
                code=CREDENTIAL_UNUSABLE,
            )
        registry = registry_of(spec.image)
        places = self._places[registry]
        if places.locked():
            watch.queued(f"{PER_REGISTRY_MAX} images of {registry} are being pulled")
        async with places:
            if spec.pull_policy is not PullPolicy.ALWAYS and await self._id(spec.image):
                return None  # another workload has pulled it meanwhile
            watch.began()
            failure = await self._fetch_in_time(tagged(spec.image), headers, watch)
        if failure is None and (image_id := await self._id(spec.image)):
            await watch.fetched(tagged(spec.image), image_id)
        return failure

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
        layers = Layers(image)
        params = {"fromImage": image}
        now = asyncio.get_running_loop().time
        try:
            async with aclosing(
                self._engine.stream(
                    "POST",
                    "images/create",
                    params=params,
                    headers=headers,
                    begins_within=None,  # the registry is asked first; `deadline` bounds that
                )
            ) as lines:
                async for line in lines:
                    if "error" in line:
                        return _told_while_fetching(line)
                    deadline.reschedule(now() + self._progress_deadline)
                    with understood(f"the pull of {image}"):
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
        said = {
            "username": found.username,
            "password": found.password,
            "serveraddress": registry_of(spec.image),
        }
        return {"X-Registry-Auth": urlsafe_b64encode(json.dumps(said).encode()).decode()}

    async def credential_for(self, image: str, name: str) -> str:
        """The credential if it belongs to the registry of this image; "": fetch without one.

        A credential that cannot be used is returned, so that the fetch says what is wrong with it.
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
        """ "" if it is not here."""
        try:
            found = await self._engine.call("GET", f"images/{image}/json")
        except EngineError as err:
            # 400 is not a name at all: the pull says so.
            if err.status in (HTTPStatus.NOT_FOUND, HTTPStatus.BAD_REQUEST):
                return ""
            raise as_unavailable(err) from err
        with understood(image):
            return str(found["Id"])


def tagged(image: str) -> str:
    """Without a tag Docker would fetch all of them."""
    last = image.rpartition("/")[2]
    return image if ":" in last or "@" in last else f"{image}:latest"


def registry_of(image: str) -> str:
    """As Docker decides it: the first part is a host if it looks like one."""
    first, slash, _ = image.partition("/")
    is_host = bool(slash) and ("." in first or ":" in first or first == "localhost")
    return first if is_host else _HUB


def registry_host(image: str) -> str:
    """The name by which a credential lists the registry."""
    registry = registry_of(image)
    return HUB_HOST if registry == _HUB or registry in _HUB_NAMES else registry.lower()


def image_not_found(message: str) -> Failure:
    return Failure(FailureReason.IMAGE_NOT_FOUND, message, retryable=False)


def _told_while_fetching(line: dict[str, object]) -> Failure:
    """Engines with another image store answer first and say what is wrong afterwards."""
    detail = line.get("errorDetail")
    code = detail.get("code") if isinstance(detail, dict) else None
    if code == HTTPStatus.NOT_FOUND:
        return image_not_found(str(line["error"]))
    return Failure(FailureReason.IMAGE_PULL_FAILED, str(line["error"]))
