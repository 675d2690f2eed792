"""TLS settings of the client, in this order: flag, variable, ~/.persys/config.yaml.

There is no fallback to plain text: it must be requested explicitly, so that a missing file never sends
secrets to an unverified server.
"""

from argparse import Namespace
from collections.abc import Mapping

from persys.cli.credentials import certificate_files
from persys.client.grpc.channel import Trust
from persys.errors import SettingsError

_FLAGS = ("ca", "cert", "key")
_VARIABLES = ("PERSYS_TLS_CA", "PERSYS_TLS_CERT", "PERSYS_TLS_KEY")
_WORDS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
_NO_CERTIFICATE = """no client certificate. Use one of these:
  `persys up` on this machine, which writes ~/.persys/config.yaml if it does not exist
  `persysctl certificate create --role admin --name YOU`, run by a user with a certificate
  `persys-ca certificate --role admin --name YOU` on the host of the CA
  --ca, --cert and --key, PERSYS_TLS_CA, _CERT and _KEY, or ca_cert_path, cert_path and key_path
For a scheduler that runs with -insecure, use --insecure or PERSYS_INSECURE=true."""


def trust_of(
    options: Namespace, environ: Mapping[str, str], file: Mapping[str, object]
) -> Trust | None:
    """None for plain text, which the user requested."""
    shows = any(getattr(options, flag, None) for flag in _FLAGS)
    if getattr(options, "insecure", False):
        if shows:
            raise SettingsError("--insecure cannot be combined with --ca, --cert or --key")
        return None
    if not shows and _is_insecure(environ, file):
        return None
    files = certificate_files(options, environ, file)
    if files is None:
        raise SettingsError(_NO_CERTIFICATE)
    return Trust(files, by_host=_is_by_host(environ, file))


def _is_insecure(environ: Mapping[str, str], file: Mapping[str, object]) -> bool:
    if said := environ.get("PERSYS_INSECURE", ""):
        return _boolean(said, "PERSYS_INSECURE")
    if any(environ.get(variable) for variable in _VARIABLES):
        return False
    return _boolean(file.get("grpc_insecure", False), "grpc_insecure")


def _is_by_host(environ: Mapping[str, str], file: Mapping[str, object]) -> bool:
    said = str(environ.get("PERSYS_TLS_VERIFY") or file.get("tls_verify") or "identity").lower()
    if said not in ("identity", "host"):
        raise SettingsError(f"invalid PERSYS_TLS_VERIFY {said!r}: expected identity or host")
    return said == "host"


def _boolean(said: object, name: str) -> bool:
    word = str(said).strip().lower()
    if word not in _WORDS:
        raise SettingsError(f"invalid {name} {said!r}: expected true or false")
    return _WORDS[word]
