"""`persysctl run`: a container from options, as with `docker run`. It is applied like a spec file."""

import re
from argparse import Namespace
from collections.abc import Mapping, Sequence

from persys.cli.commands.lookup import find_set
from persys.cli.commands.workload_change import find_workload
from persys.cli.connect.clients import scheduler_client
from persys.cli.framework.exit_codes import ExitCode, UsageError
from persys.cli.specs.apply import apply_specs
from persys.cli.specs.sources import SUFFIXES, Source
from persys.cli.specs.spec_files import parse
from persys.errors import RefusedError

_SIZE = re.compile(r"(?P<number>\d+(?:\.\d+)?)(?P<unit>[mMgG])(?:i?[bB])?")
_MILLICORES = re.compile(r"(?P<number>\d+)m")
_CORES = re.compile(r"\d+(?:\.\d+)?")
_MB_PER_GB = 1024
_PULL = {"always": "Always", "missing": "IfNotPresent", "never": "Never"}
_SHOWN = "command line"


def start(options: Namespace) -> int:
    name, image = _name_and_image(options)
    document = _document(options, name, image)
    if options.dry_run and options.output == "yaml":
        from persys.core import bounded_yaml

        print(bounded_yaml.dump(document), end="")
        return ExitCode.OK
    specs = parse([_source(document)])
    with scheduler_client(options) as client:
        if find_workload(client, name) is not None or find_set(client, name) is not None:
            raise RefusedError(
                f"{name} already exists; change it with `persysctl edit {name}`, or delete it with "
                f"`persysctl delete {name}`"
            )
    if options.dry_run:
        from persys.cli.commands.plan import show_dry_run

        return show_dry_run(options, specs)
    return apply_specs(options, specs)


def _source(document: dict[str, object]) -> Source:
    import json

    return Source(_SHOWN, json.dumps(document), is_generated=True)


def _name_and_image(options: Namespace) -> tuple[str, str]:
    """`run NAME --image IMAGE`, or `run --name NAME IMAGE` as with docker."""
    subject = options.subject
    if options.image and options.name and subject:
        # With both options, the operand is the first word of the command.
        options.command = [subject, *options.command]
        return options.name, options.image
    if options.image and (options.name or subject):
        return options.name or subject, options.image
    if options.name and subject:
        return options.name, subject
    if subject.endswith(SUFFIXES):
        raise UsageError(f"{subject} is a file; use `persysctl apply -f {subject}`")
    example = subject.rpartition("/")[2].partition(":")[0] or "web"
    image = subject or "nginx"
    raise UsageError(
        "expected a name and an image, for example "
        f"`persysctl run {'my-' if subject else ''}{example} --image {image}`"
    )


def _document(options: Namespace, name: str, image: str) -> dict[str, object]:
    """A spec file in the flat format, with the options that are set."""
    mounts = [_mount(text) for text in options.volume]
    container: dict[str, object] = {
        "image": image,
        "command": options.command,
        "env": _pairs(options.env, "--env"),
        "labels": _pairs(options.label, "--label"),
        "ports": options.publish,
        "volumes": [each for each in mounts if isinstance(each, str)],
        "managed_volumes": [each for each in mounts if not isinstance(each, str)],
        "restart_policy": options.restart,
        "health_check": _health(options),
        "image_pull_policy": _PULL.get(options.pull or "", ""),
    }
    resources = {
        "cpu_millicores": _millicores(options.cpu) if options.cpu else 0,
        "memory_mb": _megabytes(options.memory) if options.memory else 0,
    }
    return _without_empty(
        {
            "id": name,
            "replicas": options.replicas,
            "resources": _without_empty(resources),
            "container": _without_empty(container),
        }
    )


def _without_empty(document: Mapping[str, object]) -> dict[str, object]:
    return {key: value for key, value in document.items() if value}


def _pairs(texts: Sequence[str], option: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise UsageError(
                f"invalid {option} {text!r}: expected NAME=VALUE, for example MODE=test"
            )
        found[name] = value
    return found


def _mount(text: str) -> str | dict[str, object]:
    """A path of the node as in spec files, or a managed volume `NAME:/path[:ro]`."""
    name, *rest = text.split(":")
    if name.startswith("/"):
        return text
    if not name or not rest or not rest[0].startswith("/") or rest[1:] not in ([], ["ro"], ["rw"]):
        raise UsageError(
            f"invalid --volume {text!r}: expected NAME:/path or /host/path:/path, with :ro for read-only"
        )
    mount: dict[str, object] = {"name": name, "mount_path": rest[0]}
    return {**mount, "read_only": True} if rest[1:] == ["ro"] else mount


def _health(options: Namespace) -> object:
    if options.health_cmd and options.health:
        raise UsageError("--health and --health-cmd cannot be combined")
    if options.health_cmd:
        return {"command": ["sh", "-c", options.health_cmd]}
    return options.health


def _millicores(text: str) -> int:
    if found := _MILLICORES.fullmatch(text):
        return int(found["number"])
    if not _CORES.fullmatch(text):
        raise UsageError(f"invalid --cpu {text!r}: expected cores, for example 0.5 or 500m")
    return round(float(text) * 1000)


def _megabytes(text: str) -> int:
    found = _SIZE.fullmatch(text)
    if found is None:
        raise UsageError(f"invalid --memory {text!r}: expected a size, for example 256m or 2g")
    factor = _MB_PER_GB if found["unit"].lower() == "g" else 1
    return round(float(found["number"]) * factor)
