"""Fetches repositories with the git command into a private bare repository, and exports commits from it.

No workload can access the bare repository, so git never reads anything that a workload writes. git runs with
the configuration in this file only: no system, user or home configuration, no hooks, filters, file system
monitor, submodules or other helpers, and only the transport that the URL names. A credential is passed to git
through files that only this user can read and that are removed afterwards; it is never in an argument, an
environment variable or a log. Without a credential no SSH key of the host is offered.

A fetch is limited in time and size. Each server has its own limit of concurrent fetches: a server that does
not respond delays only its own repositories.
"""

import asyncio
import os
import shutil
import tempfile
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import structlog

from persys.agent.credentials import Credential, Credentials
from persys.agent.volumes.local import disk_usage
from persys.errors import RefusedError
from persys.infra.aio.path_calls import LONG_SECONDS, PathCalls, PathTimeoutError
from persys.infra.aio.task_group import task_group
from persys.infra.subprocesses import ProgramResult, run
from persys.model.node import GIB
from persys.model.status import Failure, FailureReason
from persys.wire.compose.git_source import host_of

log = structlog.get_logger()

DEADLINE_SECONDS = 600.0
PER_HOST_MAX = 4
SIZE_CHECK_SECONDS = 1.0  # between checks of the size of a repository that is being fetched
TOO_LARGE = "RepositoryTooLarge"
_QUICK_SECONDS = 60.0
_MESSAGE_MAX = 500
# Proxy and CA settings of the operator apply; nothing else of the agent's environment is passed on.
_PASSED = ("PATH", "http_proxy", "https_proxy", "no_proxy", "HTTPS_PROXY", "NO_PROXY")
_PASSED_FOR_TLS = ("GIT_SSL_CAINFO", "SSL_CERT_FILE", "SSL_CERT_DIR")
_CONFIG = {
    "safe.directory": "*",  # a repository on this node may belong to another user
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "core.untrackedCache": "false",
    "core.attributesFile": "/dev/null",
    "core.protectHFS": "true",
    "core.protectNTFS": "true",
    "submodule.recurse": "false",
    "fetch.recurseSubmodules": "false",
    "fetch.fsckObjects": "true",
    "credential.helper": "",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "protocol.allow": "never",
}
_SSH = (
    "ssh -F /dev/null -o BatchMode=yes -o StrictHostKeyChecking=yes -o IdentitiesOnly=yes "
    "-o IdentityAgent=none -o ForwardAgent=no -o PermitLocalCommand=no"
)
# Files that exist while git runs.
_KEY, _KNOWN_HOSTS, _PROMPT, _HOME = "key", "known_hosts", "askpass", "home"
_ASKPASS = """#!/bin/sh
case "$1" in
  Username*) exec cat "${0%/*}/username" ;;
  *) exec cat "${0%/*}/password" ;;
esac
"""


