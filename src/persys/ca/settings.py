"""The settings of persys-ca, from flags, environment variables and files."""

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from persys.core.auth.enrolment import LIFE, LIFE_LEAST, SERVICE_LIFE_MOST, SERVICES
from persys.core.dns_names import checked_name
from persys.errors import SettingsError
from persys.infra.settings import setting
from persys.model.identity import Role

AUTH_KEY_BYTES_MIN = 16


@dataclass(frozen=True, slots=True)
class CaSettings:
    dir: Path = setting(
        Path("/var/lib/persys/ca"), "PERSYS_CA_DIR", help="directory of the keys and the database"
    )
    listen: str = setting("0.0.0.0", "PERSYS_CA_LISTEN", help="address to listen on")
    port: int = setting(8888, "PERSYS_CA_PORT", help="port of the HTTPS API")
    advertise: tuple[str, ...] = setting(
        (),
        "PERSYS_CA_ADVERTISE",
        help="host:port of the CA in join tokens; detected if not set",
    )
    cert_ttl: timedelta = setting(
        LIFE, "PERSYS_CA_CERT_TTL", help="default validity of certificates"
    )
    trust_domain: str = setting(
        "persys.local", "PERSYS_TRUST_DOMAIN", help="trust domain of the identities in certificates"
    )
    passphrase_file: str = setting(
        "",
        "PERSYS_CA_PASSPHRASE_FILE",
        help="file with the passphrase of the key files; not encrypted if not set",
    )
    auth_key_file: str = setting(
        "",
        "PERSYS_CA_AUTH_KEY_FILE",
        help="file with the key of cfssl authsign in hexadecimal; authsign is disabled if not set",
    )
    auth_roles: tuple[str, ...] = setting(
        ("agent",),
        "PERSYS_CA_AUTH_ROLES",
        help="roles that authsign may issue: agent, gateway, scheduler",
    )
    keep: timedelta = setting(
        timedelta(days=400),
        "PERSYS_CA_KEEP",
        help="retention of expired certificates, tokens and audit lines",
    )
    log_level: str = setting("info", "PERSYS_LOG_LEVEL", help="debug, info, warn or error")
    log_format: str = setting("", "LOG_FORMAT", help="json or console; console on a terminal")

    def __post_init__(self) -> None:
        if not LIFE_LEAST <= self.cert_ttl <= SERVICE_LIFE_MOST:
            raise SettingsError(
                f"invalid PERSYS_CA_CERT_TTL: expected {LIFE_LEAST.seconds}s to {SERVICE_LIFE_MOST.days}d"
            )
        checked_name(self.trust_domain, field="PERSYS_TRUST_DOMAIN")
        if self.keep <= timedelta():
            raise SettingsError(
                "invalid PERSYS_CA_KEEP: expected a positive duration, for example 400d"
            )
        for role in self.auth_roles:
            if role not in SERVICES:
                roles = ", ".join(sorted(SERVICES))
                raise SettingsError(
                    f"invalid PERSYS_CA_AUTH_ROLES {role!r}: expected some of {roles}"
                )

    def passphrase(self) -> bytes:
        """Empty if the keys are not encrypted."""
        return _secret(self.passphrase_file, "PERSYS_CA_PASSPHRASE_FILE")

    def auth_key(self) -> bytes:
        """Empty if authsign is disabled."""
        text = _secret(self.auth_key_file, "PERSYS_CA_AUTH_KEY_FILE").decode("utf-8", "replace")
        try:
            key = bytes.fromhex(text)
        except ValueError:
            raise SettingsError(
                "invalid PERSYS_CA_AUTH_KEY_FILE: expected hexadecimal digits in the file"
            ) from None
        if text and len(key) < AUTH_KEY_BYTES_MIN:
            raise SettingsError(
                f"invalid PERSYS_CA_AUTH_KEY_FILE: expected {2 * AUTH_KEY_BYTES_MIN} digits or more"
            )
        return key

    def roles_by_key(self) -> frozenset[Role]:
        return frozenset(map(Role, self.auth_roles))


def _secret(file: str, variable: str) -> bytes:
    if not file:
        return b""
    try:
        content = Path(file).read_bytes().strip()
    except OSError as err:
        raise SettingsError(f"{variable}={file}: {err.strerror}") from err
    if not content:
        raise SettingsError(f"{variable}={file}: the file is empty")
    return content
