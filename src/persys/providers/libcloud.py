"""The provider `libcloud`: Google Compute Engine, DigitalOcean and OpenStack through Apache Libcloud.

A driver of Libcloud is listed here if machines can be created with tags and user data in one call, because a
machine without tags would not be found again after a crash. A list has all machines of the account and is
filtered here.
"""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import cached_property, partial
from typing import Any, NamedTuple, TypeVar

from libcloud.common.exceptions import BaseHTTPError, RateLimitReachedError
from libcloud.common.google import GoogleAuthError, QuotaExceededError, ResourceExistsError
from libcloud.common.types import InvalidCredsError, LibcloudError
from libcloud.compute.base import Node, NodeImage, NodeLocation, NodeSize
from libcloud.compute.providers import get_driver
from libcloud.compute.types import NodeState

from persys.errors import (
    PersysError,
    ProviderRefusedError,
    ProviderThrottledError,
    ProviderUnavailableError,
    SettingsError,
)
from persys.providers.port import Instance, InstanceState, MachineRequest, retry_after
from persys.providers.thread_calls import (
    CHANGE_SECONDS,
    LIST_SECONDS,
    READ_SECONDS,
    ThreadCalls,
)

DRIVER_OPTION = "driver"
ARGUMENT_PREFIX = "driver."  # options for the constructor of the driver, for example driver.project
OPTIONS = frozenset(
    {DRIVER_OPTION, "network", "networks", "subnet", "spot", "disk_gb", "ssh_keys", "key_name"}
)
RETRY_AFTER = timedelta(seconds=60)
_HTTP_CONFLICT = 409
_HTTP_REFUSED = range(400, 500)

_STATES = {
    NodeState.PENDING: InstanceState.PENDING,
    NodeState.STARTING: InstanceState.PENDING,
    NodeState.STOPPING: InstanceState.STOPPING,
    NodeState.STOPPED: InstanceState.STOPPED,
    NodeState.SUSPENDED: InstanceState.STOPPED,
    NodeState.PAUSED: InstanceState.STOPPED,
    NodeState.ERROR: InstanceState.STOPPED,
}

Result = TypeVar("Result")
Arguments = dict[str, Any]


class Cloud(NamedTuple):
    """How one driver passes tags and user data."""

    create: Callable[[Any, MachineRequest], Arguments]  # with the driver
    tags: Callable[[Node], Mapping[str, str]]
    arguments: Mapping[str, str] = {}  # of its constructor


def _gce_arguments(_driver: Any, request: MachineRequest) -> Arguments:
    options = request.options
    return {
        "size": request.size,
        "image": request.image,
        "location": request.region,
        "ex_labels": request.tags,
        "ex_metadata": {"user-data": request.user_data},
        "ex_network": options.get("network", "default"),
        "ex_subnetwork": options.get("subnet"),
        "ex_preemptible": options.get("spot") == "true" or None,
        "ex_disk_size": int(options["disk_gb"]) if options.get("disk_gb") else None,
    }


def _digitalocean_arguments(driver: Any, request: MachineRequest) -> Arguments:
    tags = [f"{key}:{value}" for key, value in request.tags.items()]
    keys = (
        {"ssh_keys": request.options["ssh_keys"].split(",")}
        if "ssh_keys" in request.options
        else {}
    )
    return {
        **_named(driver, request),
        "location": NodeLocation(request.region, request.region, "", driver),
        "ex_create_attr": {"tags": tags, **keys},
        "ex_user_data": request.user_data,
    }


def _openstack_arguments(driver: Any, request: MachineRequest) -> Arguments:
    options = request.options
    networks = [_Id(name) for name in options.get("networks", "").split(",") if name]
    return {
        **_named(driver, request),
        "ex_metadata": request.tags,
        "ex_userdata": request.user_data,
        "ex_availability_zone": request.region or None,
        "ex_keyname": options.get("key_name"),
        **({"networks": networks} if networks else {}),
    }


class _Id(NamedTuple):
    """A network, of which only the id is sent."""

    id: str


def _named(driver: Any, request: MachineRequest) -> Arguments:
    size = NodeSize(request.size, request.size, 0, 0, 0, 0, driver)
    return {"size": size, "image": NodeImage(request.image, request.image, driver)}


def _split_tags(node: Node) -> dict[str, str]:
    pairs = (str(tag).partition(":") for tag in node.extra.get("tags") or [])
    return {key: value for key, _, value in pairs}


