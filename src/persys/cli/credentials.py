"""Which certificate a user shows: a flag, a variable, ~/.persys/config.yaml."""

from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from persys.errors import SettingsError

if TYPE_CHECKING:
    from persys.infra.certificates import CertificateFiles

# option, variable, key of the file
_NAMES = (
    ("ca", "PERSYS_TLS_CA", "ca_cert_path"),
    ("cert", "PERSYS_TLS_CERT", "cert_path"),
    ("key", "PERSYS_TLS_KEY", "key_path"),
)


def certificate_files(
    options: Namespace, environ: Mapping[str, str], file: Mapping[str, object]
) -> "CertificateFiles | None":
    """None when nothing names one. Raises SettingsError when only a part is named."""
    found = {
        option: str(getattr(options, option, None) or environ.get(variable) or file.get(key) or "")
        for option, variable, key in _NAMES
    }
    if not any(found.values()):
        return None
    for option, variable, key in _NAMES:
        if not found[option]:
            raise SettingsError(
                f"a certificate needs --{option} too ({variable}, or {key} in ~/.persys/config.yaml)"
            )
    from persys.infra.files import CertificateFiles

    roots, certificate, private = (Path(found[name]).expanduser() for name, _, _ in _NAMES)
    return CertificateFiles(certificate, private, roots)
