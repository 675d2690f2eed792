"""Properties of references and redaction."""

from hypothesis import given
from hypothesis import strategies as st

from persys.core.secrets import parse, redacted
from persys.errors import InvalidError
from persys.infra.encryption import EncryptionKey
from persys.model.secret import Reference, StoredReference, VaultReference

WORDS = st.from_regex(r"[a-zA-Z0-9_-]{1,12}", fullmatch=True)
VERSIONS = st.integers(0, 999_999_999)
REFERENCES: st.SearchStrategy[Reference] = st.one_of(
    st.builds(
        StoredReference, st.from_regex(r"[a-z0-9][a-z0-9._-]{0,127}", fullmatch=True), VERSIONS
    ),
    st.builds(VaultReference, st.lists(WORDS, min_size=1).map("/".join), WORDS, VERSIONS),
)


@given(REFERENCES)
def test_a_reference_reads_back_as_itself(reference: Reference) -> None:
    assert parse(str(reference), "env") == reference


@given(st.text().map("secret://".__add__))
def test_every_text_is_parsed_as_a_reference_or_refused(text: str) -> None:
    try:
        read: Reference | None = parse(text, "env")
    except InvalidError:
        read = None

    assert read is None or str(read) == text


@given(st.text(), st.lists(st.text(alphabet="abc", min_size=4), min_size=1), st.text())
def test_redaction_removes_every_value_and_is_idempotent(
    before: str, values: list[str], after: str
) -> None:
    once = redacted(before + values[0] + after, values)

    assert all(value not in once for value in values)
    assert redacted(once, values) == once


@given(st.binary(), st.binary(), st.binary(min_size=32, max_size=32))
def test_an_encrypted_value_decrypts_and_reveals_nothing(
    value: bytes, bound: bytes, key: bytes
) -> None:
    sealed = EncryptionKey(key).seal(value, bound)

    assert EncryptionKey(key).open(sealed, bound) == value
    assert len(value) < 8 or value not in sealed
