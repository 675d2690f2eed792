"""From an order to files for Compose: written or fetched, resolved by Compose itself, and judged.

Judged is what Compose resolved, not what somebody wrote: nothing gets past by an include or a variable.
"""

import asyncio
import json
from hashlib import sha256
from pathlib import Path

from persys.agent.git import FetchError, Git, is_local
from persys.agent.policy import NodePolicy
from persys.agent.runtimes.compose_cli import ComposeCli, Project, env_text
from persys.agent.runtimes.compose_place import StackPlace, StackRecord
from persys.core.bounded_yaml import load_mapping
from persys.core.stack import ServicePlan
from persys.errors import InvalidError
from persys.infra.files import write_whole
from persys.model.failure import Failure, FailureReason
from persys.model.order import Order
from persys.model.spec import ComposeSpec, PullPolicy
from persys.wire.foreign import RUNTIME_NOT_AVAILABLE
from persys.wire.stack import compose_text
from persys.wire.stackfile import Service, StackFile, read_resolved

CONFIG_DEADLINE_SECONDS = 60.0
_NAMES = ("compose.yaml", "compose.yml", "docker-compose.yaml", "docker-compose.yml")
_PULL_POLICIES = {"always": PullPolicy.ALWAYS, "never": PullPolicy.NEVER}
_MESSAGE_MAX = 1000


class Prepared:
    """Files in their place, and what is in them."""

    def __init__(self, record: StackRecord, services: tuple[Service, ...]) -> None:
        self.record = record
        self.images = {
            service.image: _PULL_POLICIES.get(service.pull_policy, PullPolicy.IF_NOT_PRESENT)
            for service in services
            if service.image and not service.is_built
        }
        self.is_built = any(service.is_built for service in services)


