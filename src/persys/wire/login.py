"""Who may log in to a machine, in both contracts. A plain password is refused: it would be stored."""

import re
from typing import TypeVar

from persys.errors import InvalidError
from persys.model.spec import Login
from persys.wire import checks
from persys.wire.gen.agent.v1 import agent_pb2
from persys.wire.gen.control.v1 import control_pb2

SSH_KEYS_MAX = 64
SSH_KEY_LENGTH_MAX = 16 * 1024

LoginMessage = TypeVar("LoginMessage", control_pb2.VMLogin, agent_pb2.VMLogin)

# As useradd takes them; the name goes into a file that is read by a shell.
_USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
# crypt(3): $id$…, where the id names the method; nothing that a shell or YAML would read otherwise.
_HASH = re.compile(r"\$(?:1|5|6|7|2[abxy]|y|gy|md5|sha1|argon2(?:i|d|id))\$[!-~]{8,}")
# An OpenSSH public key: its type, its base64, and a comment that may be left out.
_KEY = re.compile(r"(?:ssh-|ecdsa-|sk-)[!-~]+ [A-Za-z0-9+/]{16,}={0,3}(?: [^\r\n\0]*)?")


def login(message: control_pb2.VMLogin | agent_pb2.VMLogin, path: str) -> Login:
    if message.user and not _USER.fullmatch(message.user):
        raise InvalidError(f"{path}.user", f"{checks.shown(message.user)} is no name of a user")
    if message.password_hash and not _HASH.fullmatch(message.password_hash):
        # Not shown: it may be the password itself.
        problem = "is no hash as crypt(3) writes it; make one with `openssl passwd -6`"
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
    """None when nobody was named."""
    if login == Login():
        return None
    return kind(user=login.user, ssh_keys=login.ssh_keys, password_hash=login.password_hash)


def _ssh_key(text: str, path: str) -> str:
    plain = text.strip()
    if len(plain) > SSH_KEY_LENGTH_MAX or not _KEY.fullmatch(plain):
        expected = "expected one line such as ssh-ed25519 AAAA… name"
        raise InvalidError(path, f"{checks.shown(plain[:40])} is no public key; {expected}")
    return plain
