"""The layout of src: folder size, package maps, fragments and ambiguous names.

Each exception has a reason.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping

FILES_MIN, FILES_MAX = 3, 12
FRAGMENT_LINES = 120
COMMAND_TABLES = "cli/framework/tables/"
PROCESS_FILES = frozenset({"__main__", "app", "settings"})

# Folders outside the usual size.
FOLDERS = {
    "": "errors.py, which every layer imports, and sdk.py, for programs of users",
    "agent/runtimes/docker": "also used by compose/, so it is not split by feature",
    "cli": "the two programs; all else is in subfolders",
    "cli/commands": "one module per command group, so that a command is found under its name",
    "client/grpc": "the gRPC transport; client/rest is its counterpart",
    "gateway/dashboard": "the files that it serves are in static/",
    "sim/checks": "one module per promise",
    "model": "small records without behaviour",
    "scheduler/discovery": "DNS records and the addresses in them",
    "scheduler/secrets": "the built-in store and the resolver",
    "wire/ca": "the messages of persys-ca",
    "wire/limits": "the table of limits and its check",
}
# Short modules with one importer.
_TLS = "every process has a tls module"
_RPCS = "one group of RPCs, found under the name of its feature"
_START_UP = "imported only when it is used: start-up time"
_LAYERS = "the feature has the same name in core and in the scheduler"
_RUNTIMES = "the runtimes have the same modules"
FRAGMENTS = {
    "infra/aio/adaptive_limit.py": "a mechanism of its own; steps.py is about steps",
    "gateway/tls.py": _TLS,
    "scheduler/auth/tls.py": _TLS,
    "agent/runtimes/compose/deviations.py": _RUNTIMES,
    "agent/runtimes/vm/usage.py": _RUNTIMES,
    "cli/connect/endpoints.py": _START_UP,
    "cli/hosts/options.py": _START_UP,
    "cli/local/whatif.py": _START_UP,
    "core/intent/diff.py": "persysctl imports only field_changes.py: start-up time",
    "core/jobs/retries.py": "run.py is one of the longest modules",
    "scheduler/api/control_stream.py": _RPCS,
    "scheduler/services/service_api.py": _RPCS,
    "scheduler/api/drift.py": _RPCS,
    "scheduler/api/logs_exec.py": _RPCS,
    "scheduler/auth/authorization.py": "used by the server, before a request reaches a replica",
    "scheduler/commit/store_guard.py": "used by the server, for the store of all replicas",
    "scheduler/membership/home_contacts.py": "a loop of its own; leases.py is about nodes",
    "sim/actors/set_users.py": "only clusters with sets have them",
    "sim/checks/jobs.py": "one module per promise",
    "sim/set_world.py": "an optional world, like pool_world.py",
    "scheduler/reconcile/operation_log.py": "reconciler.py is one of the longest modules",
}
# Names that occur twice in one package and mean the same in both places. The folders `api`, `commands` and
# `tables` repeat the names of the features that they serve.
MIRRORS = frozenset({"api", "commands", "tables"})
SHARED_NAMES = {
    "agent": {
        "console": "the sessions of all runtimes, and the console of a VM",
        "detect": "whether an engine or driver is available",
        "deviations": "how a container differs from its creation, per runtime",
        "runtime": "the Runtime port of an engine",
        "state_dir": "the files of one workload, per runtime",
        "store": "the files of an image store, the database of the journal",
        "usage": "CPU, memory and traffic of workloads, per runtime",
    },
    "core": {
        "changes": "what users change in sets or jobs",
        "checks": "which node pools, sets or jobs are valid",
        "members": "the members of sets or of runs",
        "situation": "the input and the output of a decision",
    },
    "scheduler": {
        "controller": "the loop of the leader over node pools, sets or jobs",
        "records": "stored records, in memory and of drift",
    },
    "wire": {"messages": "the messages of one contract"},
}


def folders_of(sources: Iterable[str]) -> dict[str, list[str]]:
    """The names of the modules in each folder, without `__init__`."""
    found = defaultdict[str, list[str]](list)
    for path in sources:
        folder, _, name = path.rpartition("/")
        if name != "__init__.py":
            found[folder].append(name.removesuffix(".py"))
    return found


def importers_of(trees: Mapping[str, ast.Module]) -> dict[str, set[str]]:
    """The paths of the modules that import each module. The command table names its functions in texts."""
    modules = {_module(path): path for path in trees}
    found = defaultdict[str, set[str]](set)
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                for alias in node.names:
                    name = f"{node.module}.{alias.name}"
                    target = modules.get(name) or modules.get(node.module)
                    if target is not None:
                        found[target].add(path)
    for path in (path for path in trees if path.startswith(COMMAND_TABLES)):
        for node in ast.walk(trees[path]):
            if isinstance(node, ast.Constant) and re.fullmatch(
                r"[a-z_.]+:[a-z_]+", str(node.value)
            ):
                target = modules.get(f"persys.cli.{str(node.value).partition(':')[0]}")
                if target is not None:
                    found[target].add(COMMAND_TABLES)
    return found


def _module(path: str) -> str:
    return "persys." + path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def test_a_folder_has_3_to_12_files(sources: dict[str, str]) -> None:
    breaches = {
        folder: len(names)
        for folder, names in folders_of(sources).items()
        if not FILES_MIN <= len(names) <= FILES_MAX and folder not in FOLDERS
    }

    assert breaches == {}


def test_the_docstring_of_a_package_is_its_map(trees: dict[str, ast.Module]) -> None:
    """It names every file of the folder."""
    missing = [
        f"{folder}/__init__.py does not name {name}.py"
        for folder, names in folders_of(trees).items()
        if folder
        for name in names
        if name != "__main__"
        and not re.search(rf"\b{name}\b", _docstring(trees[f"{folder}/__init__.py"]))
    ]

    assert missing == []


def _docstring(tree: ast.Module) -> str:
    return ast.get_docstring(tree) or ""


def test_a_short_module_has_two_importers(
    sources: dict[str, str], trees: dict[str, ast.Module]
) -> None:
    importers = importers_of(trees)
    fragments = {
        path
        for path, text in sources.items()
        if len(text.splitlines()) < FRAGMENT_LINES
        and len(importers[path]) == 1
        and COMMAND_TABLES not in importers[path]  # a command is in the module of its name
        and path.rpartition("/")[2].removesuffix(".py") not in {"__init__", *PROCESS_FILES}
    }

    assert fragments - FRAGMENTS.keys() == set()
    assert FRAGMENTS.keys() - fragments == set(), "no longer fragments"


def test_a_file_name_has_one_meaning_in_a_package(sources: dict[str, str]) -> None:
    used = defaultdict[tuple[str, str], set[str]](set)
    for folder, names in folders_of(sources).items():
        package, *rest = folder.split("/")
        if not MIRRORS & set(rest):
            for name in set(names) - PROCESS_FILES:
                used[package, name].add(folder)
    repeated = {key for key, folders in used.items() if len(folders) > 1}
    allowed = {(package, name) for package, names in SHARED_NAMES.items() for name in names}

    assert repeated - allowed == set()
    assert allowed - repeated == set(), "no longer used twice"


def test_a_module_is_not_named_by_a_gerund(sources: dict[str, str]) -> None:
    """Words that the field uses as nouns are listed."""
    nouns = {
        "balancing",
        "batching",
        "finding",
        "forwarding",
        "mapping",
        "paging",
        "planning",
        "ranking",
        "tracing",
        "transcoding",
    }
    gerunds = {
        path
        for folder, names in folders_of(sources).items()
        for name in names
        if re.fullmatch(r"[a-z]+ing", name) and name not in nouns
        for path in [f"{folder}/{name}.py"]
    }

    assert gerunds == set()
