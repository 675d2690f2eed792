"""Credentials for a gateway: a client certificate, a token, or both.

With a token alone, the server is verified with --ca, or with the CA certificates of this machine. Plain text
is used only for a URL that starts with http://.
"""

from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path

from persys.cli.settings import Settings
from persys.cli.trust import trust_of
from persys.client.rest.connection import Gateway
from persys.errors import SettingsError

_CERTIFICATE = (
    ("cert", "PERSYS_TLS_CERT", "cert_path"),
    ("key", "PERSYS_TLS_KEY", "key_path"),
)


def gateway_of(options: Namespace, environ: Mapping[str, str], settings: Settings) -> Gateway:
    """Raises SettingsError without credentials."""
    plain = settings.gateway.startswith("http://")
    gateway = Gateway(settings.gateway, token=settings.token, cluster=settings.cluster)
    if plain:
        return gateway
    if settings.token and not _shows(options, environ, settings.file):
        return gateway._replace(roots=_roots(options, environ, settings.file))
    trust = trust_of(options, environ, settings.file)
    if trust is None:
        raise SettingsError(
            f"--insecure has no effect on {settings.gateway}; for a gateway that runs with -insecure "
            "use a URL that starts with http://"
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
