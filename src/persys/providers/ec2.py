"""The provider `ec2`: EC2, and clouds with an API that is compatible with it.

The tags are part of the create call. Each create first looks for a machine with these tags, because some
compatible APIs ignore the client token; the token is sent as well, so that EC2 itself does not create a
second machine when the answer to the first call was lost. EC2 may list a new machine only after some seconds:
a machine that this process has created is listed until then.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from functools import cached_property, partial
from typing import Any, TypeVar

import boto3
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    NoCredentialsError,
    NoRegionError,
    PartialCredentialsError,
)

from persys.errors import (
    PersysError,
    ProviderRefusedError,
    ProviderThrottledError,
    ProviderUnavailableError,
)
from persys.infra.clock import Clock
from persys.model.nodepool import TAG_CLUSTER_UID
from persys.providers.port import Instance, InstanceState, MachineRequest, retry_after
from persys.providers.thread_calls import (
    CHANGE_SECONDS,
    CONNECT_SECONDS,
    LIST_SECONDS,
    READ_SECONDS,
    ThreadCalls,
)

OPTIONS = frozenset(
    {"endpoint", "subnet", "security_groups", "key_name", "instance_profile", "disk_gb", "spot"}
)
LISTED_LATE = timedelta(minutes=2)  # how long a new machine may be missing from lists
RETRY_AFTER = timedelta(seconds=30)
NO_CAPACITY_RETRY_AFTER = timedelta(minutes=5)
_DEFAULT_ROOT_DEVICE = "/dev/xvda"

_STATES = {
    "pending": InstanceState.PENDING,
    "running": InstanceState.RUNNING,
    "stopping": InstanceState.STOPPING,
    "shutting-down": InstanceState.STOPPING,
    "stopped": InstanceState.STOPPED,
}
_THROTTLED = frozenset(
    {
        "RequestLimitExceeded",
        "Throttling",
        "ThrottlingException",
        "RequestThrottled",
        "TooManyRequestsException",
        "BandwidthLimitExceeded",
        "EC2ThrottledException",
    }
)
_NO_CAPACITY = frozenset(
    {"InsufficientInstanceCapacity", "InsufficientHostCapacity", "InsufficientCapacity"}
)
# The machine exists, or may exist: lists will show it.
_UNKNOWN = frozenset(
    {"IdempotentParameterMismatch", "InternalError", "InternalFailure", "Unavailable"}
)
_NOT_FOUND = frozenset({"InvalidInstanceID.NotFound"})
_DRY_RUN_PASSED = "DryRunOperation"
_SERVER_ERROR = 500

Result = TypeVar("Result")


class Ec2Provider:
    """Implements Provider."""

    def __init__(
        self,
        *,
        example: MachineRequest,
        credentials: Mapping[str, str],
        clock: Clock,
        threads: ThreadCalls,
    ) -> None:
        """`example` is a request of the pool, which `check` sends as a dry run."""
        self._example = example
        self._credentials = credentials
        self._clock = clock
        self._threads = threads
        self._created: dict[str, tuple[Instance, float]] = {}  # with the time of creation

    @cached_property
    def _client(self) -> Any:
        """Created on first use and in a thread, because that reads large files."""
        session = boto3.session.Session(
            aws_access_key_id=self._credentials.get("AWS_ACCESS_KEY_ID"),
            aws_secret_access_key=self._credentials.get("AWS_SECRET_ACCESS_KEY"),
            aws_session_token=self._credentials.get("AWS_SESSION_TOKEN"),
            region_name=self._example.region or None,
        )
        config = Config(
            connect_timeout=CONNECT_SECONDS,
            read_timeout=READ_SECONDS,
            # A repetition inside the library does not look by tag first.
            retries={"total_max_attempts": 1},
        )
        endpoint = self._example.options.get("endpoint") or None
        return session.client("ec2", endpoint_url=endpoint, config=config)

    async def check(self) -> None:
        await self._run(partial(self._dry_run, self._example), CHANGE_SECONDS)

    def _dry_run(self, example: MachineRequest) -> None:
        try:
            self._client.run_instances(DryRun=True, **_parameters(example))
        except ClientError as err:
            if _code(err) != _DRY_RUN_PASSED:
                raise

    async def create(self, request: MachineRequest) -> Instance:
        for instance in await self.instances(request.tags):
            if instance.name == request.name:
                return instance
        answer = await self._run(
            lambda: self._client.run_instances(**_parameters(request)), CHANGE_SECONDS
        )
        instance = _instance(answer["Instances"][0])
        self._created[instance.provider_id] = instance, self._clock.monotonic()
        return instance

    async def instances(self, tags: Mapping[str, str]) -> list[Instance]:
        asked_at = self._clock.monotonic()
        found = await self._run(lambda: list(self._described(tags)), LIST_SECONDS)
        listed = {each["InstanceId"] for each in found}
        self._created = {
            provider_id: (instance, created_at)
            for provider_id, (instance, created_at) in self._created.items()
            if provider_id not in listed and asked_at - created_at < LISTED_LATE.total_seconds()
        }
        late = [
            instance
            for instance, _ in self._created.values()
            if tags.items() <= instance.tags.items()
        ]
        alive = [_instance(each) for each in found if each["State"]["Name"] in _STATES]
        return sorted([*alive, *late], key=lambda each: (each.name, each.provider_id))

    def _described(self, tags: Mapping[str, str]) -> Iterator[dict[str, Any]]:
        filters = [{"Name": f"tag:{key}", "Values": [value]} for key, value in tags.items()]
        for page in self._client.get_paginator("describe_instances").paginate(Filters=filters):
            for reservation in page["Reservations"]:
                yield from reservation["Instances"]

    async def destroy(self, provider_id: str) -> None:
        await self._run(partial(self._terminate, provider_id), CHANGE_SECONDS)
        self._created.pop(provider_id, None)

    def _terminate(self, provider_id: str) -> None:
        try:
            self._client.terminate_instances(InstanceIds=[provider_id])
        except ClientError as err:
            if _code(err) not in _NOT_FOUND:
                raise

    async def close(self) -> None:
        self._threads.close()

    async def _run(self, call: Callable[[], Result], deadline_seconds: float) -> Result:
        try:
            return await self._threads.run(call, deadline_seconds=deadline_seconds)
        except (ClientError, BotoCoreError) as err:
            raise _translated(err) from err


def _parameters(request: MachineRequest) -> dict[str, Any]:
    options = request.options
    tags = [{"Key": key, "Value": value} for key, value in request.tags.items()]
    tags.append({"Key": "Name", "Value": request.name})
    parameters: dict[str, Any] = {
        "ImageId": request.image,
        "InstanceType": request.size,
        "MinCount": 1,
        "MaxCount": 1,
        "UserData": request.user_data,
        "ClientToken": _client_token(request),
        "TagSpecifications": [
            {"ResourceType": kind, "Tags": tags} for kind in ("instance", "volume")
        ],
        # The machine is destroyed when it powers itself off.
        "InstanceInitiatedShutdownBehavior": "terminate",
        # Answers of the metadata service do not reach containers behind a bridge.
        "MetadataOptions": {"HttpTokens": "required", "HttpPutResponseHopLimit": 1},
    }
    if options.get("subnet"):
        parameters["SubnetId"] = options["subnet"]
    if options.get("security_groups"):
        parameters["SecurityGroupIds"] = options["security_groups"].replace(" ", "").split(",")
    if options.get("key_name"):
        parameters["KeyName"] = options["key_name"]
    if options.get("instance_profile"):
        parameters["IamInstanceProfile"] = {"Name": options["instance_profile"]}
    if options.get("disk_gb"):
        disk = {"VolumeSize": int(options["disk_gb"]), "DeleteOnTermination": True}
        parameters["BlockDeviceMappings"] = [{"DeviceName": _DEFAULT_ROOT_DEVICE, "Ebs": disk}]
    if options.get("spot") == "true":
        parameters["InstanceMarketOptions"] = {
            "MarketType": "spot",
            "SpotOptions": {"SpotInstanceType": "one-time"},
        }
    return parameters


def _client_token(request: MachineRequest) -> str:
    text = f"{request.tags.get(TAG_CLUSTER_UID, '')}/{request.name}"
    return hashlib.sha256(text.encode()).hexdigest()


def _instance(found: Mapping[str, Any]) -> Instance:
    tags = {tag["Key"]: tag["Value"] for tag in found.get("Tags", [])}
    name = tags.pop("Name", "")
    return Instance(
        provider_id=found["InstanceId"],
        name=name,
        tags=tags,
        state=_STATES[found["State"]["Name"]],
        created_at=found.get("LaunchTime"),
        address=found.get("PublicIpAddress") or found.get("PrivateIpAddress") or "",
    )


def _code(err: ClientError) -> str:
    return str(err.response.get("Error", {}).get("Code", ""))


def _translated(err: ClientError | BotoCoreError) -> PersysError:
    text = f"ec2: {err}"
    if isinstance(err, NoCredentialsError | PartialCredentialsError | NoRegionError):
        return ProviderRefusedError(text)
    if not isinstance(err, ClientError):
        return ProviderUnavailableError(text)
    answer = err.response.get("ResponseMetadata", {})
    code, status = _code(err), answer.get("HTTPStatusCode", 0)
    if code in _THROTTLED or status == 429:
        after = answer.get("HTTPHeaders", {}).get("retry-after", "")
        seconds = int(after) if after.isdecimal() else 0
        return ProviderThrottledError(text, retry_after=retry_after(seconds, RETRY_AFTER))
    if code in _NO_CAPACITY:
        return ProviderThrottledError(text, retry_after=NO_CAPACITY_RETRY_AFTER)
    if code in _UNKNOWN or status >= _SERVER_ERROR or not status:
        return ProviderUnavailableError(text)
    return ProviderRefusedError(text)