CLOUDS = {
    "digitalocean": Cloud(_digitalocean_arguments, _split_tags),
    "gce": Cloud(
        _gce_arguments,
        lambda node: node.extra.get("labels") or {},
        {"auth_type": "SA"},  # a service account; without it the driver may wait for a browser
    ),
    "openstack": Cloud(_openstack_arguments, lambda node: node.extra.get("metadata") or {}),
}


class LibcloudProvider:
    """Implements Provider."""

    def __init__(
        self, *, options: Mapping[str, str], credentials: Mapping[str, str], threads: ThreadCalls
    ) -> None:
        """Raises SettingsError if the driver is unknown."""
        self._name = options.get(DRIVER_OPTION, "")
        if self._name not in CLOUDS:
            raise SettingsError(
                f"invalid option {DRIVER_OPTION} '{self._name}': expected one of {', '.join(CLOUDS)}"
            )
        self._cloud = CLOUDS[self._name]
        self._arguments = {
            name.removeprefix(ARGUMENT_PREFIX): value
            for name, value in options.items()
            if name.startswith(ARGUMENT_PREFIX)
        }
        self._credentials = credentials
        self._threads = threads

    @cached_property
    def _driver(self) -> Any:
        """Created on first use and in a thread: some drivers send requests."""
        names = ("key", "secret")
        given = [self._credentials[name] for name in names if self._credentials.get(name)]
        if not given:
            raise ProviderRefusedError(f"{self._name}: the credentials have no value named 'key'")
        driver = get_driver(self._name)(*given, **{**self._arguments, **self._cloud.arguments})
        driver.connection.timeout = READ_SECONDS  # not all drivers accept it as an argument
        return driver

    async def check(self) -> None:
        await self.instances({})

    async def create(self, request: MachineRequest) -> Instance:
        for instance in await self.instances(request.tags):
            if instance.name == request.name:
                return instance
        node = await self._run(partial(self._create, request), CHANGE_SECONDS)
        # The answer of some clouds has no tags yet.
        return _instance(node, request.tags)

    def _create(self, request: MachineRequest) -> Node:
        arguments = self._cloud.create(self._driver, request)
        node: Node = self._driver.create_node(name=request.name, **arguments)
        return node

    async def instances(self, tags: Mapping[str, str]) -> list[Instance]:
        return [
            _instance(node, dict(self._cloud.tags(node)))
            for node in await self._nodes()
            if tags.items() <= self._cloud.tags(node).items()
        ]

    async def destroy(self, provider_id: str) -> None:
        for node in await self._nodes():
            if str(node.id) == provider_id:
                await self._run(partial(self._driver.destroy_node, node), CHANGE_SECONDS)

    async def _nodes(self) -> list[Node]:
        found = await self._run(lambda: self._driver.list_nodes(), LIST_SECONDS)
        return [node for node in found if node.state != NodeState.TERMINATED]

    async def close(self) -> None:
        self._threads.close()

    async def _run(self, call: Callable[[], Result], deadline_seconds: float) -> Result:
        try:
            return await self._threads.run(call, deadline_seconds=deadline_seconds)
        except (BaseHTTPError, LibcloudError, OSError, ValueError, LookupError) as err:
            raise _translated(self._name, err) from err


def _instance(node: Node, tags: dict[str, str]) -> Instance:
    created_at = node.created_at
    addresses = [*node.public_ips, *node.private_ips]
    return Instance(
        provider_id=str(node.id),
        name=node.name,
        tags=tags,
        # A state that is unknown here says nothing against the machine.
        state=_STATES.get(node.state, InstanceState.RUNNING),
        created_at=created_at if isinstance(created_at, datetime) and created_at.tzinfo else None,
        address=str(addresses[0]) if addresses else "",
    )


def _translated(name: str, err: Exception) -> PersysError:
    text = f"{name}: {err}"
    if isinstance(err, RateLimitReachedError):
        return ProviderThrottledError(text, retry_after=retry_after(err.retry_after, RETRY_AFTER))
    if isinstance(err, InvalidCredsError | GoogleAuthError | QuotaExceededError):
        return ProviderRefusedError(text)
    if isinstance(err, ResourceExistsError):
        return ProviderUnavailableError(text)  # created by an earlier call; lists will show it
    code = _http_code(err)
    if code in _HTTP_REFUSED and code != _HTTP_CONFLICT:
        return ProviderRefusedError(text)
    return ProviderUnavailableError(text)


def _http_code(err: Exception) -> int:
    code = err.code if isinstance(err, BaseHTTPError) else getattr(err, "http_code", 0)
    return code if isinstance(code, int) else 0
