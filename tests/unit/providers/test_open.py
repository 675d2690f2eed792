"""Opening the provider of a pool: options, and libraries that are not installed."""

import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from persys.errors import InvalidError, SettingsError
from persys.model.nodepool import MachineSize, NodePool, PoolId
from persys.model.placement import Resources
from persys.providers.ec2 import Ec2Provider
from persys.providers.exec import ExecProvider
from persys.providers.libcloud import LibcloudProvider
from persys.providers.open import open_provider
from persys.providers.port import Provider

POOL = NodePool(
    PoolId("p"),
    "ec2",
    (MachineSize("small", Resources(1000, 1024, 10), 0.1),),
    max_machines=3,
    spend_per_hour_max=1.0,
)


async def test_each_provider_is_opened_by_its_name(tmp_path: Path) -> None:
    opened: list[Provider] = [
        open_provider(POOL, {}, None),
        open_provider(replace(POOL, provider="libcloud", options={"driver": "gce"}), {}, None),
        open_provider(
            replace(POOL, provider="exec", options={"programs": "lab"}),
            {},
            None,
            programs=tmp_path,
        ),
    ]

    assert [type(each) for each in opened] == [Ec2Provider, LibcloudProvider, ExecProvider]
    for each in opened:
        await each.close()


@pytest.mark.parametrize(
    ("provider", "options", "problem"),
    [
        ("azure", {}, "invalid provider 'azure': expected one of ec2, exec, libcloud, libvirt"),
        ("ec2", {"endpiont": "x"}, "options.endpiont: unknown option"),
        ("ec2", {"disk_gb": "big"}, "options.disk_gb: invalid size 'big'"),
        ("exec", {}, "options.programs: invalid name ''"),
        ("exec", {"programs": "../bin"}, "options.programs: invalid name '../bin'"),
        ("libcloud", {"driver": "nimbus"}, "invalid option driver 'nimbus': expected one of"),
        ("libvirt", {}, "needs the workloads of a cluster"),
    ],
)
def test_a_wrong_pool_is_refused(provider: str, options: dict[str, str], problem: str) -> None:
    with pytest.raises((InvalidError, SettingsError)) as caught:
        open_provider(replace(POOL, provider=provider, options=options), {}, None)

    assert problem in str(caught.value)


@pytest.mark.parametrize(("provider", "library"), [("ec2", "boto3"), ("libcloud", "libcloud")])
def test_a_missing_library_is_reported_with_its_extra(provider: str, library: str) -> None:
    script = f"""
import sys
sys.modules["{library}"] = None
from persys.errors import SettingsError
from persys.model.nodepool import NodePool
from persys.providers.open import open_provider
pool = NodePool("p", "{provider}", (), max_machines=1, spend_per_hour_max=1)
try:
    open_provider(pool, {{}}, None)
except SettingsError as err:
    print(err)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )

    assert f"pip install 'persys[{provider}]'" in done.stdout
