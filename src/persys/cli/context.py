"""The file by which persysctl finds what `persys up` has started, and by which certificate it is let in."""

from pathlib import Path

import yaml

from persys.cli.exits import SetUpError
from persys.client.call import Trust
from persys.infra.files import write_whole

_OURS = "# Written by `persys up`, which writes it anew as long as this line is here.\n"


def context_path() -> Path:
    return Path.home() / ".persys" / "config.yaml"


def write_context(target: str, authority: str, trust: Trust) -> bool:
    """False: there is a file that somebody else has written, which is left as it is."""
    path = context_path()
    content = _OURS + yaml.safe_dump(
        {
            "grpc_endpoint": target,
            "ca_endpoint": authority,
            "ca_cert_path": str(trust.files.roots),
            "cert_path": str(trust.files.certificate),
            "key_path": str(trust.files.key),
        },
        sort_keys=False,
    )
    try:
        if path.exists() and not path.read_text(encoding="utf-8").startswith(_OURS):
            return False
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(path, content.encode())
    except (OSError, UnicodeDecodeError) as err:
        raise SetUpError(f"cannot write {path}: {err}") from err
    return True
