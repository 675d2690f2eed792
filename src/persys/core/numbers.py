"""Whole numbers in text that others wrote.

Python takes more for a number than anyone means: digits of every script, which `isdigit` calls digits and
`int` refuses in part, and thousands of digits, which `int` refuses too. Nothing here needs more than 18.
"""

DIGITS_MAX = 18


def whole_number(text: str) -> int | None:
    """The number that plain digits say. None: it is not one, or has more than DIGITS_MAX digits."""
    is_number = text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX
    return int(text) if is_number else None
