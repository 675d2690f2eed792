"""Writes the context with which persysctl connects to the processes of `persys up`."""

from persys.cli.context_file import ContextFile, context_path, read_contexts, write_contexts
from persys.cli.exits import SetUpError
from persys.client.grpc.channel import Trust
from persys.errors import SettingsError

_OURS = "# Written by `persys up`, which rewrites it as long as this line is here.\n"
# The first line in files of older versions.
_OURS_BEFORE = "# Written by `persys up`, which writes it anew as long as this line is here.\n"


def write_context(
    *, scheduler: str, authority: str, gateway: str, agent: str, trust: Trust
) -> bool:
    """False if the file was not written by `persys up`; it is then left unchanged.

    Other contexts in the file are kept.
    """
    ours = {
        "transport": "grpc",
        "grpc_endpoint": scheduler,
        "api_endpoint": gateway,
        "ca_endpoint": authority,
        "agent_endpoint": agent,
        "ca_cert_path": str(trust.files.roots),
        "cert_path": str(trust.files.certificate),
        "key_path": str(trust.files.key),
    }
    try:
        found = ContextFile({}, _OURS)
        if (path := context_path()).exists():
            if not path.read_text(encoding="utf-8").startswith((_OURS, _OURS_BEFORE)):
                return False
            found = read_contexts()
        write_contexts(ContextFile({**found.content, **ours}, found.comments))
    except (OSError, UnicodeDecodeError, SettingsError) as err:
        raise SetUpError(f"cannot write {context_path()}: {err}") from err
    return True
