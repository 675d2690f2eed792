"""The example programs of the provider `exec`, with a stand-in for the command line of the cloud."""

import sys
from pathlib import Path

import pytest

from persys.errors import ProviderRefusedError, ProviderThrottledError, ProviderUnavailableError
from persys.providers.exec import ExecProvider
from persys.providers.port import InstanceState, MachineRequest

EXAMPLE = Path(__file__).parents[3] / "examples" / "providers" / "hetzner"
TAGS = {"persys-pool": "burst", "persys-machine": "home-burst-1"}
REQUEST = MachineRequest("home-burst-1", TAGS, "cx22", "debian-12", "fsn1", "#cloud-config\n")
# Stores servers in a file. A file `fail` has the message with which a command fails.
HCLOUD = """#!{python}
import json, os, sys
from pathlib import Path
here = Path({here!r})
words = sys.argv[2:]
problem = here / f"fail-{{words[0]}}"
assert os.environ["HCLOUD_TOKEN"] == "t0ken"
if problem.exists():
    sys.exit(f"hcloud: {{problem.read_text()}}")
stored = here / "servers.json"
servers = json.loads(stored.read_text()) if stored.exists() else []
value = lambda flag: words[words.index(flag) + 1]
if words[0] == "create":
    labels = [words[i + 1] for i, word in enumerate(words) if word == "--label"]
    server = {{"id": 42, "name": value("--name"), "status": "initializing",
        "labels": dict(label.split("=") for label in labels), "created": "2026-01-02T03:04:05Z",
        "public_net": {{"ipv4": {{"ip": "192.0.2.1"}}}},
        "user_data": Path(value("--user-data-from-file")).read_text()}}
    stored.write_text(json.dumps([*servers, server]))
    print(json.dumps({{"server": server}}))
elif words[0] == "list":
    wanted = [pair.split("=") for pair in value("-l").split(",") if pair]
    print(json.dumps([s for s in servers if all(s["labels"].get(k) == v for k, v in wanted)]))
else:
    stored.write_text(json.dumps([s for s in servers if str(s["id"]) != words[1]]))
"""


@pytest.fixture
def provider(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ExecProvider:
    command = tmp_path / "hcloud"
    command.write_text(HCLOUD.format(python=sys.executable, here=str(tmp_path)))
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{Path(sys.executable).parent}", prepend=":")
    return ExecProvider(EXAMPLE, credentials={"HCLOUD_TOKEN": "t0ken"})


async def test_a_server_is_created_found_and_destroyed(provider: ExecProvider) -> None:
    await provider.check()
    created = await provider.create(REQUEST)
    again = await provider.create(REQUEST)
    [listed] = await provider.instances({"persys-pool": "burst"})
    others = await provider.instances({"persys-pool": "other"})
    await provider.destroy(created.provider_id)
    await provider.destroy(created.provider_id)

    assert created == again == listed
    assert (created.provider_id, created.state) == ("42", InstanceState.PENDING)
    assert (created.tags, created.address) == (TAGS, "192.0.2.1")
    assert others == await provider.instances({}) == []


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("rate limit (rate_limit_exceeded)", ProviderThrottledError),
        ("unable to authenticate (unauthorized)", ProviderRefusedError),
        ("connection reset by peer", ProviderUnavailableError),
    ],
)
async def test_a_failure_has_its_exit_code(
    provider: ExecProvider, tmp_path: Path, message: str, expected: type[Exception]
) -> None:
    (tmp_path / "fail-create").write_text(message)

    with pytest.raises(expected):
        await provider.create(REQUEST)
