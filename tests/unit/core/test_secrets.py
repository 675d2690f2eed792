"""References in specs, stored versions, and redaction of values."""

from datetime import UTC, datetime

import pytest

from persys.core.secrets import (
    check_name,
    parse,
    put_in,
    redacted,
    references_of,
    values_of,
    with_version,
)
from persys.errors import InvalidError
from persys.model.ids import Revision, WorkloadId
from persys.model.secret import Reference, Secret, SecretVersion, StoredReference, VaultReference
from persys.model.spec import (
    ComposeSpec,
    ContainerSpec,
    FileMount,
    Spec,
    VMSpec,
    WorkloadType,
)
from persys.model.workload import Desired, Order

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("secret://db", StoredReference("db")),
        ("secret://db.pass_word-1@12", StoredReference("db.pass_word-1", 12)),
        ("secret://vault", StoredReference("vault")),
        ("secret://vault/kv/app#password", VaultReference("kv/app", "password")),
        ("secret://vault/kv/team/app#a.b@3", VaultReference("kv/team/app", "a.b", 3)),
    ],
)
def test_a_reference_is_read(text: str, expected: Reference) -> None:
    assert parse(text, "env") == expected
    assert str(expected) == text


@pytest.mark.parametrize(
    "text",
    [
        "secret://",
        "secret://Upper",
        "secret://a b",
        "secret://a/b",
        "secret://-a",
        "secret://" + "a" * 129,
        "secret://a@",
        "secret://a@0",
        "secret://a@01",
        "secret://a@-1",
        "secret://a@x",
        "secret://a@1@2",
        "secret://a#b",
        "secret://vault/",
        "secret://vault/kv",
        "secret://vault/kv#",
        "secret://vault/#f",
        "secret://vault/kv//app#f",
        "secret://vault/../app#f",
        "secret://vault/kv/app#f@0",
        "secret://vault/kv/app#a b",
        "secret://db\n",
        "plain",
    ],
)
def test_an_invalid_reference_is_refused_with_its_field(text: str) -> None:
    with pytest.raises(InvalidError, match=r"^spec\.x: invalid reference"):
        parse(text, "spec.x")


def test_names_are_bounded() -> None:
    assert check_name("a" * 128)
    with pytest.raises(InvalidError, match="invalid secret name"):
        check_name("a" * 129)


def test_references_are_found_by_their_field() -> None:
    container = ContainerSpec(
        "nginx",
        env={"A": "secret://a", "B": "not secret://b"},
        files=(FileMount("/x", b"plain"), FileMount("/y", b"secret://vault/kv/c#f")),
    )

    assert references_of(container) == {
        "spec.container.env['A']": StoredReference("a"),
        "spec.container.files[1].content": VaultReference("kv/c", "f"),
    }
    assert references_of(ComposeSpec(env={"A": "secret://a@2"})) == {
        "spec.compose.env['A']": StoredReference("a", 2)
    }
    assert references_of(VMSpec(1, 128)) == {}


def test_values_take_the_place_of_references_and_nothing_else_changes() -> None:
    spec = ContainerSpec(
        "nginx",
        env={"B": "secret://a", "A": "secret://a", "C": "c"},
        files=(
            FileMount("/x", b"plain"),
            FileMount("/y", b"secret://a"),
            FileMount("/z", b"secret://a", 0o444),
        ),
    )

    resolved = put_in(spec, {StoredReference("a"): b"value"})

    assert resolved.secret_env == ("A", "B")
    assert isinstance(resolved.spec, ContainerSpec)
    assert resolved.spec.env == {"A": "value", "B": "value", "C": "c"}
    assert resolved.spec.files == (
        FileMount("/x", b"plain", 0o444),
        FileMount("/y", b"value", 0o400, secret=True),
        FileMount("/z", b"value", 0o444, secret=True),
    )


@pytest.mark.parametrize("value", [b"\xff", b"a\0b"])
def test_a_variable_cannot_hold_binary_data(value: bytes) -> None:
    with pytest.raises(InvalidError, match=r"spec\.compose\.env\['A'\]"):
        put_in(ComposeSpec(env={"A": "secret://a"}), {StoredReference("a"): value})


def test_the_newest_versions_are_kept_and_those_in_use() -> None:
    secret: Secret | None = None
    for number in range(1, 14):
        version = SecretVersion(number, b"", "key", NOW)
        secret = with_version(secret, "a", version, in_use={2})

    assert secret is not None
    assert [one.number for one in secret.versions] == [2, *range(4, 14)]
    assert secret.newest.number == 13
    assert secret.version(0) is secret.newest
    assert secret.version(3) is None


def an_order(spec: Spec, *secret_env: str) -> Order:
    return Order(
        WorkloadId("web"),
        WorkloadType.CONTAINER,
        Revision("r1"),
        1,
        Desired.RUNNING,
        spec,
        secret_env=secret_env,
    )


def test_the_secret_values_of_an_order_are_those_it_declares() -> None:
    files = (FileMount("/x", b"in a file\n", 0o400, secret=True), FileMount("/y", b"plain"))
    container = ContainerSpec("nginx", env={"A": "one", "B": "two"}, files=files)

    assert values_of(an_order(container, "A")) == {"one", "in a file"}
    assert values_of(an_order(ComposeSpec(env={"A": "one"}), "A", "gone")) == {"one"}
    assert values_of(an_order(VMSpec(1, 128))) == frozenset()


def test_values_are_replaced_the_longest_first_and_short_ones_stay() -> None:
    text = redacted(
        "abc: hunter2-long and hunter2 on ****", {"hunter2", "hunter2-long", "abc", "****"}
    )

    assert text == "abc: ******** and ******** on ****"


KEY = "-----BEGIN KEY-----\nMIIEvQIBADANBgkq\nhkiG9w0BAQEFAASC\nBKcw\n-----END KEY-----\n"


@pytest.mark.parametrize(
    "shown",
    [
        KEY,
        KEY.replace("\n", "\r\n"),
        " ".join(KEY.split()),
        KEY.strip().replace("\n", "\\n"),
        "line 2: MIIEvQIBADANBgkq is no key",
        "\tMIIEvQIBADANBgkq\n\thkiG9w0BAQEFAASC",
        "vQIBADANBgkq\nhkiG9w0BAQEFAASC\nBKcw",
        "cannot read MIIEvQIBAD",
    ],
    ids=["whole", "CRLF", "one line", "escaped", "one of its lines", "indented", "cut", "cut off"],
)
def test_a_multi_line_secret_is_redacted_in_every_encoding(shown: str) -> None:
    text = redacted(shown, {KEY})

    for part in ("MIIEvQIBAD", "vQIBADANB", "hkiG9w0BAQ", "ANBgkq"):
        assert part not in text


def test_short_lines_of_a_secret_do_not_blank_out_messages() -> None:
    assert redacted("a {b} true", {"{\n  true\n}"}) == "a {b} true"
