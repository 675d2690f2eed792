"""Bearer tokens in call metadata: `authorization: Bearer psk_…`. Their text is never logged."""

from collections.abc import Callable, Sequence
from datetime import datetime

from persys.core.auth.tokens import IsRevoked, TokenFault, fault, parse, recheck_token
from persys.errors import DeniedError
from persys.model.identity import Token

AUTHORIZATION = "authorization"
REASON = "token"  # of the DeniedError: the caller must use another token, or none
_SCHEME = "bearer "

# The token with an id, or None. Raises UnavailableError while tokens are not loaded.
FindToken = Callable[[str], Token | None]


def authenticate(
    find: FindToken, values: Sequence[str], now: datetime, *, is_revoked: IsRevoked
) -> Token:
    """The token of a call. Raises DeniedError unless there is exactly one valid token."""
    text = values[0] if len(values) == 1 else ""  # with two it would be undefined which one counts
    scheme, secret = text[: len(_SCHEME)], text[len(_SCHEME) :]
    shown = parse(secret.strip()) if scheme.lower() == _SCHEME else None
    if shown is None:
        raise _denied(TokenFault.MALFORMED)
    token = find(shown.id)
    if (wrong := fault(token, shown, now, is_revoked)) is not None:
        raise _denied(wrong)
    assert token is not None
    return token


def check_still_valid(
    find: FindToken, token_id: str, now: datetime, *, is_revoked: IsRevoked
) -> None:
    """Check the token of an open stream. Raises DeniedError once it is expired or revoked."""
    if (wrong := recheck_token(find(token_id), now, is_revoked)) is not None:
        raise _denied(wrong)


def _denied(wrong: TokenFault) -> DeniedError:
    return DeniedError(wrong, reason=REASON)
