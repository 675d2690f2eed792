"""Reads the spec files of a command. An error names the file, the line and the column."""

import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from persys.cli.framework.exit_codes import UsageError
from persys.cli.specs.sources import Source, read_sources, read_variables
from persys.client.grpc.channel import RequestRefusedError
from persys.errors import InvalidError
from persys.wire.gen.control.v1.control_pb2 import ApplyWorkloadRequest

if TYPE_CHECKING:
    from persys.wire.specfile.overrides import Overrides
    from persys.wire.specfile.spec_documents import (
        Document,
        JobDocument,
        PoolDocument,
        ServiceDocument,
        SetDocument,
        SpecDocument,
    )


DocumentT = TypeVar("DocumentT", bound="Document")


@dataclass(frozen=True, slots=True)
class InFile(Generic[DocumentT]):
    """One document, and the file it comes from."""

    file: str
    document: DocumentT

    @property
    def id(self) -> str:
        return self.document.id

    def located(self, error: str) -> str:
        """Prefix a server's error with `FILE:LINE:COLUMN:` of the field that it names, if it names one."""
        from persys.wire.specfile.document import split_field

        field, problem = split_field(error)
        if not field:
            return error
        at, field, problem = self.document.located(field, problem)
        return f"{at.prefix(self.file)}: {field}: {problem}"

    def refusal(self, err: InvalidError | RequestRefusedError) -> RequestRefusedError:
        """The refusal of the scheduler with the position of the field that it names."""
        located = self.located(str(err))
        reason = err.reason if isinstance(err, RequestRefusedError) else ""
        names_a_field = located != str(err)
        return RequestRefusedError(located, reason=reason or "INVALID_SPEC" * names_a_field)


@dataclass(frozen=True, slots=True)
class Specs:
    """What the files of a command contain, in the given order."""

    workloads: "tuple[InFile[SpecDocument], ...]" = ()
    pools: "tuple[InFile[PoolDocument], ...]" = ()
    sets: "tuple[InFile[SetDocument], ...]" = ()
    jobs: "tuple[InFile[JobDocument], ...]" = ()
    services: "tuple[InFile[ServiceDocument], ...]" = ()

    @property
    def requests(self) -> list[ApplyWorkloadRequest]:
        return [spec.document.request for spec in self.workloads]

    def only_workloads(self) -> "tuple[InFile[SpecDocument], ...]":
        """For a command that supports nothing else."""
        others: list[tuple[str, Document]] = [
            *((each.file, each.document) for each in self.pools),
            *((each.file, each.document) for each in self.sets),
            *((each.file, each.document) for each in self.jobs),
            *((each.file, each.document) for each in self.services),
        ]
        for file, document in others:
            raise UsageError(f"{file}: expected workloads; {document.id} is a {document.noun}")
        return self.workloads

    @property
    def ids(self) -> list[str]:
        """The ids of everything but services and node pools."""
        found = [each.id for each in self.workloads]
        return [*found, *(each.id for each in self.sets), *(each.id for each in self.jobs)]


def read(options: Namespace) -> Specs:
    """All documents of -f, with the changes of --set, --env-file and --interpolate."""
    return parse(
        list(read_sources(options.file, recursive=getattr(options, "recursive", False))),
        stack_id=getattr(options, "id", ""),
        overrides=_overrides(options),
    )


def parse(
    sources: Sequence[Source], *, stack_id: str = "", overrides: "Overrides | None" = None
) -> Specs:
    """Raises UsageError for the first error."""
    from persys.wire.specfile.spec_documents import (
        JobDocument,
        PoolDocument,
        ServiceDocument,
        SetDocument,
        SpecDocument,
    )

    found: dict[tuple[str, str], tuple[str, Document]] = {}
    for source in sources:
        for document in _parse_source(source, stack_id, overrides):
            key = (document.names, document.id)
            if key in found:
                also = found[key][0]
                raise UsageError(f"{source.shown}: id: {document.id!r} is also in {also}")
            found[key] = (source.shown, document)
    if stack_id and not any(
        isinstance(each, SpecDocument) and each.compose is not None for _, each in found.values()
    ):
        raise UsageError("--id needs a Compose file, and none of the files is one")

    def of(kind: type[DocumentT]) -> tuple[InFile[DocumentT], ...]:
        return tuple(InFile(file, each) for file, each in found.values() if isinstance(each, kind))

    return Specs(
        of(SpecDocument), of(PoolDocument), of(SetDocument), of(JobDocument), of(ServiceDocument)
    )


def print_compose_files(specs: Specs, options: Namespace, done: str) -> None:
    """Name the Compose files that are used as stacks. `done` is what the command does with them."""
    for spec in specs.workloads:
        if spec.document.compose is None:
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


def _parse_source(source: Source, stack_id: str, overrides: "Overrides | None") -> "list[Document]":
    from persys.wire.specfile.overrides import UNCHANGED
    from persys.wire.specfile.parser import read_documents
    from persys.wire.specfile.strict import SpecFileError

    try:
        return read_documents(
            source.text,
            stack_id=stack_id,
            directory=source.directory,
            overrides=overrides or UNCHANGED,
            has_positions=not source.is_generated,
        )
    except SpecFileError as err:
        raise UsageError(f"{err.at.prefix(source.shown)}: {err}") from err


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
