"""The client certificate, in this order: flag, variable, ~/.persys/config.yaml."""

from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from persys.errors import SettingsError

if TYPE_CHECKING:
    from persys.infra.tls.certificates import CertificateFiles

# option, variable, key of the file
_NAMES = (
    ("ca", "PERSYS_TLS_CA", "ca_cert_path"),
    ("cert", "PERSYS_TLS_CERT", "cert_path"),
    ("key", "PERSYS_TLS_KEY", "key_path"),
)


def certificate_files(
    options: Namespace, environ: Mapping[str, str], file: Mapping[str, object]
) -> "CertificateFiles | None":
    """None when none is set. Raises SettingsError when only some of the three files are set."""
    found = {
        option: str(getattr(options, option, None) or environ.get(variable) or file.get(key) or "")
        for option, variable, key in _NAMES
    }
    if not any(found.values()):
        return None
    for option, variable, key in _NAMES:
        if not found[option]:
            raise SettingsError(
                f"missing --{option} for the client certificate ({variable}, or {key} in "
                "~/.persys/config.yaml)"
            )
    from persys.infra.files import CertificateFiles

    roots, certificate, private = (Path(found[name]).expanduser() for name, _, _ in _NAMES)
    return CertificateFiles(certificate, private, roots)
