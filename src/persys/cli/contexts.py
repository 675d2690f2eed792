"""Contexts: several clusters under names, one of them in use."""

import sys
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path

from persys.cli.context_file import DEFAULT, ContextFile, read_contexts, write_contexts
from persys.cli.exits import Exit, UsageError
from persys.cli.output import aligned, described, dump

# How the options of the command line are called in a context.
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


def list_contexts(options: Namespace) -> Exit:
    file = read_contexts()
    match options.output:
        case "name":
            print("\n".join(file.named))
        case "json" | "yaml":
            rows = [
                {"name": name, "current": name == file.current, **_shown(keys)}
                for name, keys in file.named.items()
            ]
            print(dump(rows, options.output))
        case _:
            cells = [
                ["*" if name == file.current else "", name, *_where(keys)]
                for name, keys in file.named.items()
            ]
            print(aligned([["", "NAME", "TRANSPORT", "ENDPOINT", "CLUSTER"], *cells]))
    return Exit.OK


def use(options: Namespace) -> Exit:
    write_contexts(read_contexts().using(options.name))
    print(f"{options.name} is in use")
    return Exit.OK


def show(options: Namespace) -> Exit:
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
            print(described(rows))
    return Exit.OK


def add(options: Namespace) -> Exit:
    """What the options of this command line say, under a name. What it says already stays."""
    keys = _said(options)
    if not keys:
        raise UsageError(
            "say how it is reached: --api URL for a gateway, --scheduler HOST:PORT for a scheduler"
        )
    file = read_contexts()
    known = options.name in file.named
    changed = file.with_context(options.name, keys)
    if options.use or file == ContextFile({}):
        changed = changed.using(options.name)
    write_contexts(changed)
    print(f"{options.name} is {'changed' if known else 'there'}", end="")
    print(" and in use" if changed.current == options.name else "")
    if changed.current != options.name:
        print(f"use it with `persysctl context use {options.name}`", file=sys.stderr)
    return Exit.OK


def remove(options: Namespace) -> Exit:
    write_contexts(read_contexts().without(options.name))
    print(f"{options.name} is forgotten; no certificate and no key was removed")
    return Exit.OK


def _said(options: Namespace) -> dict[str, object]:
    keys: dict[str, object] = {}
    for option, key in _KEYS.items():
        if value := getattr(options, option, None):
            keys[key] = str(Path(value).expanduser().absolute()) if option in _PATHS else value
    if options.api and options.scheduler:
        raise UsageError("--api names a gateway and --scheduler a scheduler: say one of them")
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
    """Whoever looks over a shoulder learns no secret."""
    return {
        key: "(hidden)" if any(key.endswith(word) for word in _SECRET) else value
        for key, value in keys.items()
    }


def names(file: ContextFile) -> list[tuple[str, str]]:
    """For the completion: each with where it leads."""
    return [(name, _where(keys)[1]) for name, keys in file.named.items() if keys or name != DEFAULT]
