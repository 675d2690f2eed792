"""Turns an order into the document that Compose executes: write or fetch, resolve, check.

The resolved document is checked, and exactly that document is executed; no file is read again. Files that
Compose reads during resolution (includes, env files) must be inside the project and are checked before.

`prepare` changes nothing that a running container mounts, so that a stack runs on if a later part of its
update fails. `place` then updates the files.
"""

import asyncio
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import structlog

from persys.agent.runtimes.compose import document as documents
from persys.agent.runtimes.compose.checkouts import copy_files, names_in, remove_escaping_links
from persys.agent.runtimes.compose.cli import ComposeCli, Project, env_text, error_text
from persys.agent.runtimes.compose.document import Document, project_env, references_problem
from persys.agent.runtimes.compose.git import FetchError, Git, is_local, problem_with_local
from persys.agent.runtimes.compose.state_dir import StackRecord, StackStateDir
from persys.agent.runtimes.host_paths import HostBind, HostPathError, open_below
from persys.agent.volumes.managed import storage_failure
from persys.agent.workloads.node_policy import NodePolicy
from persys.core.agent import compose_policy
from persys.core.agent.compose_status import ServicePlan
from persys.core.agent.report import effective_env
from persys.errors import InvalidError
from persys.infra.aio.offload import off_loop
from persys.infra.aio.path_calls import LONG_SECONDS, PathCalls, PathTimeoutError
from persys.infra.atomic_files import write_file
from persys.infra.subprocesses import OUTPUT_BYTES_MAX
from persys.model.spec import ComposeSpec, PullPolicy
from persys.model.status import Failure, FailureReason
from persys.model.workload import Order
from persys.wire.agent.legacy_agents import RUNTIME_NOT_AVAILABLE
from persys.wire.compose.compose_file import PROFILES, StackFile, read_resolved
from persys.wire.compose.source import compose_text

log = structlog.get_logger()

CONFIG_DEADLINE_SECONDS = 60.0
CONFIGS_MAX = 4  # at once
_NAMES = ("compose.yaml", "compose.yml", "docker-compose.yaml", "docker-compose.yml")
_PULL_POLICIES = {"always": PullPolicy.ALWAYS, "never": PullPolicy.NEVER}
_OUTSIDE = "is outside the repository"
_IN_MEMORY = Path("/dev/shm")  # noqa: S108  # a directory with a random name is created in it


@dataclass(frozen=True, slots=True)
class Prepared:
    """A checked document with everything that is needed to execute it."""

    record: StackRecord
    document: Document
    binds: tuple[HostBind, ...]
    images: dict[str, PullPolicy]
    is_built: bool
    variables: dict[str, str] = field(repr=False)
    # Links that were removed from the export. None: its containers mount no files of a repository.
    links: Mapping[str, str] | None = None


class _Checkout(NamedTuple):
    """The commit of a git stack; "" for an inline file. `links`: removed links of its export."""

    commit: str = ""
    links: Mapping[str, str] = MappingProxyType({})