class FetchError(RefusedError):
    """A repository could not be fetched. `failure` says why."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class Git:
    def __init__(self, credentials: Credentials, paths: PathCalls, *, bytes_max: int) -> None:
        """`bytes_max` limits the size of a repository on disk, and of the files of a commit."""
        self._credentials = credentials
        self._paths = paths
        self._bytes_max = bytes_max
        self._slots: defaultdict[str, asyncio.Semaphore] = defaultdict(
            lambda: asyncio.Semaphore(PER_HOST_MAX)
        )

    async def fetch(
        self,
        store: Path,
        *,
        repository: str,
        ref: str,
        credential: str,
        commit: str,
        queued: Callable[[str], None],
    ) -> str:
        """Fetch `commit` into the bare repository `store`; if it is "", the current commit of `ref`.

        Returns the commit. `queued` is called with the reason when the fetch has to wait. Raises FetchError,
        OSError.
        """
        try:
            found = await self._credential(credential, repository)
        except RefusedError as err:
            raise _failed(str(err), code="CredentialUnusable") from err
        async with self._environment(store, found, repository) as env:
            await self._begin(store, env)
            if commit and await self._has(store, commit, env):
                return commit
            host = host_of(repository)
            slots = self._slots[host]
            if slots.locked():
                queued(f"{PER_HOST_MAX} repositories are already being fetched from {host}")
            async with slots:
                return await self._fetch(store, env, repository, commit or ref or "HEAD")

    async def export(self, store: Path, commit: str, to: Path) -> None:
        """Write the files of a commit into an empty directory. Raises FetchError, OSError."""
        async with self._environment(store, Credential(), "") as env:
            await self._check_size(store, commit, env)
            index = to.with_name(f".{to.name}.index")
            await self._paths.run(index, partial(index.unlink, missing_ok=True))
            inside = env | {"GIT_INDEX_FILE": str(index), "GIT_WORK_TREE": str(to)}
            await _git(store, inside, "read-tree", commit)
            await _git(store, inside, "checkout-index", "--all", "--force", "--quiet")
            await self._paths.run(index, partial(index.unlink, missing_ok=True))

    async def object_id(self, store: Path, commit: str, path: str) -> str:
        """The object id of a path in a commit; "" if the commit has no such path."""
        async with self._environment(store, Credential(), "") as env:
            arguments = ("rev-parse", "--verify", "--quiet", f"{commit}:{path}")
            ran = await _run(store, env, *arguments, deadline=_QUICK_SECONDS)
        return ran.out.strip() if ran.ok else ""

    async def _credential(self, name: str, repository: str) -> Credential:
        if not name:
            return Credential()
        get = partial(self._credentials.get_for, name, host_of(repository))
        return await self._paths.run(self._credentials.directory, get)

    async def _begin(self, store: Path, env: Mapping[str, str]) -> None:
        make = partial(_prepare_store, store)
        if await self._paths.run(store, make, deadline_seconds=LONG_SECONDS):
            await _git(store, env, "init", "--quiet", "--bare", "--template=")

    async def _has(self, store: Path, commit: str, env: Mapping[str, str]) -> bool:
        arguments = ("cat-file", "-e", f"{commit}^{{commit}}")
        return (await _run(store, env, *arguments, deadline=_QUICK_SECONDS)).ok

    async def _fetch(self, store: Path, env: Mapping[str, str], repository: str, ref: str) -> str:
        fetch = ("fetch", "--quiet", "--depth=1", "--no-tags", "--force", "--", repository, ref)
        try:
            async with task_group() as group:
                watching = group.create_task(self._watch_size(store))
                await _git(store, env, *fetch, file_bytes_max=self._bytes_max)
                watching.cancel()
        except FetchError as err:
            if await self._is_large(store):
                raise await self._discarded(store) from err
            raise
        if await self._is_large(store):
            raise await self._discarded(store)
        return await _git(store, env, "rev-parse", "FETCH_HEAD^{commit}")

    async def _watch_size(self, store: Path) -> None:
        """Check the total size; the kernel limits only each single file. Raises FetchError."""
        while True:
            await asyncio.sleep(SIZE_CHECK_SECONDS)
            if await self._is_large(store):
                raise _too_large("the repository", self._bytes_max)

    async def _is_large(self, store: Path) -> bool:
        return await self._paths.run(store, partial(disk_usage, store)) >= self._bytes_max

    async def _discarded(self, store: Path) -> FetchError:
        remove = partial(shutil.rmtree, store, ignore_errors=True)
        await self._paths.run(store, remove, deadline_seconds=LONG_SECONDS)
        return _too_large("the repository", self._bytes_max)

    async def _check_size(self, store: Path, commit: str, env: Mapping[str, str]) -> None:
        """Check the uncompressed size of a commit before it is exported."""
        ran = await _run(store, env, "ls-tree", "-r", "--format=%(objectsize)", commit)
        listed = _checked_output(ran, "ls-tree")
        size = sum(int(word) for word in listed.split() if word.isdigit())
        if ran.is_cut or size > self._bytes_max:
            raise _too_large(f"commit {commit}", self._bytes_max)

    @asynccontextmanager
    async def _environment(
        self, store: Path, credential: Credential, repository: str
    ) -> AsyncIterator[dict[str, str]]:
        """The environment of git. The credential files exist until the context ends. Raises OSError."""
        directory = await self._paths.run(
            store, partial(_write_credential, credential), discard=_remove_credential
        )
        try:
            yield _variables(credential, repository, directory)
        finally:
            try:
                await self._paths.run(store, partial(_remove_credential, directory))
            except PathTimeoutError as err:
                log.error("git.credential_not_removed", path=str(directory), reason=str(err))


def is_local(repository: str) -> Path | None:
    """The directory that a file URL names."""
    url = urlsplit(repository)
    return Path(url.path) if url.scheme == "file" else None


def problem_with_local(repository: Path) -> str:
    """Why a repository on this node must not be fetched: it refers to files outside its own directory."""
    inner = repository / ".git"
    directory = inner if os.path.lexists(inner) else repository
    for name in (".", "HEAD", "objects", "refs", "packed-refs", "objects/pack", "objects/info"):
        if (directory / name).is_symlink():
            return f"{directory / name} is a symbolic link"
    if not (directory / "objects").is_dir():
        return f"{repository} is not a git repository"
    for name in ("commondir", "objects/info/alternates"):
        if os.path.lexists(directory / name):
            return f"{directory / name} refers to another repository"
    return ""


def _prepare_store(store: Path) -> bool:
    """Prepare the directory and return whether `git init` is needed. Removes what a killed git has left."""
    for lock in ("index.lock", "shallow.lock", "HEAD.lock"):
        (store / lock).unlink(missing_ok=True)
    for part in (store / "objects").glob("**/tmp_*"):
        shutil.rmtree(part) if part.is_dir() else part.unlink(missing_ok=True)
    if (store / "HEAD").exists():
        return False
    shutil.rmtree(store, ignore_errors=True)
    store.mkdir(mode=0o700, parents=True)
    return True


async def _git(
    store: Path, env: Mapping[str, str], *arguments: str, file_bytes_max: int = 0
) -> str:
    ran = await _run(store, env, *arguments, file_bytes_max=file_bytes_max)
    return _checked_output(ran, arguments[0])


async def _run(
    store: Path,
    env: Mapping[str, str],
    *arguments: str,
    deadline: float = DEADLINE_SECONDS,
    file_bytes_max: int = 0,
) -> ProgramResult:
    command = ["git", f"--git-dir={store}", *arguments]
    try:
        return await run(command, env=env, deadline=deadline, file_bytes_max=file_bytes_max)
    except TimeoutError as err:
        raise _failed(f"git {arguments[0]} did not finish within {deadline:.0f} s") from err
    except OSError as err:
        raise _failed(f"cannot run git: {err}") from err


def _checked_output(ran: ProgramResult, verb: str) -> str:
    if not ran.ok:
        raise _failed(f"git {verb}: {_error_output(ran)}")
    return ran.out.strip()


def _write_credential(credential: Credential) -> Path:
    """A new directory with the credential files that git reads."""
    directory = Path(tempfile.mkdtemp(prefix="persys-git-"))
    try:
        if credential.ssh_key:
            _write(directory / _KEY, credential.ssh_key.rstrip("\n") + "\n")
        if credential.known_hosts:
            _write(directory / _KNOWN_HOSTS, credential.known_hosts.rstrip("\n") + "\n")
        _write(directory / "username", credential.username)
        _write(directory / "password", credential.password)
        _write(directory / _PROMPT, _ASKPASS).chmod(0o700)
        (directory / _HOME).mkdir()
    except BaseException:
        _remove_credential(directory)
        raise
    return directory


def _remove_credential(directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)


def _variables(credential: Credential, repository: str, directory: Path) -> dict[str, str]:
    passed = (*_PASSED, *_PASSED_FOR_TLS)
    env = {name: os.environ[name] for name in passed if name in os.environ}
    config = dict(_CONFIG)
    if repository:
        scheme = urlsplit(repository).scheme if "://" in repository else "ssh"
        env["GIT_ALLOW_PROTOCOL"] = scheme
        config[f"protocol.{scheme}.allow"] = "always"
    if credential.username or credential.password:
        # The target of a redirect would receive the credential, too.
        config["http.followRedirects"] = "false"
    ssh = f"{_SSH} -i {directory / _KEY if credential.ssh_key else '/dev/null'}"
    if credential.known_hosts:
        ssh += (
            f" -o UserKnownHostsFile={directory / _KNOWN_HOSTS} -o GlobalKnownHostsFile=/dev/null"
        )
    return (
        env
        | _numbered(config)
        | {
            "HOME": str(directory / _HOME),
            "XDG_CONFIG_HOME": str(directory / _HOME),
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_CONFIG_SYSTEM": "/dev/null",
            "GIT_LFS_SKIP_SMUDGE": "1",
            "GIT_ASKPASS": str(directory / _PROMPT),
            "GIT_SSH_COMMAND": ssh,
        }
    )


def _numbered(config: Mapping[str, str]) -> dict[str, str]:
    """Configuration for one run of git. It overrides all configuration files."""
    env = {"GIT_CONFIG_COUNT": str(len(config))}
    for index, (key, value) in enumerate(config.items()):
        env |= {f"GIT_CONFIG_KEY_{index}": key, f"GIT_CONFIG_VALUE_{index}": value}
    return env


def _write(path: Path, text: str) -> Path:
    with os.fdopen(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    return path


def _error_output(ran: ProgramResult) -> str:
    lines = [line.strip() for line in ran.err.splitlines() if line.strip()]
    return " ".join(lines)[-_MESSAGE_MAX:] or f"exit code {ran.code}"


def _too_large(what: str, bytes_max: int) -> FetchError:
    text = (
        f"{what} is larger than {bytes_max // GIB} GiB (PERSYS_GIT_MAX_GB), or has too many files"
    )
    failure = Failure(FailureReason.INVALID_SPEC, text, retryable=False, code=TOO_LARGE)
    return FetchError(failure)


def _failed(message: str, code: str = "GitFailed") -> FetchError:
    # git has one exit code for all errors, so none counts as permanent.
    return FetchError(Failure(FailureReason.RUNTIME_ERROR, message, code=code))
