"""Which certificates are issued, and what a join token allows."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from persys.core.auth.enrolment import (
    FAULTS,
    HOSTS_MAX,
    JoinTokenFault,
    StoredJoinToken,
    certificate_lifetime,
    check_hosts,
    check_identity,
    check_join_token,
    check_joining_identity,
    hash_secret,
    join_token_lifetime,
)
from persys.errors import InvalidError
from persys.model.identity import NAMES, Identity, Role

NOW = datetime(2026, 1, 2, tzinfo=UTC)
DAY = timedelta(days=1)
FAR = NOW + 1000 * DAY
TOKEN = StoredJoinToken(
    id="t1",
    secret_hash=hash_secret("the secret"),
    identity=Identity(Role.AGENT, "n1"),
    created_at=NOW,
    expires_at=NOW + timedelta(hours=1),
    created_by="admin/ada",
)


@pytest.mark.parametrize("name", ["n1", "N-1.rack_2", "9"])
def test_an_agent_is_called_as_its_node(name: str) -> None:
    assert check_identity(Identity(Role.AGENT, name)).name == name


@pytest.mark.parametrize("name", ["", "a/b", "*", "a b", "n1\n", "-n", "ü", "ada@x", "n" * 254])
def test_a_name_that_no_node_can_have_is_refused(name: str) -> None:
    with pytest.raises(InvalidError):
        check_identity(Identity(Role.AGENT, name))


@pytest.mark.parametrize("name", ["", "a/b", "*.x", "ada\x00", "a" * 129])
def test_an_invalid_identity_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidError, match="name"):
        check_identity(Identity(Role.ADMIN, name))


def test_no_certificate_is_issued_for_the_role_of_the_ca() -> None:
    with pytest.raises(InvalidError, match="role"):
        check_identity(Identity(Role.CA, "ca"))


@pytest.mark.parametrize("role", [Role.ADMIN, Role.OPERATOR, Role.VIEWER, Role.CA])
def test_only_parts_of_the_cluster_join(role: Role) -> None:
    with pytest.raises(InvalidError, match="role"):
        check_joining_identity(Identity(role, "ada"))


def test_hosts_are_normalized_and_unique() -> None:
    hosts = check_hosts(["Node-1.Example.ORG", "node-1.example.org", "::0001", "10.0.0.1"])

    assert hosts == ("node-1.example.org", "::1", "10.0.0.1")


@pytest.mark.parametrize(
    "host",
    [
        "*",
        "*.example.org",
        "scheduler.persys.internal",
        "Scheduler.PERSYS.internal",
        "persys.internal",
        "a.b.persys.internal",
        "",
        ".",
        "a..b",
        "persys.internal.",
        "a b",
        "a/b",
        "10.0.0.0/8",
        "1.2.3",
        "999.1.1.1",
        "0.0.0.0",
        "224.0.0.1",
        "ü.example.org",
        "x" * 64,
        "spiffe://persys.local/admin/eve",
    ],
)
def test_a_host_that_would_say_too_much_is_refused(host: str) -> None:
    with pytest.raises(InvalidError, match="hosts"):
        check_hosts([host])


@given(st.text(max_size=40))
def test_no_spelling_leads_under_the_fixed_names(text: str) -> None:
    for host in (f"{text}.{NAMES}", f"{text}.{NAMES.upper()}", f"{text}.{NAMES}."):
        with pytest.raises(InvalidError):
            check_hosts([host])


def test_too_many_hosts_are_refused() -> None:
    assert len(check_hosts([f"h{number}" for number in range(HOSTS_MAX)])) == HOSTS_MAX
    with pytest.raises(InvalidError, match="expected at most"):
        check_hosts([f"h{number}" for number in range(HOSTS_MAX + 1)])


def test_a_token_may_say_which_hosts() -> None:
    assert check_hosts(["a"], among=["a", "b"]) == ("a",)
    with pytest.raises(InvalidError, match="c is not allowed"):
        check_hosts(["a", "c"], among=["a", "b"])


def test_a_certificate_is_valid_for_a_day_by_default() -> None:
    assert certificate_lifetime(Role.AGENT, None, issuer_ends_at=FAR, now=NOW) == DAY
    assert certificate_lifetime(Role.AGENT, 2 * DAY, issuer_ends_at=FAR, now=NOW) == 2 * DAY


def test_a_certificate_never_outlives_its_issuer() -> None:
    ends_at = NOW + timedelta(hours=3)
    assert certificate_lifetime(Role.AGENT, None, issuer_ends_at=ends_at, now=NOW) == timedelta(
        hours=3
    )


@pytest.mark.parametrize(
    ("role", "life"),
    [
        (Role.AGENT, 91 * DAY),
        (Role.ADMIN, 366 * DAY),
        (Role.AGENT, timedelta(seconds=9)),
        (Role.AGENT, timedelta(seconds=-1)),
    ],
)
def test_a_life_beyond_the_bounds_is_refused(role: Role, life: timedelta) -> None:
    with pytest.raises(InvalidError, match="ttl"):
        certificate_lifetime(role, life, issuer_ends_at=FAR, now=NOW)


def test_a_join_token_is_valid_for_an_hour_by_default_and_a_week_at_most() -> None:
    assert join_token_lifetime(None) == timedelta(hours=1)
    assert join_token_lifetime(7 * DAY) == 7 * DAY
    for life in (8 * DAY, timedelta(), -DAY):
        with pytest.raises(InvalidError, match="ttl"):
            join_token_lifetime(life)


def test_a_fresh_token_with_its_secret_is_taken() -> None:
    assert check_join_token(TOKEN, "the secret", NOW) is None


@pytest.mark.parametrize(
    ("token", "secret", "after", "fault"),
    [
        (None, "the secret", timedelta(), JoinTokenFault.UNKNOWN),
        (None, "", timedelta(), JoinTokenFault.UNKNOWN),
        (TOKEN, "another", timedelta(), JoinTokenFault.UNKNOWN),
        (TOKEN, "ünother", timedelta(), JoinTokenFault.UNKNOWN),
        (TOKEN, "the secret", timedelta(hours=1), JoinTokenFault.EXPIRED),
        (replace(TOKEN, used_at=NOW), "the secret", timedelta(), JoinTokenFault.USED),
        (replace(TOKEN, used_at=NOW), "another", timedelta(), JoinTokenFault.UNKNOWN),
        (TOKEN, "another", timedelta(hours=2), JoinTokenFault.UNKNOWN),
    ],
)
def test_a_refused_join_token_reveals_only_one_reason(
    token: StoredJoinToken | None, secret: str, after: timedelta, fault: JoinTokenFault
) -> None:
    assert check_join_token(token, secret, NOW + after) is fault


def test_every_enrolment_error_has_a_message() -> None:
    assert FAULTS.keys() == set(JoinTokenFault)