class ComposeSource:
    def __init__(
        self,
        cli: ComposeCli,
        git: Git | None,
        policy: NodePolicy,
        paths: PathCalls,
        *,
        pids_max: int,
    ) -> None:
        self._cli = cli
        self._paths = paths
        self._config_slots = asyncio.Semaphore(CONFIGS_MAX)
        self._git = git
        self._policy = policy
        self._pids_max = pids_max

    async def prepare(
        self, order: Order, state_dir: StackStateDir, name: str, queued: Callable[[str], None]
    ) -> Prepared | Failure:
        """`queued` is called with the reason while it waits."""
        try:
            return await self._prepare(order, state_dir, name, queued)
        except InvalidError as err:
            return _invalid(str(err))
        except (FetchError, HostPathError) as err:
            return err.failure
        except OSError as err:
            return storage_failure("files of the stack", err)

    async def _prepare(
        self, order: Order, state_dir: StackStateDir, name: str, queued: Callable[[str], None]
    ) -> Prepared | Failure:
        spec = compose_spec(order)
        await self._paths.run(state_dir.root, state_dir.create)
        checkout = _Checkout()
        if spec.source_type == "git":
            if self._git is None:
                text = "git is not installed on this node"
                return Failure(FailureReason.RUNTIME_ERROR, text, code=RUNTIME_NOT_AVAILABLE)
            checkout = await self._check_out(self._git, order, state_dir, queued)
        resolved = await self._resolve(spec, state_dir, name, checkout.commit, queued)
        if isinstance(resolved, Failure):
            return resolved
        found, document = await self._read(resolved, spec, state_dir, name, checkout)
        if not self._policy.allow_privileged:
            self._refuse_violations(document)
        links = checkout.links
        await self._paths.run(
            state_dir.root, partial(self._check_builds, document, state_dir, links)
        )
        binds = self._binds(found, document, state_dir, links if checkout.commit else None)
        hashes = await self._hashes(document, found, state_dir, checkout.commit)
        document, variables = documents.with_values(document, effective_env(spec))
        mounts_files = bool(checkout.commit) and str(state_dir.export) in json.dumps(document)
        files = await self._files(state_dir, links if mounts_files else None)
        record = _record(order, name, found, state_dir, hashes, checkout.commit, files)
        await self._paths.run(state_dir.root, partial(state_dir.write_planned, record))
        document = self._executable(document, state_dir, name)
        return Prepared(
            record,
            document,
            tuple(binds),
            images=_images(document),
            is_built=any(service.is_built for service in found.services),
            variables=variables,
            links=links if mounts_files else None,
        )

    async def place(self, prepared: Prepared, state_dir: StackStateDir) -> Failure | None:
        """Update the files of a repository that containers mount."""
        before = await self._paths.run(state_dir.root, state_dir.read_applied)
        previous = frozenset(before.files if before is not None else ())
        if prepared.links is None:
            update = partial(_remove, state_dir.source / ".git")
        else:
            update = partial(
                copy_files,
                state_dir.export,
                state_dir.source,
                links=prepared.links,
                previous=previous,
            )
        try:
            await self._paths.run(state_dir.root, update, deadline_seconds=LONG_SECONDS)
        except OSError as err:
            return storage_failure("files of the stack", err)
        return None

    async def _check_out(
        self, git: Git, order: Order, state_dir: StackStateDir, queued: Callable[[str], None]
    ) -> "_Checkout":
        """Fetch the commit and export its files, without links that lead out of the export."""
        commit = await self._fetch(git, order, compose_spec(order), state_dir, queued)
        await self._paths.run(state_dir.root, state_dir.empty_export, deadline_seconds=LONG_SECONDS)
        await git.export(state_dir.repository, commit, state_dir.export)
        remove = partial(remove_escaping_links, state_dir.export)
        links = await self._paths.run(state_dir.root, remove, deadline_seconds=LONG_SECONDS)
        return _Checkout(commit, links)

    async def _read(
        self,
        resolved: str,
        spec: ComposeSpec,
        state_dir: StackStateDir,
        name: str,
        checkout: "_Checkout",
    ) -> tuple[StackFile, Document]:
        """The resolved project and its document, both with the active services only."""
        inside = str(state_dir.export) if checkout.commit else ""
        text = await off_loop(partial(compose_text, resolved, "the Compose file"))
        found = await off_loop(partial(read_resolved, text, project=name, inside=inside))
        document = await off_loop(partial(documents.load, text))
        document = documents.with_active_services(document, self._profiles(spec))
        active = documents.section(document, "services")
        services = tuple(service for service in found.services if service.name in active)
        return found._replace(services=services), document

    def _executable(self, document: Document, state_dir: StackStateDir, name: str) -> Document:
        """The document with the paths, image names and limits that it is executed with."""
        document = documents.with_moved_paths(document, old=state_dir.export, new=state_dir.source)
        document = documents.with_own_images(document, name)
        return documents.with_pids_limit(document, self._pids_max, is_v1=self._cli.is_v1)

    def _profiles(self, spec: ComposeSpec) -> frozenset[str]:
        """Profiles to filter by; v2 already prints only services of active profiles."""
        profiles = frozenset(spec.env.get(PROFILES, "").split(",")) - {""}
        return profiles if self._cli.is_v1 else frozenset("*")

    async def _fetch(
        self,
        git: Git,
        order: Order,
        spec: ComposeSpec,
        state_dir: StackStateDir,
        queued: Callable[[str], None],
    ) -> str:
        """Fetch and return the commit. A deployed revision stays on its commit."""
        local = is_local(spec.git_repo)
        if local is not None:
            await self._paths.run(local, partial(self._check_local, local))
        applied = await self._paths.run(state_dir.root, state_dir.read_applied)
        is_same = applied is not None and applied.revision == order.revision
        return await git.fetch(
            state_dir.repository,
            repository=spec.git_repo,
            ref=spec.git_ref,
            credential=spec.git_credential,
            commit=applied.commit if applied is not None and is_same else "",
            queued=queued,
        )

    def _check_local(self, repository: Path) -> None:
        """Raises InvalidError, HostPathError."""
        problem = self._policy.problem_with(str(repository))
        if not problem:
            bind = self._policy.bind(str(repository), "")
            os.close(open_below(bind.root, bind.source))
            problem = problem_with_local(repository)
        if problem:
            raise InvalidError("spec.compose.git_repo", problem)

    async def _resolve(
        self,
        spec: ComposeSpec,
        state_dir: StackStateDir,
        name: str,
        commit: str,
        queued: Callable[[str], None],
    ) -> str | Failure:
        """The output of `config`. Values are in files only while it runs, on tmpfs if possible."""
        work = await self._paths.run(
            state_dir.root, partial(_work_directory, state_dir), discard=_remove
        )
        try:
            file = await self._paths.run(
                state_dir.root, partial(self._write, spec, state_dir, work)
            )
            if file is None:
                where = spec.git_path or "the top level"
                return _invalid(f"no Compose file found at {where} of commit {commit}")
            base = state_dir.export if commit else work
            check = partial(references_problem, file, base)
            if problem := await self._paths.run(state_dir.root, check):
                return _invalid(problem)
            project = Project(name, file.parent, work / "env", file)
            return await self._config(project, queued)
        finally:
            await self._remove_values(work)

    async def _remove_values(self, work: Path) -> None:
        try:
            await self._paths.run(work, partial(_remove, work))
        except PathTimeoutError as err:
            log.error("stack.values_not_removed", path=str(work), reason=str(err))

    async def _config(self, project: Project, queued: Callable[[str], None]) -> str | Failure:
        if self._config_slots.locked():
            queued(f"{CONFIGS_MAX} Compose files are being resolved")
        try:
            async with self._config_slots:
                ran = await self._cli.run(project, "config", deadline=CONFIG_DEADLINE_SECONDS)
        except TimeoutError:
            text = f"compose config did not finish within {CONFIG_DEADLINE_SECONDS:.0f} s"
            return Failure(FailureReason.RUNTIME_ERROR, text)
        if ran.is_cut:
            return _invalid(f"compose config printed more than {OUTPUT_BYTES_MAX} bytes")
        return ran.out if ran.ok else _invalid(error_text(ran.err))

    def _write(self, spec: ComposeSpec, state_dir: StackStateDir, work: Path) -> Path | None:
        """Write the values to `work` and return the Compose file; None if the repository has none."""
        values = env_text(effective_env(spec), is_v1=self._cli.is_v1).encode()
        if spec.source_type == "inline":
            write_file(work / "compose.yaml", spec.yaml.encode())
            write_file(work / ".env", values)  # services may name it in env_file
            write_file(work / "env", values)
            return work / "compose.yaml"
        file = _found(state_dir.export, spec.git_path)
        if file is not None:
            write_file(work / "env", project_env(file.parent / ".env") + values)
        return file

    def _refuse_violations(self, document: Document) -> None:
        if found := compose_policy.violations(document):
            more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
            raise InvalidError(found[0].path, f"{found[0].problem}{more}")

    def _check_builds(
        self, document: Document, state_dir: StackStateDir, links: Mapping[str, str]
    ) -> None:
        """Contexts and Dockerfiles must be inside the export after links are resolved."""
        for name, service in documents.section(document, "services").items():
            build = service.get("build")
            if not isinstance(build, dict):
                continue
            context = Path(str(build.get("context", "")))
            if not _is_inside(context, state_dir.export):
                raise InvalidError(f"services.{name}.build.context", _OUTSIDE)
            _copied(str(context), state_dir, links, f"services.{name}.build.context")
            if "dockerfile" in build and not _is_inside(
                context / str(build["dockerfile"]), state_dir.export
            ):
                raise InvalidError(f"services.{name}.build.dockerfile", _OUTSIDE)

    def _binds(
        self,
        found: StackFile,
        document: Document,
        state_dir: StackStateDir,
        links: Mapping[str, str] | None,
    ) -> list[HostBind]:
        """All host paths that the stack mounts. `links`: None without a repository. Raises InvalidError."""
        binds = []
        for bind in found.binds:
            if links is not None and _is_below(bind.path, state_dir.export):
                path = _copied(bind.path, state_dir, links, bind.where)
                binds.append(HostBind(path, str(state_dir.source), bind.target, create=True))
            elif problem := self._policy.problem_with(bind.path):
                raise InvalidError(bind.where, problem)
            else:
                binds.append(self._policy.bind(bind.path, bind.target, create=True))
        for use in documents.file_uses(document):
            if links is None or not _is_below(use.file, state_dir.export):
                raise InvalidError(use.where, _OUTSIDE)
            path = _copied(use.file, state_dir, links, use.where)
            targets = use.targets or ("",)
            binds += (HostBind(path, str(state_dir.source), target) for target in targets)
        return binds

    async def _files(
        self, state_dir: StackStateDir, links: Mapping[str, str] | None
    ) -> tuple[str, ...]:
        """The names of the files that containers mount, also those of an earlier commit."""
        if links is not None:
            names = partial(names_in, state_dir.export, links)
            found = await self._paths.run(state_dir.root, names, deadline_seconds=LONG_SECONDS)
            return tuple(sorted(found))
        before = await self._paths.run(state_dir.root, state_dir.read_applied)
        return before.files if before is not None else ()

    async def _hashes(
        self, document: Document, found: StackFile, state_dir: StackStateDir, commit: str
    ) -> dict[str, str]:
        """Configuration hashes of the services, including the repository files that they bind."""
        contents: dict[str, list[str]] = {}
        if self._git is not None and commit:
            for bind in found.binds:
                if _is_below(bind.path, state_dir.export):
                    path = Path(bind.path).relative_to(state_dir.export).as_posix()
                    object_id = await self._git.object_id(state_dir.repository, commit, path)
                    contents.setdefault(bind.where.split(".")[1], []).append(object_id)
        moved = documents.with_moved_paths(document, old=state_dir.export, new=state_dir.source)
        return {
            name: sha256(
                json.dumps([parts, contents.get(name)], sort_keys=True, default=str).encode()
            ).hexdigest()[:16]
            for name, parts in documents.section(moved, "services").items()
        }


