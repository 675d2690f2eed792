"""API tokens of users: who may create which, and when one is valid."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from msgspec.structs import replace

from persys.core.auth.permissions import ROLES, permissions_of
from persys.core.auth.tokens import (
    COUNT_MAX,
    LIFE,
    TRIMMED_MAX,
    NewToken,
    TokenFault,
    TokenSecret,
    allowed,
    fault,
    holder,
    make,
    may_impersonate,
    parse,
    recheck_token,
)
from persys.errors import DeniedError, InvalidError, RefusedError
from persys.model.identity import Caller, Identity, Permission, Role, Token

NOW = datetime(2026, 1, 1, tzinfo=UTC)
DRAWN = TokenSecret("ab" * 8, "cd" * 32)


def a_caller(
    role: Role = Role.ADMIN, *deeds: Permission, token_id: str = "", ends_in: timedelta = LIFE
) -> Caller:
    may = frozenset(deeds) or permissions_of(role)
    return Caller(Identity(role, "me"), may, NOW + ends_in, "1", token_id)


def a_token(
    role: str = "operator",
    *deeds: str,
    name: str = "ops",
    ttl: timedelta | None = None,
    by: Caller | None = None,
) -> Token:
    request = NewToken(name, role, deeds, ttl)
    return make(request, DRAWN, by or a_caller(), [], now=NOW)[0]


def some(count: int, *, over: bool) -> list[Token]:
    expires_at = NOW - LIFE if over else NOW + LIFE
    return [
        Token(f"{number:x}", "x", Role.VIEWER, frozenset(), "", NOW, "", expires_at)
        for number in range(count)
    ]


def test_a_token_is_valid_for_thirty_days_by_default() -> None:
    assert a_token().expires_at == NOW + timedelta(days=30)
    assert a_token(ttl=timedelta(minutes=1)).expires_at == NOW + timedelta(minutes=1)


@pytest.mark.parametrize("ttl", [timedelta(), timedelta(seconds=59), timedelta(days=366)])
def test_a_life_out_of_bounds_is_refused(ttl: timedelta) -> None:
    with pytest.raises(InvalidError, match=r"^ttl: expected 1m to 365d"):
        a_token(ttl=ttl)


@pytest.mark.parametrize("role", ["agent", "scheduler", "gateway", "ca", "", "king"])
def test_only_user_roles_have_tokens(role: str) -> None:
    with pytest.raises(InvalidError, match=r"^role: .*expected one of admin, operator, viewer"):
        a_token(role)


@pytest.mark.parametrize("name", ["", "a b", "-x", "x" * 129, "a/b"])
def test_a_token_name_must_be_a_valid_certificate_name(name: str) -> None:
    with pytest.raises(InvalidError, match=r"^name: "):
        a_token(name=name)


def test_a_permission_beyond_the_role_is_named() -> None:
    with pytest.raises(InvalidError, match=r"^deeds: role viewer does not allow 'exec'"):
        a_token("viewer", "read", "exec")
    with pytest.raises(InvalidError, match=r"does not allow 'dance'"):
        a_token("admin", "dance")


def test_a_scope_limits_a_token_to_its_permissions_and_public_calls() -> None:
    assert allowed(a_token("operator", "logs")) == {Permission.LOGS, Permission.ANYONE}
    assert allowed(a_token("operator")) == ROLES[Role.OPERATOR]


def test_a_caller_cannot_grant_permissions_it_does_not_have() -> None:
    narrow = a_caller(Role.ADMIN, Permission.TOKENS, Permission.READ, Permission.ANYONE)
    with pytest.raises(DeniedError, match=r"that you do not have: logs$"):
        a_token("viewer", by=narrow)
    assert allowed(a_token("viewer", "read", by=narrow)) == {Permission.READ, Permission.ANYONE}


def test_a_token_made_with_a_token_ends_with_it() -> None:
    by = a_caller(token_id="t", ends_in=timedelta(hours=1))
    assert a_token(by=by).expires_at == NOW + timedelta(hours=1)
    assert a_token(by=by).created_by == "admin/me by token t"
    by_certificate = a_caller(ends_in=timedelta(hours=1))
    assert a_token(by=by_certificate).expires_at == NOW + LIFE


def test_the_number_of_tokens_is_limited_and_expired_ones_do_not_count() -> None:
    request = NewToken("ops", "operator")
    with pytest.raises(RefusedError, match="revoke unused"):
        make(request, DRAWN, a_caller(), some(COUNT_MAX, over=False), now=NOW)
    _, gone = make(request, DRAWN, a_caller(), some(COUNT_MAX, over=True), now=NOW)
    assert len(gone) == TRIMMED_MAX


def test_the_stored_token_does_not_reveal_the_secret() -> None:
    assert DRAWN.secret not in repr(a_token())
    assert DRAWN.secret not in repr(DRAWN)


def test_a_token_is_read_back_from_its_text() -> None:
    assert parse(DRAWN.text) == DRAWN
    for text in ("", "psk_", DRAWN.text[:-1], DRAWN.text + "0", DRAWN.text.upper()):
        assert parse(text) is None


def test_only_the_right_secret_shows_that_a_token_has_expired() -> None:
    token = a_token()
    later = token.expires_at
    guess = TokenSecret(DRAWN.id, "00" * 32)
    assert fault(token, DRAWN, NOW, none_revoked) is None
    assert fault(token, DRAWN, later, none_revoked) is TokenFault.EXPIRED
    assert fault(token, guess, later, none_revoked) is TokenFault.UNKNOWN
    assert fault(None, DRAWN, NOW, none_revoked) is TokenFault.UNKNOWN


def test_a_token_is_invalid_once_the_certificate_that_created_it_is_revoked() -> None:
    token = a_token()
    assert token.created_serial
    assert (
        fault(token, DRAWN, NOW, {token.created_serial}.__contains__) is TokenFault.CREATOR_REVOKED
    )
    assert (
        recheck_token(token, NOW, {token.created_serial}.__contains__) is TokenFault.CREATOR_REVOKED
    )


def test_a_token_made_with_a_token_depends_on_the_same_certificate() -> None:
    first = a_token()
    by = holder(first, "of a gateway")
    second, _ = make(NewToken("ci", "viewer"), DRAWN, by, [first], now=NOW)
    assert second.created_serial == first.created_serial


def none_revoked(_serial: str) -> bool:
    return False


def test_a_token_gives_the_caller_its_identity_until_it_expires() -> None:
    token = a_token("viewer", "read")
    found = holder(token, "7")
    assert (found.identity, found.expires_at) == (Identity(Role.VIEWER, "ops"), token.expires_at)
    assert found.deeds == {Permission.READ, Permission.ANYONE}
    assert found.token_id == token.id


def test_a_scheduler_forwards_any_identity_and_a_gateway_only_users() -> None:
    for role in Role:
        whom = Identity(role, "x")
        assert may_impersonate(whom, Role.SCHEDULER)
        is_person = role in (Role.ADMIN, Role.OPERATOR, Role.VIEWER)
        assert may_impersonate(whom, Role.GATEWAY) is is_person
        assert not may_impersonate(whom, Role.ADMIN)


def a_prefix_token(prefix: str = "home--", *deeds: str, by: Caller | None = None) -> Token:
    request = NewToken("home", "operator", deeds, None, prefix)
    return make(request, DRAWN, by or a_caller(), [], now=NOW)[0]


def test_the_holder_of_a_prefix_token_has_its_prefix_and_its_permissions() -> None:
    everything, few = a_prefix_token(), a_prefix_token("home--", "read", "logs")

    assert holder(everything, "1").prefix == "home--"
    assert holder(everything, "1").deeds == permissions_of(Role.OPERATOR)
    assert holder(few, "1").deeds == {Permission.READ, Permission.LOGS, Permission.ANYONE}
    assert holder(a_token(), "1").prefix == ""


def test_an_older_scheduler_grants_nothing_to_a_prefix_token() -> None:
    stored = a_prefix_token("home--", "read")

    without_prefix = replace(stored, prefix="", scoped_deeds=frozenset())

    assert allowed(without_prefix) == {Permission.ANYONE}


def test_a_token_of_an_older_version_has_no_prefix() -> None:
    older = {
        key: value
        for key, value in msgspec.to_builtins(a_token()).items()
        if key not in ("prefix", "scoped_deeds")
    }

    read = msgspec.convert(older, Token)

    assert (read.prefix, allowed(read)) == ("", permissions_of(Role.OPERATOR))


def test_a_prefix_token_grants_no_permission_that_its_creator_lacks() -> None:
    viewer = a_caller(Role.ADMIN, Permission.TOKENS, Permission.READ)

    with pytest.raises(DeniedError, match="permissions that you do not have"):
        a_prefix_token(by=viewer)


@pytest.mark.parametrize("prefix", ["", "east--"])
def test_the_holder_of_a_prefix_cannot_create_a_token_without_it(prefix: str) -> None:
    limited = replace(a_caller(), prefix="home--")

    with pytest.raises(DeniedError, match="prefix of your own token"):
        a_prefix_token(prefix, by=limited)
    assert a_prefix_token("home--", by=limited).prefix == "home--"


@pytest.mark.parametrize("prefix", ["home", "home-", "a--b--", "Home--", "--"])
def test_an_invalid_prefix_is_named(prefix: str) -> None:
    with pytest.raises(InvalidError, match=rf"^prefix: invalid prefix '{prefix}': expected the id"):
        a_prefix_token(prefix)
