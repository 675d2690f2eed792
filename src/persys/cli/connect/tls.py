"""TLS settings of the client, in this order: flag, variable, ~/.persys/config.yaml.

There is no fallback to plain text: it must be requested explicitly, so that a missing file never sends
secrets to an unverified server.
"""

from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from persys.cli.connect.settings import Settings
from persys.client.grpc.channel import Trust
from persys.errors import SettingsError

if TYPE_CHECKING:
    from persys.client.rest.connection import Gateway
    from persys.infra.tls.certificates import CertificateFiles

# option, variable, key of the context
_FILES = (
    ("ca", "PERSYS_TLS_CA", "ca_cert_path"),
    ("cert", "PERSYS_TLS_CERT", "cert_path"),
    ("key", "PERSYS_TLS_KEY", "key_path"),
)
_BOOLEANS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
_NO_CERTIFICATE = """no client certificate. Use one of these:
  `persys up` on this machine, which writes ~/.persys/config.yaml if it does not exist
  `persysctl certificate create --role admin --name YOU`, run by a user with a certificate
  `persys-ca certificate --role admin --name YOU` on the host of the CA
  --ca, --cert and --key, PERSYS_TLS_CA, _CERT and _KEY, or ca_cert_path, cert_path and key_path
For a scheduler that runs with -insecure, use --insecure or PERSYS_INSECURE=true."""


def client_tls(
    options: Namespace, environ: Mapping[str, str], file: Mapping[str, object]
) -> Trust | None:
    """None for plain text, which the user requested."""
    has_flags = any(getattr(options, option, None) for option, _, _ in _FILES)
    if getattr(options, "insecure", False):
        if has_flags:
            raise SettingsError("--insecure cannot be combined with --ca, --cert or --key")
        return None
    if not has_flags and _is_insecure(environ, file):
        return None
    files = certificate_files(options, environ, file)
    if files is None:
        raise SettingsError(_NO_CERTIFICATE)
    return Trust(files, by_host=_verifies_host(environ, file))


def authenticated_gateway(
    options: Namespace, environ: Mapping[str, str], settings: Settings
) -> "Gateway":
    """A gateway with credentials: a client certificate, a token, or both.

    With a token alone, the server is verified with --ca, or with the CA certificates of this machine. Plain
    text is used only for a URL that starts with http://. Raises SettingsError without credentials.
    """
    # Slow to import, and not needed for a scheduler.
    from persys.client.rest.connection import Gateway

    gateway = Gateway(settings.gateway, token=settings.token, cluster=settings.cluster)
    if settings.gateway.startswith("http://"):
        return gateway
    if settings.token and not _has_certificate(options, environ, settings.file):
        return gateway._replace(roots=_ca_file(options, environ, settings.file))
    trust = client_tls(options, environ, settings.file)
    if trust is None:
        raise SettingsError(
            f"--insecure has no effect on {settings.gateway}; for a gateway that runs with -insecure "
            "use a URL that starts with http://"
        )
    return gateway._replace(trust=trust)


def certificate_files(
    options: Namespace, environ: Mapping[str, str], file: Mapping[str, object]
) -> "CertificateFiles | None":
    """None when none is set. Raises SettingsError when only some of the three files are set."""
    found = {
        option: str(getattr(options, option, None) or environ.get(variable) or file.get(key) or "")
        for option, variable, key in _FILES
    }
    if not any(found.values()):
        return None
    for option, variable, key in _FILES:
        if not found[option]:
            raise SettingsError(
                f"missing --{option} for the client certificate ({variable}, or {key} in "
                "~/.persys/config.yaml)"
            )
    from persys.infra.atomic_files import CertificateFiles

    roots, certificate, private = (Path(found[name]).expanduser() for name, _, _ in _FILES)
    return CertificateFiles(certificate, private, roots)


def _is_insecure(environ: Mapping[str, str], file: Mapping[str, object]) -> bool:
    if value := environ.get("PERSYS_INSECURE", ""):
        return _boolean(value, "PERSYS_INSECURE")
    if any(environ.get(variable) for _, variable, _ in _FILES):
        return False
    return _boolean(file.get("grpc_insecure", False), "grpc_insecure")


def _verifies_host(environ: Mapping[str, str], file: Mapping[str, object]) -> bool:
    value = str(environ.get("PERSYS_TLS_VERIFY") or file.get("tls_verify") or "identity").lower()
    if value not in ("identity", "host"):
        raise SettingsError(f"invalid PERSYS_TLS_VERIFY {value!r}: expected identity or host")
    return value == "host"


def _boolean(value: object, name: str) -> bool:
    word = str(value).strip().lower()
    if word not in _BOOLEANS:
        raise SettingsError(f"invalid {name} {value!r}: expected true or false")
    return _BOOLEANS[word]


def _has_certificate(
    options: Namespace, environ: Mapping[str, str], file: Mapping[str, object]
) -> bool:
    return any(
        getattr(options, option, None) or environ.get(variable) or file.get(key)
        for option, variable, key in _FILES[1:]
    )


def _ca_file(
    options: Namespace, environ: Mapping[str, str], file: Mapping[str, object]
) -> Path | None:
    named = getattr(options, "ca", None) or environ.get("PERSYS_TLS_CA") or file.get("ca_cert_path")
    return Path(str(named)).expanduser() if named else None