def compose_spec(order: Order) -> ComposeSpec:
    assert isinstance(order.spec, ComposeSpec), "this runtime gets Compose stacks only"
    return order.spec


def _record(
    order: Order,
    name: str,
    found: StackFile,
    state_dir: StackStateDir,
    hashes: dict[str, str],
    commit: str,
    files: tuple[str, ...],
) -> StackRecord:
    return StackRecord(
        revision=order.revision,
        project=name,
        services={s.name: ServicePlan(s.restart, s.replicas) for s in found.services},
        hashes=hashes,
        waits={s.name: s.waits_for for s in found.services if s.waits_for},
        networks=found.networks,
        volumes=found.volumes,
        ports=found.needs.ports,
        commit=commit,
        source_has_data=any(
            not bind.read_only and _is_below(bind.path, state_dir.export) for bind in found.binds
        ),
        files=files,
    )


def _images(document: Document) -> dict[str, PullPolicy]:
    """Images to pull: all except those that the stack builds."""
    services = documents.section(document, "services").values()
    built = {service.get("image") for service in services if service.get("build")}
    return {
        str(service["image"]): _PULL_POLICIES.get(
            str(service.get("pull_policy")), PullPolicy.IF_NOT_PRESENT
        )
        for service in services
        if service.get("image") and service["image"] not in built
    }


