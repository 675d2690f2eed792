"""The provider `libcloud`, with the mock transports of Apache Libcloud."""

import json
import sys
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from importlib import import_module
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any, ClassVar

import libcloud.test
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from libcloud.compute.drivers.digitalocean import DigitalOcean_v2_NodeDriver
from libcloud.test import MockHttp
from libcloud.test.file_fixtures import ComputeFileFixtures

from persys.errors import ProviderRefusedError, ProviderThrottledError, ProviderUnavailableError
from persys.infra.tls.keys import key_pem
from persys.providers.libcloud import CLOUDS, LibcloudProvider
from persys.providers.port import InstanceState, MachineRequest
from persys.providers.thread_calls import ThreadCalls

POOL_TAGS = {"persys-cluster-uid": "u-1", "persys-pool": "burst"}
REQUEST = MachineRequest(
    name="home-burst-1",
    tags={**POOL_TAGS, "persys-machine": "1"},
    size="s-1vcpu-1gb",
    image="debian-12-x64",
    region="ams3",
    user_data="#cloud-config\n",
)

FIXTURES = ComputeFileFixtures("digitalocean_v2")


class Droplets(MockHttp):
    """The droplets of an account. `fails` maps a method to a status and headers."""

    stored: ClassVar[dict[int, dict[str, Any]]] = {}
    fails: ClassVar[dict[str, tuple[int, dict[str, str]]]] = {}

    def _v2_droplets(self, method: str, url: str, body: str, headers: object) -> Any:
        if method in self.fails:
            status, given = self.fails[method]
            return status, json.dumps({"id": "error", "message": "refused"}), given, "Error"
        if method == "GET":
            droplets = list(self.stored.values())
            content = {"droplets": droplets, "links": {}, "meta": {"total": len(droplets)}}
            return 200, json.dumps(content), {}, "OK"
        asked = json.loads(body)
        droplet = {
            "id": len(self.stored) + 7,
            "name": asked["name"],
            "status": "new",
            "tags": asked["tags"],
            "user_data": asked["user_data"],
            "asked": asked,
            "networks": {"v4": [{"type": "public", "ip_address": "192.0.2.7"}], "v6": []},
            "created_at": "2026-01-02T03:04:05Z",
            "size_slug": asked["size"],
            "size": json.loads(FIXTURES.load("list_sizes.json"))["sizes"][0],
            "image": json.loads(FIXTURES.load("list_images.json"))["images"][0],
            "region": {"slug": asked["region"]},
        }
        self.stored[droplet["id"]] = droplet
        return 202, json.dumps({"droplet": {**droplet, "tags": []}}), {}, "Accepted"

    def _v2_droplets_7(self, method: str, url: str, body: str, headers: object) -> Any:
        assert method == "DELETE"
        del self.stored[7]
        return 204, "", {}, "No Content"


