"""`persysctl context`: named clusters, one of them current."""

import sys
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path

from persys.cli.connect.context_file import DEFAULT, ContextFile, read_contexts, write_contexts
from persys.cli.framework.exit_codes import ExitCode, UsageError
from persys.cli.framework.output import align_columns, dump, key_value_lines

# The key in a context for each option of the command line.
_KEYS = {
    "api": "api_endpoint",
    "scheduler": "grpc_endpoint",
    "cluster": "cluster",
    "insecure": "grpc_insecure",
    "ca": "ca_cert_path",
    "cert": "cert_path",
    "key": "key_path",
    "token_file": "token_file",
    "authority": "ca_endpoint",
    "agent": "agent_endpoint",
}
_PATHS = frozenset({"ca", "cert", "key", "token_file"})
_SECRET = ("token", "password", "secret")


def list_contexts(options: Namespace) -> ExitCode:
    file = read_contexts()
    match options.output:
        case "name":
            print("\n".join(file.contexts))
        case "json" | "yaml":
            rows = [
                {"name": name, "current": name == file.current, **_shown(keys)}
                for name, keys in file.contexts.items()
            ]
            print(dump(rows, options.output))
        case _:
            cells = [
                ["*" if name == file.current else "", name, *_where(keys)]
                for name, keys in file.contexts.items()
            ]
            print(align_columns([["", "NAME", "TRANSPORT", "ENDPOINT", "CLUSTER"], *cells]))
    return ExitCode.OK


def use(options: Namespace) -> ExitCode:
    write_contexts(read_contexts().with_current(options.name))
    print(f"{options.name} is the current context")
    return ExitCode.OK


def show(options: Namespace) -> ExitCode:
    file = read_contexts()
    name = options.name or options.context or file.current
    keys = _shown(file.keys_of(name))
    match options.output:
        case "name":
            print(name)
        case "json" | "yaml":
            print(dump({"name": name, **keys}, options.output))
        case _:
            rows = [("Name", name), *((key, str(value)) for key, value in keys.items())]
            print(key_value_lines(rows))
    return ExitCode.OK


def add(options: Namespace) -> ExitCode:
    """Save the options of this command line under a name. Other keys of an existing context stay."""
    keys = _keys_from_options(options)
    if not keys:
        raise UsageError(
            "a context needs an address: --api URL for a gateway, --scheduler HOST:PORT for a scheduler"
        )
    file = read_contexts()
    known = options.name in file.contexts
    changed = file.with_context(options.name, keys)
    if options.use or file == ContextFile({}):
        changed = changed.with_current(options.name)
    write_contexts(changed)
    current = " and is the current context" if changed.current == options.name else ""
    print(f"{options.name} was {'changed' if known else 'added'}{current}")
    if not current:
        print(f"use it with `persysctl context use {options.name}`", file=sys.stderr)
    return ExitCode.OK


def remove(options: Namespace) -> ExitCode:
    write_contexts(read_contexts().without(options.name))
    print(f"{options.name} was removed; its certificate and key files were kept")
    return ExitCode.OK


def _keys_from_options(options: Namespace) -> dict[str, object]:
    keys: dict[str, object] = {}
    for option, key in _KEYS.items():
        if value := getattr(options, option, None):
            keys[key] = str(Path(value).expanduser().absolute()) if option in _PATHS else value
    if options.api and options.scheduler:
        raise UsageError("--api and --scheduler cannot be combined: name a gateway or a scheduler")
    if options.api or options.scheduler:
        keys["transport"] = "http" if options.api else "grpc"
    return keys


def _where(keys: Mapping[str, object]) -> tuple[str, str, str]:
    http = keys.get("transport") == "http" or (
        "transport" not in keys and "api_endpoint" in keys and "grpc_endpoint" not in keys
    )
    endpoint = keys.get("api_endpoint" if http else "grpc_endpoint", "-")
    return ("http" if http else "grpc", str(endpoint), str(keys.get("cluster", "-")))


def _shown(keys: Mapping[str, object]) -> dict[str, object]:
    """The keys to print, with secrets hidden."""
    return {
        key: "(hidden)" if any(key.endswith(word) for word in _SECRET) else value
        for key, value in keys.items()
    }


def names(file: ContextFile) -> list[tuple[str, str]]:
    """For completion: each context with its endpoint."""
    return [
        (name, _where(keys)[1]) for name, keys in file.contexts.items() if keys or name != DEFAULT
    ]
