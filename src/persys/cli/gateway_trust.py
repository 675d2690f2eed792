"""As whom a user comes to a gateway: with a certificate, with a token, or with both.

A token alone is enough; then the roots say whom to believe, and without roots those of this machine do.
Plain text is spoken only to an address that begins with http://.
"""

from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path

from persys.cli.settings import Settings
from persys.cli.trust import trust_of
from persys.client.rest_connection import Gateway
from persys.errors import SettingsError

_CERTIFICATE = (
    ("cert", "PERSYS_TLS_CERT", "cert_path"),
    ("key", "PERSYS_TLS_KEY", "key_path"),
)


def gateway_of(options: Namespace, environ: Mapping[str, str], settings: Settings) -> Gateway:
    """Raises SettingsError for who has nothing to show."""
    plain = settings.gateway.startswith("http://")
    gateway = Gateway(settings.gateway, token=settings.token, cluster=settings.cluster)
    if plain:
        return gateway
    if settings.token and not _shows(options, environ, settings.file):
        return gateway._replace(roots=_roots(options, environ, settings.file))
    trust = trust_of(options, environ, settings.file)
    if trust is None:
        raise SettingsError(
            f"--insecure shows nothing to {settings.gateway}; for a gateway that was started with "
            "-insecure say http:// in its address"
        )
    return gateway._replace(trust=trust)


def _shows(options: Namespace, environ: Mapping[str, str], file: Mapping[str, object]) -> bool:
    return any(
        getattr(options, option, None) or environ.get(variable) or file.get(key)
        for option, variable, key in _CERTIFICATE
    )


def _roots(
    options: Namespace, environ: Mapping[str, str], file: Mapping[str, object]
) -> Path | None:
    named = getattr(options, "ca", None) or environ.get("PERSYS_TLS_CA") or file.get("ca_cert_path")
    return Path(str(named)).expanduser() if named else None