def _work_directory(state_dir: StackStateDir) -> Path:
    memory = _IN_MEMORY if os.access(_IN_MEMORY, os.W_OK) else state_dir.root
    return Path(tempfile.mkdtemp(prefix="persys-stack-", dir=memory))


def _remove(directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)


def _found(export: Path, path: str) -> Path | None:
    start = export / path
    candidates = [start / name for name in _NAMES] if start.is_dir() else [start]
    return next((file for file in candidates if file.is_file()), None)


def _copied(path: str, state_dir: StackStateDir, links: Mapping[str, str], where: str) -> str:
    """The path of an exported file in the copy. Raises InvalidError behind a link out of the export."""
    relative = Path(path).relative_to(state_dir.export)
    if any(relative.is_relative_to(link) for link in links):
        raise InvalidError(where, _OUTSIDE)
    return str(state_dir.source / relative)


def _is_below(path: str, directory: Path) -> bool:
    return Path(path).is_relative_to(directory)


def _is_inside(path: Path, directory: Path) -> bool:
    """Whether the path is inside the directory after links are resolved."""
    try:
        return path.resolve().is_relative_to(directory.resolve())
    except RuntimeError:  # a loop of links
        return False


def _invalid(message: str) -> Failure:
    return Failure(FailureReason.INVALID_SPEC, message, retryable=False)
