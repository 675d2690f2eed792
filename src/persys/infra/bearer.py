"""Tokens of people, as they come beside a call: `authorization: Bearer psk_…`. Their text is told nowhere."""

from collections.abc import Callable, Sequence
from datetime import datetime

from persys.core.tokens import Fault, IsRevoked, fault, later_fault, parse
from persys.errors import DeniedError
from persys.model.token import Token

AUTHORIZATION = "authorization"
REASON = "token"  # of the DeniedError: show another, or none
_SCHEME = "bearer "

# By its id; None: there is none such. Raises UnavailableError while nobody knows.
FindToken = Callable[[str], Token | None]


def judged(find: FindToken, said: Sequence[str], now: datetime, *, is_revoked: IsRevoked) -> Token:
    """Raises DeniedError unless exactly one valid token is shown."""
    text = said[0] if len(said) == 1 else ""  # of two it would be left to chance which counts
    scheme, secret = text[: len(_SCHEME)], text[len(_SCHEME) :]
    shown = parse(secret.strip()) if scheme.lower() == _SCHEME else None
    if shown is None:
        raise _denied(Fault.MALFORMED)
    token = find(shown.id)
    if (wrong := fault(token, shown, now, is_revoked)) is not None:
        raise _denied(wrong)
    assert token is not None
    return token


def check_still(find: FindToken, token_id: str, now: datetime, *, is_revoked: IsRevoked) -> None:
    """For an open stream. Raises DeniedError once the token is expired or revoked."""
    if (wrong := later_fault(find(token_id), now, is_revoked)) is not None:
        raise _denied(wrong)


def _denied(wrong: Fault) -> DeniedError:
    return DeniedError(wrong, reason=REASON)