@pytest.fixture
async def droplets(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[LibcloudProvider]:
    monkeypatch.setattr(DigitalOcean_v2_NodeDriver.connectionCls, "conn_class", Droplets)
    monkeypatch.setattr(Droplets, "stored", {})
    monkeypatch.setattr(Droplets, "fails", {})
    provider = LibcloudProvider(
        options={"driver": "digitalocean"},
        credentials={"key": "t"},
        threads=ThreadCalls("libcloud", threads_max=1),
    )
    yield provider
    await provider.close()


async def test_a_droplet_is_created_with_tags_and_user_data(droplets: LibcloudProvider) -> None:
    created = await droplets.create(REQUEST)

    asked = Droplets.stored[7]["asked"]
    assert created.provider_id == "7"
    assert (created.state, created.address) == (InstanceState.PENDING, "192.0.2.7")
    assert created.tags == REQUEST.tags
    assert asked["tags"] == ["persys-cluster-uid:u-1", "persys-pool:burst", "persys-machine:1"]
    assert (asked["user_data"], asked["size"], asked["image"], asked["region"]) == (
        "#cloud-config\n",
        "s-1vcpu-1gb",
        "debian-12-x64",
        "ams3",
    )


async def test_droplets_are_found_by_their_tags(droplets: LibcloudProvider) -> None:
    await droplets.create(REQUEST)
    Droplets.stored[99] = {**Droplets.stored[7], "id": 99, "tags": ["persys-pool:other"]}

    [found] = await droplets.instances(POOL_TAGS)

    assert (found.provider_id, found.name, found.tags) == ("7", "home-burst-1", REQUEST.tags)
    assert found.created_at is not None


async def test_a_repeated_create_returns_the_droplet(droplets: LibcloudProvider) -> None:
    await droplets.create(REQUEST)
    again = await droplets.create(REQUEST)

    assert again.provider_id == "7"
    assert len(Droplets.stored) == 1


async def test_a_droplet_is_destroyed_once(droplets: LibcloudProvider) -> None:
    await droplets.create(REQUEST)

    await droplets.destroy("7")
    await droplets.destroy("7")

    assert Droplets.stored == {}


@pytest.mark.parametrize(
    ("method", "status", "headers", "expected"),
    [
        ("GET", 429, {"retry-after": "17"}, ProviderThrottledError),
        ("POST", 429, {}, ProviderThrottledError),
        ("GET", 503, {}, ProviderUnavailableError),
        ("POST", 500, {}, ProviderUnavailableError),
        ("POST", 422, {}, ProviderRefusedError),
        ("GET", 401, {}, ProviderRefusedError),
    ],
)
async def test_errors_are_sorted_by_what_can_be_done(
    droplets: LibcloudProvider,
    method: str,
    status: int,
    headers: dict[str, str],
    expected: type[Exception],
) -> None:
    Droplets.fails[method] = status, headers

    with pytest.raises(expected) as caught:
        await droplets.create(REQUEST)

    assert Droplets.stored == {}
    if isinstance(caught.value, ProviderThrottledError) and headers:
        assert caught.value.retry_after == timedelta(seconds=17)


async def test_credentials_without_a_key_are_refused() -> None:
    provider = LibcloudProvider(
        options={"driver": "digitalocean"},
        credentials={},
        threads=ThreadCalls("libcloud", threads_max=1),
    )

    with pytest.raises(ProviderRefusedError, match="no value named 'key'"):
        await provider.check()

    await provider.close()


@pytest.fixture(scope="module")
def test_secrets() -> Iterator[Any]:
    """The credentials of libcloud's own tests, which its package contains as a template."""
    path = Path(libcloud.test.__file__).parent / "secrets.py-dist"
    loader = SourceFileLoader("libcloud.test.secrets", str(path))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    sys.modules[loader.name] = module
    yield module
    del sys.modules[loader.name]


@pytest.fixture
async def gce(
    test_secrets: Any, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[LibcloudProvider]:
    google: Any = import_module("libcloud.test.common.test_google")
    test_gce: Any = import_module("libcloud.test.compute.test_gce")
    monkeypatch.setattr(test_gce.GCENodeDriver.connectionCls, "conn_class", test_gce.GCEMockHttp)
    monkeypatch.setattr(test_gce.GoogleBaseAuthConnection, "conn_class", google.GoogleAuthMockHttp)
    monkeypatch.setattr(test_gce.GCEMockHttp, "test", google.GoogleTestCase())
    monkeypatch.setattr(test_gce.GCEMockHttp, "type", None)
    key = key_pem(rsa.generate_private_key(public_exponent=65537, key_size=2048)).decode()
    provider = LibcloudProvider(
        options={
            "driver": "gce",
            "driver.project": test_secrets.GCE_KEYWORD_PARAMS["project"],
            "driver.datacenter": "us-central1-a",
        },
        credentials={"key": test_secrets.GCE_PARAMS[0], "secret": key},
        threads=ThreadCalls("libcloud", threads_max=1),
    )
    yield provider
    await provider.close()


async def test_nodes_of_google_compute_engine_are_listed_with_labels(
    gce: LibcloudProvider,
) -> None:
    found = await gce.instances({})

    assert found
    assert all(each.provider_id and each.name for each in found)
    assert {each.state for each in found} <= set(InstanceState)


async def test_openstack_passes_tags_as_metadata() -> None:
    arguments = CLOUDS["openstack"].create(None, REQUEST)

    assert arguments["ex_metadata"] == REQUEST.tags
    assert arguments["ex_userdata"] == REQUEST.user_data
    assert (arguments["size"].id, arguments["image"].id) == (REQUEST.size, REQUEST.image)
