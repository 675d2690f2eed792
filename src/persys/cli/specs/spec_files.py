"""Reads the spec files of a command. An error names the file, the line and the column."""

import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from persys.cli.framework.exit_codes import UsageError
from persys.cli.specs.sources import Source, read_sources, read_variables
from persys.errors import InvalidError
from persys.wire.gen.control.v1.control_pb2 import ApplyWorkloadRequest, NodePoolSpec

if TYPE_CHECKING:
    from persys.wire.specfile.overrides import Overrides
    from persys.wire.specfile.parser import Document, PoolDocument, SpecDocument


@dataclass(frozen=True, slots=True)
class Spec:
    """One workload, and the file it comes from."""

    file: str
    document: "SpecDocument"

    @property
    def id(self) -> str:
        return self.document.id

    @property
    def request(self) -> ApplyWorkloadRequest:
        return self.document.request

    @property
    def is_compose_file(self) -> bool:
        return self.document.compose is not None

    def located(self, error: str) -> str:
        """Prefix a server's error with `FILE:LINE:COLUMN:` of the field that it names, if it names one."""
        return _located(self.file, self.document, error)


@dataclass(frozen=True, slots=True)
class Pool:
    """One node pool, and the file it comes from."""

    file: str
    document: "PoolDocument"

    @property
    def id(self) -> str:
        return self.document.id

    @property
    def pool(self) -> NodePoolSpec:
        return self.document.pool

    def located(self, error: str) -> str:
        return _located(self.file, self.document, error)


@dataclass(frozen=True, slots=True)
class Specs:
    """What the files of a command contain, in the given order."""

    workloads: tuple[Spec, ...] = ()
    pools: tuple[Pool, ...] = ()

    @property
    def requests(self) -> list[ApplyWorkloadRequest]:
        return [spec.request for spec in self.workloads]

    def only_workloads(self) -> tuple[Spec, ...]:
        """For a command that does not support node pools."""
        for pool in self.pools:
            raise UsageError(f"{pool.file}: expected workloads; {pool.id} is a node pool")
        return self.workloads


def read(options: Namespace) -> Specs:
    """All workloads and node pools of -f, with the changes of --set, --env-file and --interpolate."""
    return parse(
        list(read_sources(options.file, recursive=getattr(options, "recursive", False))),
        stack_id=getattr(options, "id", ""),
        overrides=_overrides(options),
    )


def parse(
    sources: Sequence[Source], *, stack_id: str = "", overrides: "Overrides | None" = None
) -> Specs:
    """Raises UsageError for the first error."""
    found: dict[tuple[type, str], Spec | Pool] = {}
    for source in sources:
        for spec in _parse_source(source, stack_id, overrides):
            key = (type(spec), spec.id)
            if key in found:
                raise UsageError(f"{spec.file}: id: {spec.id!r} is also in {found[key].file}")
            found[key] = spec
    workloads = tuple(spec for spec in found.values() if isinstance(spec, Spec))
    if stack_id and not any(spec.is_compose_file for spec in workloads):
        raise UsageError("--id needs a Compose file, and none of the files is one")
    return Specs(workloads, tuple(pool for pool in found.values() if isinstance(pool, Pool)))


def print_compose_files(specs: Specs, options: Namespace, done: str) -> None:
    """Name the Compose files that are used as stacks. `done` is what the command does with them."""
    for spec in specs.workloads:
        if not spec.is_compose_file:
            continue
        if options.output in (None, "table", "wide"):
            print(f"{spec.file}: Compose file, {done} as stack {spec.id!r}")
        for name, at in spec.document.missing:
            print(
                f"warning: {at.prefix(spec.file)}: variable {name} is not set and is replaced by an "
                "empty text; use --env-file, --interpolate or --set compose.env."
                f"{name}=VALUE",
                file=sys.stderr,
            )


def _parse_source(
    source: Source, stack_id: str, overrides: "Overrides | None"
) -> list[Spec | Pool]:
    from persys.wire.specfile.overrides import UNCHANGED
    from persys.wire.specfile.parser import SpecDocument, read_documents
    from persys.wire.specfile.strict import SpecFileError

    try:
        documents = read_documents(
            source.text,
            stack_id=stack_id,
            directory=source.directory,
            overrides=overrides or UNCHANGED,
            has_positions=not source.is_generated,
        )
    except SpecFileError as err:
        raise UsageError(f"{err.at.prefix(source.shown)}: {err}") from err
    return [
        Spec(source.shown, document)
        if isinstance(document, SpecDocument)
        else Pool(source.shown, document)
        for document in documents
    ]


def _overrides(options: Namespace) -> "Overrides":
    from persys.wire.specfile.overrides import Overrides, parse_assignment

    file = getattr(options, "env_file", "")
    from_file = read_variables(file) if file else {}
    variables = dict(from_file) if file else None
    if getattr(options, "interpolate", False):
        variables = {**from_file, **os.environ}
    try:
        assignments = tuple(parse_assignment(text) for text in getattr(options, "set", ()))
    except InvalidError as err:
        raise UsageError(str(err)) from err
    return Overrides(variables, from_file, assignments)


def _located(file: str, document: "Document", error: str) -> str:
    from persys.wire.specfile.document import split_field

    field, problem = split_field(error)
    if not field:
        return error
    at, field, problem = document.located(field, problem)
    return f"{at.prefix(file)}: {field}: {problem}"
