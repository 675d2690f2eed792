"""persysctl token, against a real scheduler and a real CA."""

import json
from pathlib import Path

import pytest

from shells.cli.commands.conftest import Ctl


@pytest.fixture
def ctl(secure_ctl: Ctl) -> Ctl:
    return secure_ctl


async def test_a_token_is_created_used_and_revoked(ctl: Ctl) -> None:
    created = await ctl(
        *("token", "create", "--role", "operator", "--name", "ann", "--allow", "read,logs"),
        *("--ttl", "7d"),
    )
    assert created.code == 0, created.err
    secret = created.out.strip()
    assert secret.startswith("psk_")
    assert "shown only once" in created.err
    assert "with the permissions logs, read. " in created.err
    token_id = secret.split("_")[1]

    who = await ctl("cluster", "whoami", PERSYS_TOKEN=secret)
    assert "operator/ann" in who.out
    assert f"Token:         {token_id}, until" in who.out
    refused = await ctl("workload", "delete", "web", PERSYS_TOKEN=secret)
    assert refused.code == 1
    assert "operator/ann may not call DeleteWorkload" in refused.err

    assert (await ctl("token", "revoke", token_id)).out == f"token {token_id} is revoked\n"
    over = await ctl("node", "list", PERSYS_TOKEN=secret)
    assert (over.code, "has been revoked" in over.err) == (1, True)
    again = await ctl("token", "revoke", token_id)
    assert (again.code, "not found" in again.err) == (1, True)


async def test_a_token_with_a_prefix_shows_it_and_is_limited_to_it(ctl: Ctl) -> None:
    create = ("token", "create", "--role", "operator", "--name", "home", "--prefix")
    invalid = await ctl(*create, "home")
    assert (invalid.code, "invalid prefix 'home'" in invalid.err) == (1, True)
    created = await ctl(*create, "home--")
    assert created.code == 0, created.err
    assert "for workloads and secrets with the prefix home--" in created.err
    secret = created.out.strip()

    who = await ctl("cluster", "whoami", PERSYS_TOKEN=secret)
    refused = await ctl("workload", "delete", "web", PERSYS_TOKEN=secret)
    listed = await ctl("workload", "list", PERSYS_TOKEN=secret)
    tokens = json.loads((await ctl("token", "list", "--kind", "person", "-o", "json")).out)

    assert "Prefix:        home--" in who.out
    assert (refused.code, "names that begin with 'home--'" in refused.err) == (1, True)
    assert listed.code == 0
    assert [one["prefix"] for one in tokens] == ["home--"]
    joins = await ctl("token", "create", "--role", "agent", "--name", "n1", "--prefix", "home--")
    assert (joins.code, "--prefix needs a role of users" in joins.err) == (2, True)


async def test_a_list_shows_both_kinds(ctl: Ctl) -> None:
    assert (await ctl("token", "create", "--role", "viewer", "--name", "bob")).code == 0
    assert (await ctl("token", "create", "--role", "agent", "--node", "n1")).code == 0

    table = await ctl("token", "list")
    assert table.code == 0, table.err
    rows = [line.split() for line in table.out.splitlines()]
    assert rows[0] == ["ID", "KIND", "IDENTITY", "STATE", "EXPIRES", "PERMISSIONS", "PREFIX", "BY"]
    assert {tuple(row[1:4]) for row in rows[1:]} == {
        ("person", "viewer/bob", "Valid"),
        ("join", "agent/n1", "Unused"),
    }
    listed = json.loads((await ctl("token", "list", "-o", "json")).out)
    assert {one["kind"]: one["name"] for one in listed} == {"person": "bob", "join": "n1"}
    only = await ctl("token", "list", "--kind", "join", "-o", "name")
    assert only.out.split() == [one["id"] for one in listed if one["kind"] == "join"]


async def test_a_server_that_does_not_answer_is_reported_and_the_rest_is_listed(
    ctl: Ctl, unused_address: str
) -> None:
    assert (await ctl("token", "create", "--role", "viewer", "--name", "bob")).code == 0
    unavailable = await ctl("token", "list", PERSYS_CA_ADDR=unused_address)
    assert (unavailable.code, "viewer/bob" in unavailable.out) == (4, True)
    assert "error: tokens of kind join: " in unavailable.err
    unnamed = await ctl("token", "list", PERSYS_CA_ADDR="")
    assert (unnamed.code, "viewer/bob" in unnamed.out) == (0, True)
    assert "note: join tokens are not listed" in unnamed.err


async def test_a_token_is_read_from_the_context(ctl: Ctl, home: Path, tmp_path: Path) -> None:
    created = await ctl("token", "create", "--role", "viewer", "--name", "bob", "-o", "json")
    secret = json.loads(created.out)["secret"]
    (home / ".persys").mkdir(parents=True, mode=0o700)
    file = home / ".persys" / "config.yaml"
    file.write_text(f"token: {secret}\n")
    assert "viewer/bob" in (await ctl("cluster", "whoami", "-o", "name")).out
    (tmp_path / "token").write_text(f"{secret}\n")
    file.write_text(f"token_file: {tmp_path / 'token'}\n")
    assert "viewer/bob" in (await ctl("cluster", "whoami", "-o", "name")).out


async def test_an_invalid_token_request_is_a_usage_error(ctl: Ctl) -> None:
    joins = await ctl("token", "create", "--role", "agent", "--node", "n1", "--allow", "read")
    assert (joins.code, "--allow needs a role of users" in joins.err) == (2, True)
    person = await ctl("token", "create", "--role", "viewer", "--name", "x", "--host", "h")
    assert (person.code, "--host needs a role that joins" in person.err) == (2, True)
    more = await ctl("token", "create", "--role", "viewer", "--name", "x", "--allow", "exec")
    assert (more.code, "role viewer does not allow 'exec'" in more.err) == (1, True)
