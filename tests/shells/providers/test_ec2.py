"""The provider `ec2` against a moto server, through a proxy that throttles, refuses and loses answers."""

import base64
import threading
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar
from urllib.parse import parse_qs

import boto3
import pytest
import yaml
from moto.server import ThreadedMotoServer
from msgspec.structs import replace

from persys.errors import ProviderRefusedError, ProviderThrottledError, ProviderUnavailableError
from persys.infra.clock import SystemClock
from persys.model.nodepool import (
    TAG_CLUSTER,
    TAG_CLUSTER_UID,
    TAG_MACHINE,
    TAG_POOL,
    MachineSize,
    NodePool,
    PoolId,
)
from persys.model.placement import Resources
from persys.providers.ec2 import Ec2Provider
from persys.providers.open import open_provider
from persys.providers.port import InstanceState, MachineRequest
from persys.providers.thread_calls import ThreadCalls
from persys.providers.user_data import Boot, user_data

POOL_TAGS = {TAG_CLUSTER: "home", TAG_CLUSTER_UID: "u-1", TAG_POOL: "burst"}
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
IMAGE = "ami-12c6146b"  # one that moto knows
ERROR = """<?xml version="1.0"?><Response><Errors><Error><Code>{code}</Code><Message>{code}</Message>
</Error></Errors><RequestID>r</RequestID></Response>"""

NO_INSTANCES = b"""<?xml version="1.0"?><DescribeInstancesResponse><requestId>r</requestId>
<reservationSet/></DescribeInstancesResponse>"""


