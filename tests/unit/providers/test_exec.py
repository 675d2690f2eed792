"""The provider `exec`: programs, records, exit codes and limits."""

import json
import stat
from datetime import timedelta
from pathlib import Path

import pytest

from persys.errors import ProviderRefusedError, ProviderThrottledError, ProviderUnavailableError
from persys.providers.exec import ExecProvider
from persys.providers.port import InstanceState, MachineRequest

TAGS = {"persys-pool": "p", "persys-machine": "c-p-1"}
REQUEST = MachineRequest("c-p-1", TAGS, "small", "debian", "here", "#cloud-config\n")
CREATE = """
cat > {here}/asked
echo x >> {here}/calls
echo '{{"provider_id": "i-1", "address": "10.0.0.1"}}'
"""
DESTROY = "cat >> {here}/destroyed; echo >> {here}/destroyed"


def programs(here: Path, **scripts: str) -> ExecProvider:
    for name, script in scripts.items():
        path = here / name
        path.write_text(f"#!/bin/sh\n{script.format(here=here)}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return ExecProvider(here, credentials={"TOKEN": "s3"}, deadline_seconds=30)


async def test_a_machine_is_created_listed_and_destroyed(tmp_path: Path) -> None:
    provider = programs(tmp_path, create=CREATE, destroy=DESTROY)

    await provider.check()
    created = await provider.create(REQUEST)
    listed = await provider.instances({"persys-pool": "p"})
    await provider.destroy(created.provider_id)

    assert listed == [created]
    assert (created.name, created.state, created.address) == (
        "c-p-1",
        InstanceState.RUNNING,
        "10.0.0.1",
    )
    assert json.loads((tmp_path / "asked").read_text())["user_data"] == "#cloud-config\n"
    assert json.loads((tmp_path / "destroyed").read_text()) == {
        "provider_id": "i-1",
        "name": "c-p-1",
        "credentials": {"TOKEN": "s3"},
    }
    assert await provider.instances({}) == []


async def test_a_repeated_create_does_not_run_the_program_again(tmp_path: Path) -> None:
    provider = programs(tmp_path, create=CREATE, destroy=DESTROY)

    first = await provider.create(REQUEST)
    second = await programs(tmp_path).create(REQUEST)  # after a restart

    assert first == second
    assert (tmp_path / "calls").read_text() == "x\n"


async def test_a_machine_with_an_unknown_outcome_is_listed_and_can_be_destroyed(
    tmp_path: Path,
) -> None:
    provider = programs(tmp_path, create="exit 1", destroy=DESTROY)

    with pytest.raises(ProviderUnavailableError, match="exited with code 1"):
        await provider.create(REQUEST)
    [found] = await provider.instances(TAGS)
    await provider.destroy(found.provider_id)

    assert (found.name, found.state) == ("c-p-1", InstanceState.PENDING)
    destroyed = json.loads((tmp_path / "destroyed").read_text())
    assert (destroyed["provider_id"], destroyed["name"]) == ("", "c-p-1")


async def test_create_is_repeated_after_an_unknown_outcome(tmp_path: Path) -> None:
    provider = programs(tmp_path, create="exit 1", destroy=DESTROY)
    with pytest.raises(ProviderUnavailableError):
        await provider.create(REQUEST)

    created = await programs(tmp_path, create=CREATE).create(REQUEST)

    assert created.state == InstanceState.RUNNING
    assert await provider.instances(TAGS) == [created]


@pytest.mark.parametrize("code", [75, 77])
async def test_a_refused_create_leaves_no_record(tmp_path: Path, code: int) -> None:
    provider = programs(tmp_path, create=f"exit {code}", destroy=DESTROY)

    with pytest.raises((ProviderRefusedError, ProviderThrottledError)):
        await provider.create(REQUEST)

    assert await provider.instances({}) == []


async def test_a_refused_create_after_an_unknown_outcome_keeps_the_record(tmp_path: Path) -> None:
    provider = programs(tmp_path, create="exit 1", destroy=DESTROY)
    with pytest.raises(ProviderUnavailableError):
        await provider.create(REQUEST)

    with pytest.raises(ProviderRefusedError):
        await programs(tmp_path, create="exit 77").create(REQUEST)

    assert [found.name for found in await provider.instances({})] == ["c-p-1"]


async def test_with_a_list_program_its_list_decides(tmp_path: Path) -> None:
    listed = json.dumps(
        {"instances": [{"provider_id": "i-9", "name": "c-p-1", "tags": TAGS, "state": "stopped"}]}
    )
    (tmp_path / "list.json").write_text(listed)
    programs(tmp_path, list="cat {here}/list.json")
    provider = programs(tmp_path, create="exit 1", destroy=DESTROY)

    found = await provider.create(REQUEST)
    others = await provider.instances({"persys-pool": "q"})
    await provider.destroy("i-9")

    assert (found.provider_id, found.state) == ("i-9", InstanceState.STOPPED)
    assert others == []
    assert json.loads((tmp_path / "destroyed").read_text())["provider_id"] == "i-9"


@pytest.mark.parametrize(
    ("asked", "expected"), [("90", 90), ("1e300", 3600), ("-5", 30), ("null", 30), ("x", 30)]
)
async def test_throttling_names_the_time_to_wait(tmp_path: Path, asked: str, expected: int) -> None:
    script = f"""echo '{{{{"retry_after_seconds": {asked}}}}}'; echo slow down >&2; exit 75"""
    provider = programs(tmp_path, create=script, destroy=DESTROY)

    with pytest.raises(ProviderThrottledError, match="slow down") as caught:
        await provider.create(REQUEST)

    assert caught.value.retry_after == timedelta(seconds=expected)


@pytest.mark.parametrize("output", ["nonsense", "{{}}", '{{"provider_id": 3}}'])
async def test_an_invalid_output_is_an_unknown_outcome(tmp_path: Path, output: str) -> None:
    provider = programs(tmp_path, create=f"echo '{output}'", destroy=DESTROY)

    with pytest.raises(ProviderUnavailableError, match="invalid output"):
        await provider.create(REQUEST)

    assert len(await provider.instances({})) == 1


async def test_a_program_that_does_not_exit_is_killed(tmp_path: Path) -> None:
    programs(tmp_path, create="sleep 300", destroy=DESTROY)
    provider = ExecProvider(tmp_path, credentials={}, deadline_seconds=0.5)

    with pytest.raises(ProviderUnavailableError, match=r"did not exit within 0\.5 s"):
        await provider.create(REQUEST)


async def test_credentials_are_input_of_programs_and_not_their_environment(
    tmp_path: Path,
) -> None:
    script = 'env > {here}/env; cat > {here}/asked; echo "{{\\"provider_id\\": \\"1\\"}}"'
    provider = programs(tmp_path, create=script, destroy=DESTROY)

    await provider.create(REQUEST)

    names = {line.partition("=")[0] for line in (tmp_path / "env").read_text().splitlines()}
    assert names <= {"PATH", "PWD", "_", "SHLVL", "OLDPWD"}
    assert json.loads((tmp_path / "asked").read_text())["credentials"] == {"TOKEN": "s3"}


async def test_a_missing_program_is_refused_by_the_check(tmp_path: Path) -> None:
    provider = programs(tmp_path, create=CREATE)

    with pytest.raises(ProviderRefusedError, match=r"invalid program '.*destroy'"):
        await provider.check()


async def test_an_unreadable_record_is_not_an_absent_machine(tmp_path: Path) -> None:
    provider = programs(tmp_path, create=CREATE, destroy=DESTROY)
    await provider.create(REQUEST)
    (tmp_path / "records" / "c-p-1.json").write_text("{")

    with pytest.raises(ProviderUnavailableError, match="cannot be read"):
        await provider.instances({})