class ComposeSource:
    def __init__(self, cli: ComposeCli, git: Git | None, policy: NodePolicy) -> None:
        self._cli = cli
        self._git = git
        self._policy = policy

    async def prepare(self, order: Order, place: StackPlace, name: str) -> Prepared | Failure:
        spec = compose_spec(order)
        await asyncio.to_thread(place.make)
        commit = ""
        if spec.source_type == "git":
            fetched = await self._fetch(order, spec, place)
            if isinstance(fetched, Failure):
                return fetched
            commit = fetched
        file = await asyncio.to_thread(self._write, spec, place)
        if file is None:
            return _invalid(f"there is no Compose file at {spec.git_path or 'the top'} of {commit}")
        resolved = await self._resolve(file, place, name)
        if isinstance(resolved, Failure):
            return resolved
        try:
            found = await asyncio.to_thread(self._judged, resolved, place if commit else None, name)
        except InvalidError as err:
            return _invalid(str(err))
        record = StackRecord(
            revision=order.revision,
            file=str(file),
            services={s.name: ServicePlan(s.restart, s.replicas) for s in found.services},
            hashes=await self._hashes(resolved, found, place, commit),
            waits={s.name: s.waits_for for s in found.services if s.waits_for},
            networks=found.networks,
            volumes=found.volumes,
            ports=found.needs.ports,
            commit=commit,
            source_has_data=any(
                not bind.read_only and _is_inside(bind.path, place.source) for bind in found.binds
            ),
        )
        await asyncio.to_thread(place.plan, record)
        return Prepared(record, found.services)

    async def _fetch(self, order: Order, spec: ComposeSpec, place: StackPlace) -> str | Failure:
        """The commit. What was deployed once stays: the same revision is never another commit."""
        if self._git is None:
            text = "there is no git on this node"
            return Failure(FailureReason.RUNTIME_ERROR, text, code=RUNTIME_NOT_AVAILABLE)
        local = is_local(spec.git_repo)
        if local is not None and not self._policy.allows_path(str(local)):
            return _invalid(f"{local} is not below any of PERSYS_BIND_ROOTS")
        applied = await asyncio.to_thread(place.applied)
        is_same = applied is not None and applied.revision == order.revision
        try:
            return await self._git.fetch(
                place.source,
                repository=spec.git_repo,
                ref=spec.git_ref,
                credential=spec.git_credential,
                commit=applied.commit if applied is not None and is_same else "",
            )
        except FetchError as err:
            return err.failure

    def _write(self, spec: ComposeSpec, place: StackPlace) -> Path | None:
        """The Compose file, in its place, and the env file beside it. None: the repository has none."""
        ours = env_text(spec.env, is_old=self._cli.is_old).encode()
        if spec.source_type == "inline":
            write_whole(place.project / "compose.yaml", spec.yaml.encode())
            write_whole(place.project / ".env", ours)  # services may name it in env_file
            write_whole(place.env_file, ours)
            return place.project / "compose.yaml"
        file = _found(place.source, spec.git_path)
        if file is None:
            return None
        theirs = file.parent / ".env"
        has_theirs = theirs.is_file() and _is_inside(str(theirs), place.source)
        write_whole(place.env_file, (theirs.read_bytes() + b"\n" if has_theirs else b"") + ours)
        return file

    async def _resolve(self, file: Path, place: StackPlace, name: str) -> str | Failure:
        project = Project(name, file.parent, place.env_file, (file,))
        try:
            ran = await self._cli.run(project, "config", deadline=CONFIG_DEADLINE_SECONDS)
        except (TimeoutError, OSError) as err:
            return Failure(FailureReason.RUNTIME_ERROR, f"compose config: {err}")
        return ran.out if ran.ok else _invalid(last_words(ran.err))

    def _judged(self, resolved: str, checkout: StackPlace | None, name: str) -> StackFile:
        """Raises InvalidError."""
        text = compose_text(resolved, "the Compose file")
        inside = str(checkout.source) if checkout is not None else ""
        found = read_resolved(text, project=name, inside=inside)
        if found.needs.privileged and not self._policy.allow_privileged:
            problem = "power over the node is not allowed on this one (PERSYS_ALLOW_PRIVILEGED)"
            raise InvalidError("services", problem)
        for bind in found.binds:
            if checkout is not None and _is_inside(bind.path, checkout.source):
                continue
            if not self._policy.allows_path(bind.path):
                raise InvalidError(
                    bind.where, f"{bind.path!r} is not below any of PERSYS_BIND_ROOTS"
                )
        return found

    async def _hashes(
        self, resolved: str, found: StackFile, place: StackPlace, commit: str
    ) -> dict[str, str]:
        """A service is another one also when a file of the repository that it binds has changed."""
        services = (await asyncio.to_thread(load_mapping, resolved))["services"]
        assert isinstance(services, dict), "checked when the file was judged"
        contents: dict[str, list[str]] = {}
        if self._git is not None and commit:
            for bind in found.binds:
                if _is_inside(bind.path, place.source):
                    path = Path(bind.path).relative_to(place.source).as_posix()
                    said = await self._git.object_id(place.source, commit, path)
                    contents.setdefault(bind.where.split(".")[1], []).append(said)
        return {
            name: sha256(
                json.dumps([parts, contents.get(name)], sort_keys=True, default=str).encode()
            ).hexdigest()[:16]
            for name, parts in services.items()
        }


def compose_spec(order: Order) -> ComposeSpec:
    assert isinstance(order.spec, ComposeSpec), "intake gives this runtime only stacks"
    return order.spec


def last_words(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " ".join(lines)[-_MESSAGE_MAX:] or "Compose failed and did not say why"


def _found(checkout: Path, path: str) -> Path | None:
    start = checkout / path
    candidates = [start / name for name in _NAMES] if start.is_dir() else [start]
    return next(
        (file for file in candidates if file.is_file() and _is_inside(str(file), checkout)), None
    )


def _is_inside(path: str, directory: Path) -> bool:
    """Also by way of links, which a repository may hold."""
    return Path(path).resolve().is_relative_to(directory.resolve())


def _invalid(message: str) -> Failure:
    return Failure(FailureReason.INVALID_SPEC, message, retryable=False)