class Cloud:
    """A moto server behind a proxy. `answers` maps an action to an error code, LOST or NONE_YET."""

    LOST = "lost"
    NONE_YET = "none"
    statuses: ClassVar = {"RequestLimitExceeded": 503, "InternalError": 500}

    def __init__(self, moto: str) -> None:
        self.answers: dict[str, str] = {}
        self.seen: list[str] = []
        cloud = self

        class Proxy(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                action = parse_qs(body.decode())["Action"][0]
                cloud.seen.append(action)
                answer = cloud.answers.get(action, "")
                if answer == cloud.NONE_YET:
                    self._reply(200, NO_INSTANCES)
                    return
                if answer and answer != cloud.LOST:
                    self._reply(cloud.statuses.get(answer, 400), ERROR.format(code=answer).encode())
                    return
                request = urllib.request.Request(moto, body, dict(self.headers))
                try:
                    with urllib.request.urlopen(request, timeout=30) as reply:
                        status, content = reply.status, reply.read()
                except urllib.error.HTTPError as err:
                    with err:
                        status, content = err.code, err.read()
                if answer == cloud.LOST:
                    self.close_connection = True
                    return
                self._reply(status, content)

            def _reply(self, status: int, content: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                """Tests print nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
        self.endpoint = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture(scope="module")
def moto() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def cloud(moto: str) -> Iterator[Cloud]:
    reset = urllib.request.Request(f"{moto}/moto-api/reset", method="POST")
    urllib.request.urlopen(reset, timeout=30).close()
    made = Cloud(moto)
    thread = threading.Thread(target=made.server.serve_forever, args=(0.05,))
    thread.start()
    yield made
    made.server.shutdown()
    thread.join()
    made.server.server_close()


def machine(number: int, cloud: Cloud) -> MachineRequest:
    name = f"home-burst-{number}"
    boot = Boot(name, "home", ("10.0.0.1:8085",), "TOKEN", timedelta(minutes=10))
    return MachineRequest(
        name=name,
        tags={**POOL_TAGS, TAG_MACHINE: str(number)},
        size="t3.small",
        image=IMAGE,
        region="eu-west-1",
        user_data=user_data(boot),
        options={"endpoint": cloud.endpoint, "disk_gb": "20"},
    )


def opened(cloud: Cloud) -> Ec2Provider:
    return Ec2Provider(
        example=machine(0, cloud),
        credentials=CREDENTIALS,
        clock=SystemClock(),
        threads=ThreadCalls("ec2", threads_max=2),
    )


@pytest.fixture
async def provider(cloud: Cloud) -> AsyncIterator[Ec2Provider]:
    made = opened(cloud)
    yield made
    await made.close()


async def test_a_machine_is_created_with_its_tags_and_user_data(
    provider: Ec2Provider, cloud: Cloud
) -> None:
    request = machine(1, cloud)

    created = await provider.create(request)
    listed = await provider.instances(POOL_TAGS)

    assert [each.provider_id for each in listed] == [created.provider_id]
    assert listed[0].name == "home-burst-1"
    assert listed[0].tags == request.tags
    assert listed[0].state == InstanceState.RUNNING
    assert listed[0].created_at is not None
    assert stored_user_data(cloud, created.provider_id) == request.user_data


def stored_user_data(cloud: Cloud, provider_id: str) -> str:
    client = boto3.client(
        "ec2",
        region_name="eu-west-1",
        endpoint_url=cloud.endpoint,
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )
    answer = client.describe_instance_attribute(InstanceId=provider_id, Attribute="userData")
    text = base64.b64decode(answer["UserData"]["Value"]).decode()
    assert yaml.safe_load(text)["runcmd"]
    return text


async def test_a_destroyed_machine_is_not_listed(provider: Ec2Provider, cloud: Cloud) -> None:
    created = await provider.create(machine(1, cloud))

    await provider.destroy(created.provider_id)
    await provider.destroy(created.provider_id)

    assert await provider.instances(POOL_TAGS) == []


async def test_a_machine_that_does_not_exist_is_destroyed(provider: Ec2Provider) -> None:
    await provider.destroy("i-0123456789abcdef0")


async def test_after_a_crash_the_machine_is_found_by_its_tags(
    provider: Ec2Provider, cloud: Cloud
) -> None:
    created = await provider.create(machine(1, cloud))  # and the process ends here

    restarted = opened(cloud)
    found = await restarted.create(machine(1, cloud))
    await restarted.close()

    assert found.provider_id == created.provider_id
    assert cloud.seen.count("RunInstances") == 1


async def test_a_lost_answer_creates_no_second_machine(provider: Ec2Provider, cloud: Cloud) -> None:
    cloud.answers["RunInstances"] = Cloud.LOST
    with pytest.raises(ProviderUnavailableError):
        await provider.create(machine(1, cloud))

    del cloud.answers["RunInstances"]
    await provider.create(machine(1, cloud))

    # moto ignores the client token.
    assert len(await provider.instances(POOL_TAGS)) == 1


async def test_an_unanswered_list_creates_nothing(provider: Ec2Provider, cloud: Cloud) -> None:
    cloud.answers["DescribeInstances"] = "InternalError"

    with pytest.raises(ProviderUnavailableError):
        await provider.create(machine(1, cloud))

    assert "RunInstances" not in cloud.seen


@pytest.mark.parametrize("action", ["DescribeInstances", "RunInstances"])
async def test_throttling_changes_nothing(provider: Ec2Provider, cloud: Cloud, action: str) -> None:
    cloud.answers[action] = "RequestLimitExceeded"

    with pytest.raises(ProviderThrottledError) as caught:
        await provider.create(machine(1, cloud))

    cloud.answers.clear()
    assert caught.value.retry_after > timedelta(0)
    assert await provider.instances(POOL_TAGS) == []


@pytest.mark.parametrize("code", ["VcpuLimitExceeded", "UnauthorizedOperation", "AuthFailure"])
async def test_quota_and_credentials_need_a_person(
    provider: Ec2Provider, cloud: Cloud, code: str
) -> None:
    cloud.answers["RunInstances"] = code

    with pytest.raises(ProviderRefusedError, match=code):
        await provider.create(machine(1, cloud))


async def test_a_lack_of_capacity_is_temporary(provider: Ec2Provider, cloud: Cloud) -> None:
    cloud.answers["RunInstances"] = "InsufficientInstanceCapacity"

    with pytest.raises(ProviderThrottledError) as caught:
        await provider.create(machine(1, cloud))

    assert caught.value.retry_after >= timedelta(minutes=1)


async def test_a_new_machine_is_listed_before_the_cloud_lists_it(
    provider: Ec2Provider, cloud: Cloud
) -> None:
    await provider.create(machine(1, cloud))
    cloud.answers["DescribeInstances"] = Cloud.NONE_YET

    listed = await provider.instances({**POOL_TAGS, TAG_MACHINE: "1"})
    others = await provider.instances({**POOL_TAGS, TAG_MACHINE: "2"})

    assert [each.name for each in listed] == ["home-burst-1"]
    assert others == []


async def test_machines_of_another_cluster_are_not_listed(
    provider: Ec2Provider, cloud: Cloud
) -> None:
    request = machine(1, cloud)
    await provider.create(replace(request, tags={**request.tags, TAG_CLUSTER_UID: "u-2"}))

    assert await provider.instances(POOL_TAGS) == []


async def test_a_stopped_machine_is_listed_as_stopped(provider: Ec2Provider, cloud: Cloud) -> None:
    created = await provider.create(machine(1, cloud))
    client = boto3.client(
        "ec2",
        region_name="eu-west-1",
        endpoint_url=cloud.endpoint,
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )
    client.stop_instances(InstanceIds=[created.provider_id])

    [found] = await provider.instances(POOL_TAGS)

    assert found.state == InstanceState.STOPPED


async def test_the_check_is_a_dry_run(cloud: Cloud) -> None:
    pool = NodePool(
        PoolId("burst"),
        "ec2",
        (MachineSize("t3.small", Resources(2000, 2048, 20), 0.02),),
        max_machines=1,
        spend_per_hour_max=1.0,
        region="eu-west-1",
        image=IMAGE,
        options={"endpoint": cloud.endpoint},
    )
    provider = open_provider(pool, CREDENTIALS, None)

    await provider.check()
    cloud.answers["RunInstances"] = "InvalidAMIID.NotFound"
    with pytest.raises(ProviderRefusedError, match="InvalidAMIID"):
        await provider.check()

    assert await provider.instances({}) == []
    await provider.close()


async def test_a_cloud_that_does_not_respond_is_unavailable(cloud: Cloud) -> None:
    request = machine(1, cloud)
    closed = replace(request, options={"endpoint": "http://127.0.0.1:1"})
    provider = Ec2Provider(
        example=closed,
        credentials=CREDENTIALS,
        clock=SystemClock(),
        threads=ThreadCalls("ec2", threads_max=2),
    )

    with pytest.raises(ProviderUnavailableError):
        await provider.instances(POOL_TAGS)

    await provider.close()
