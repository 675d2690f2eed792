"""The text format of join tokens."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from persys.errors import InvalidError
from persys.wire.ca.join_token import PREFIX, JoinToken, read_token, write_token

TOKEN = JoinToken(ca=("10.0.0.1:8888",), fp="ab", id="t1", secret="s" * 43, role="agent", name="n1")


@given(
    st.builds(
        JoinToken,
        ca=st.just(("h:1",)),
        **{
            field: st.text(min_size=1, max_size=80)
            for field in ("fp", "id", "secret", "role", "name")
        },
    )
)
def test_a_written_value_round_trips(token: JoinToken) -> None:
    line = write_token(token)

    assert len(line.split()) == 1
    assert read_token(f"  {line}\n") == token


@pytest.mark.parametrize(
    "text",
    [
        "",
        "psk_1_2",
        PREFIX,
        PREFIX + "!!",
        PREFIX + "e30",
        PREFIX + "bm90IGpzb24",
        write_token(TOKEN)[:-10],
        write_token(TOKEN) + "x" * 5000,
    ],
)
def test_a_damaged_join_token_is_refused(text: str) -> None:
    with pytest.raises(InvalidError, match="token: invalid join token"):
        read_token(text)


def test_the_repr_of_a_join_token_has_no_secret() -> None:
    assert TOKEN.secret not in repr(TOKEN)
