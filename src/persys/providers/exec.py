"""The provider `exec`: programs of the operator create and destroy machines.

A set of programs is a directory that only the operator writes: a user who may create node pools selects a
set by name and cannot run another program. `create` and `destroy` are required. With a program `list`, the
machines are what it lists. Without it, this module keeps one file per machine in `records/` beside the
programs: written before `create` runs and removed after `destroy` has succeeded, so a machine whose creation
was interrupted is listed too. The id of a machine is then its name, and `create` and `destroy` are repeated
with the same name until they succeed.

A program reads one JSON object from stdin and writes one to stdout. The credentials of the pool are part of
the input. They are not its environment, because variables such as BASH_ENV would run other programs. Its exit
codes are those of sysexits.h.
"""

import asyncio
import os
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from persys.errors import ProviderRefusedError, ProviderThrottledError, ProviderUnavailableError
from persys.infra.atomic_files import write_file
from persys.infra.subprocesses import ProgramResult, run
from persys.providers.port import Instance, InstanceState, MachineRequest, retry_after

DEADLINE_SECONDS = 300.0
LIST_DEADLINE_SECONDS = 60.0
RETRY_AFTER = timedelta(seconds=30)
_ERROR_SHOWN_MAX = 500

# Exit codes of sysexits.h: wrong usage or data, missing input, no permission, wrong configuration.
_REFUSED = frozenset({64, 65, 66, 77, 78})
_TEMPORARY_FAILURE = 75  # nothing was changed

Answer = TypeVar("Answer")


class _Created(Struct):
    provider_id: str
    state: InstanceState = InstanceState.RUNNING
    address: str = ""
    created_at: datetime | None = None


class _Listed(_Created, kw_only=True):
    name: str
    tags: dict[str, str]


class _List(Struct):
    instances: list[_Listed]


class _Destroyed(Struct):
    """The output of `destroy` has no fields."""


class _TryLater(Struct):
    retry_after_seconds: float = 0.0


class _Record(Struct):
    """`created` is None until `create` has succeeded."""

    name: str
    tags: dict[str, str]
    created: _Created | None = None


class ExecProvider:
    """Implements Provider with the programs of one directory."""

    def __init__(
        self,
        programs: Path,
        *,
        credentials: Mapping[str, str],
        deadline_seconds: float = DEADLINE_SECONDS,
    ) -> None:
        self._programs = programs
        self._credentials = dict(credentials)
        self._deadline_seconds = deadline_seconds
        self._records = None if (programs / "list").exists() else _Records(programs / "records")

    async def check(self) -> None:
        for name in ("create", "destroy"):
            if not await asyncio.to_thread(os.access, self._programs / name, os.X_OK):
                raise ProviderRefusedError(
                    f"invalid program '{self._programs / name}': expected an executable file"
                )
        if self._records is not None:
            await asyncio.to_thread(self._records.check)
        await self.instances({})

    async def create(self, request: MachineRequest) -> Instance:
        if self._records is None:
            return await self._create_listed(request)
        return await self._create_recorded(request, self._records)

    async def _create_listed(self, request: MachineRequest) -> Instance:
        for instance in await self.instances(request.tags):
            if instance.name == request.name:
                return instance
        created = await self._call("create", msgspec.to_builtins(request), _Created)
        return _instance(created, request.name, request.tags)

    async def _create_recorded(self, request: MachineRequest, records: "_Records") -> Instance:
        record = await asyncio.to_thread(records.get, request.name)
        if record is not None and record.created is not None:
            return _recorded(record)
        if record is None:
            await asyncio.to_thread(records.put, _Record(request.name, request.tags))
        try:
            created = await self._call("create", msgspec.to_builtins(request), _Created)
        except (ProviderRefusedError, ProviderThrottledError):
            if record is None:  # else an earlier call may have created it
                await asyncio.to_thread(records.remove, request.name)
            raise
        record = _Record(request.name, request.tags, created)
        await asyncio.to_thread(records.put, record)
        return _recorded(record)

    async def instances(self, tags: Mapping[str, str]) -> list[Instance]:
        if self._records is None:
            listed = await self._call("list", {"tags": dict(tags)}, _List)
            found = [_instance(each, each.name, each.tags) for each in listed.instances]
        else:
            found = [_recorded(each) for each in await asyncio.to_thread(self._records.all)]
        return [instance for instance in found if tags.items() <= instance.tags.items()]

    async def destroy(self, provider_id: str) -> None:
        if self._records is None:
            await self._call("destroy", {"provider_id": provider_id}, _Destroyed)
            return
        record = await asyncio.to_thread(self._records.get, provider_id)
        if record is None:
            return
        created_id = "" if record.created is None else record.created.provider_id
        given = {"provider_id": created_id, "name": record.name}
        await self._call("destroy", given, _Destroyed)
        await asyncio.to_thread(self._records.remove, record.name)

    async def close(self) -> None:
        """There is nothing to release."""

    async def _call(self, name: str, given: Mapping[str, object], answer: type[Answer]) -> Answer:
        stdin = msgspec.json.encode({**given, "credentials": self._credentials})
        env = {"PATH": os.environ.get("PATH", os.defpath)}
        deadline = LIST_DEADLINE_SECONDS if name == "list" else self._deadline_seconds
        command = [str(self._programs / name)]
        try:
            result = await run(command, env=env, deadline=deadline, stdin=stdin)
        except TimeoutError as err:
            raise ProviderUnavailableError(
                f"program '{name}' did not exit within {deadline:g} s and was killed"
            ) from err
        except OSError as err:
            raise ProviderRefusedError(f"program '{name}' cannot be started: {err}") from err
        return _answer(name, result, answer)


