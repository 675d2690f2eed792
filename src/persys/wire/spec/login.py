"""The login of a VM in both contracts. A plain password is refused, because specs are stored."""

import re
from typing import TypeVar

from persys.errors import InvalidError
from persys.model.spec import Login
from persys.wire.gen.agent.v1 import agent_pb2
from persys.wire.gen.control.v1 import control_pb2
from persys.wire.spec import checks

SSH_KEYS_MAX = 64
SSH_KEY_LENGTH_MAX = 16 * 1024

LoginMessage = TypeVar("LoginMessage", control_pb2.VMLogin, agent_pb2.VMLogin)

# The names that useradd accepts; the name is written to a file that a shell reads.
_USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
# crypt(3): $id$…, where the id is the method; no characters that are special in a shell or YAML.
_HASH = re.compile(r"\$(?:1|5|6|7|2[abxy]|y|gy|md5|sha1|argon2(?:i|d|id))\$[!-~]{8,}")
# An OpenSSH public key: type, base64 and an optional comment.
_KEY = re.compile(r"(?:ssh-|ecdsa-|sk-)[!-~]+ [A-Za-z0-9+/]{16,}={0,3}(?: [^\r\n\0]*)?")


def login(message: control_pb2.VMLogin | agent_pb2.VMLogin, path: str) -> Login:
    if message.user and not _USER.fullmatch(message.user):
        expected = "expected up to 32 of a-z, 0-9, '-' and '_', beginning with a letter or '_'"
        problem = f"invalid user name {checks.quoted(message.user)}: {expected}"
        raise InvalidError(f"{path}.user", problem)
    if message.password_hash and not _HASH.fullmatch(message.password_hash):
        # Not shown: it may be the password itself.
        problem = "invalid hash: expected a crypt(3) hash; create one with `openssl passwd -6`"
        raise InvalidError(f"{path}.password_hash", problem)
    if len(message.ssh_keys) > SSH_KEYS_MAX:
        problem = f"has {len(message.ssh_keys)} entries; expected at most {SSH_KEYS_MAX}"
        raise InvalidError(f"{path}.ssh_keys", problem)
    keys = tuple(
        _ssh_key(key, f"{path}.ssh_keys[{index}]") for index, key in enumerate(message.ssh_keys)
    )
    if message.user and not keys and not message.password_hash:
        raise InvalidError(path, "has a user, but neither ssh_keys nor a password_hash for it")
    return Login(message.user, keys, message.password_hash)


def login_message(login: Login, kind: type[LoginMessage]) -> LoginMessage | None:
    """The message, or None if no login is set."""
    if login == Login():
        return None
    return kind(user=login.user, ssh_keys=login.ssh_keys, password_hash=login.password_hash)


def _ssh_key(text: str, path: str) -> str:
    plain = text.strip()
    if len(plain) > SSH_KEY_LENGTH_MAX or not _KEY.fullmatch(plain):
        expected = "expected one line, for example ssh-ed25519 AAAA… name"
        raise InvalidError(path, f"invalid public key {checks.quoted(plain[:40])}: {expected}")
    return plain
