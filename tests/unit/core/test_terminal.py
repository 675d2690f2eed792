"""Untrusted text on a terminal is readable and has no effect."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from persys.core.terminal import LogFilter, is_safe, visible

OBEYED = re.compile(rb"\x1b(?!\[[0-9;:]*m)|[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f]|\xc2[\x80-\x9f]")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text\twith\nlines", "plain text\twith\nlines"),
        ("\x1b[2J\x1b[H", "^[[2J^[[H"),
        ("\x1b]0;title\x07", "^[]0;title^G"),
        ("\x1b[31mred\x1b[0m", "^[[31mred^[[0m"),
        ("a\rb\bc\x7f", "a^Mb^Hc^?"),
        ("\x9b2J", "\\x9b2J"),
        ("user\u202egnp.exe", "user\\u202egnp.exe"),
        ("größe 東京 🚀", "größe 東京 🚀"),
    ],
)
def test_control_characters_become_visible(text: str, shown: str) -> None:
    assert visible(text) == shown


@given(st.text())
def test_sanitized_output_is_safe_and_stable(text: str) -> None:
    once = visible(text)

    assert is_safe(once)
    assert visible(once) == once


def filtered(*pieces: bytes) -> bytes:
    log = LogFilter()
    return b"".join([*(log.feed(chunk) for chunk in pieces), log.finish()])


def test_colours_pass_and_end_with_their_line() -> None:
    assert filtered(b"\x1b[31mred\nplain\n") == b"\x1b[31mred\x1b[0m\nplain\n"
    assert filtered(b"\x1b[1;32mok\x1b[0m\n") == b"\x1b[1;32mok\x1b[0m\n"


def test_all_other_sequences_are_shown() -> None:
    assert filtered(b"\x1b[2J\x1b]52;c;ZXZpbA==\x07\x1bc") == b"^[[2J^[]52;c;ZXZpbA==^G^[c"


def test_the_pieces_of_a_stream_may_end_anywhere() -> None:
    complete = "\x1b[38;5;208mgrün\x1b[0m 東\x1b[2Jend\r\n".encode()
    expected = filtered(complete)

    for index in range(len(complete)):
        assert filtered(complete[:index], complete[index:]) == expected


@given(st.lists(st.binary(max_size=20) | st.sampled_from([b"\x1b", b"[", b"2J", b"31m", b"\xc2"])))
def test_nothing_that_a_log_holds_is_obeyed(pieces: list[bytes]) -> None:
    assert OBEYED.search(filtered(*pieces)) is None
