"""Whole numbers in untrusted text."""

import pytest

from persys.core.numbers import DIGITS_MAX, whole_number


@pytest.mark.parametrize(
    ("text", "number"), [("0", 0), ("007", 7), ("65535", 65535), ("9" * DIGITS_MAX, 10**18 - 1)]
)
def test_plain_digits_are_a_number(text: str, number: int) -> None:
    assert whole_number(text) == number


@pytest.mark.parametrize(
    "text", ["", " 1", "-1", "+1", "1.0", "1_000", "0x1", "²", "١", "①", "9" * 19, "9" * 5000]
)
def test_anything_else_is_not(text: str) -> None:
    assert whole_number(text) is None