def _answer(name: str, result: ProgramResult, answer: type[Answer]) -> Answer:
    problem = result.err.strip()[-_ERROR_SHOWN_MAX:] or "it wrote nothing to stderr"
    text = f"program '{name}' exited with code {result.code}: {problem}"
    if result.code == _TEMPORARY_FAILURE:
        try:
            later = msgspec.json.decode(result.out or "{}", type=_TryLater)
        except msgspec.DecodeError:
            later = _TryLater()
        after = retry_after(later.retry_after_seconds, RETRY_AFTER)
        raise ProviderThrottledError(text, retry_after=after)
    if result.code in _REFUSED:
        raise ProviderRefusedError(text)
    if not result.ok:
        raise ProviderUnavailableError(text)
    if result.is_cut:
        raise ProviderUnavailableError(f"program '{name}': its output exceeds the limit")
    try:
        return msgspec.json.decode(result.out.strip() or "{}", type=answer)
    except msgspec.DecodeError as err:
        raise ProviderUnavailableError(f"program '{name}': invalid output: {err}") from err


def _instance(created: _Created, name: str, tags: dict[str, str]) -> Instance:
    return Instance(
        provider_id=created.provider_id,
        name=name,
        tags=tags,
        state=created.state,
        created_at=created.created_at,
        address=created.address,
    )


def _recorded(record: _Record) -> Instance:
    created = record.created or _Created(record.name, InstanceState.PENDING)
    return msgspec.structs.replace(
        _instance(created, record.name, record.tags), provider_id=record.name
    )


class _Records:
    """One file per machine. All functions block, and raise ProviderUnavailableError."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def check(self) -> None:
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as err:
            raise ProviderRefusedError(
                f"cannot create the directory of records: {err}; add a program 'list' instead"
            ) from err

    def get(self, name: str) -> _Record | None:
        path = self._folder / f"{name}.json"
        try:
            return msgspec.json.decode(path.read_bytes(), type=_Record)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError) as err:
            raise ProviderUnavailableError(f"record {path} cannot be read: {err}") from err

    def all(self) -> list[_Record]:
        try:
            names = sorted(path.stem for path in self._folder.glob("*.json"))
        except OSError as err:
            raise ProviderUnavailableError(f"records cannot be listed: {err}") from err
        return [record for name in names if (record := self.get(name)) is not None]

    def put(self, record: _Record) -> None:
        path = self._folder / f"{record.name}.json"
        try:
            write_file(path, msgspec.json.encode(record))
        except OSError as err:
            raise ProviderUnavailableError(f"record {path} cannot be written: {err}") from err

    def remove(self, name: str) -> None:
        path = self._folder / f"{name}.json"
        try:
            path.unlink(missing_ok=True)
        except OSError as err:
            raise ProviderUnavailableError(f"record {path} cannot be removed: {err}") from err
