"""Parses whole numbers in untrusted text.

Python accepts too much as a number: digits of every script, which `isdigit` accepts and `int` refuses in
part, and thousands of digits, which `int` refuses too. No field needs more than 18 digits.
"""

DIGITS_MAX = 18


def whole_number(text: str) -> int | None:
    """The number in ASCII digits. None: it is not a number, or has more than DIGITS_MAX digits."""
    is_number = text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX
    return int(text) if is_number else None
