"""Fetches repositories with the git command into a private bare repository, and exports commits from it.

No workload can reach the bare repository, so nothing that a workload writes is ever read by git. git runs
with the configuration in this file only: no system, user or home configuration, no hooks, filters, file
system monitor, submodules or other helpers, and only the transport that the URL names. A credential reaches
git through files that only this user can read and that are removed afterwards; it is not in an argument, a
variable or a log. Without a credential no key of the machine is offered.
"""

import asyncio
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from persys.agent.commands import OUTPUT_BYTES_MAX, Ran, run
from persys.agent.credentials import Credential, Credentials
from persys.errors import RefusedError
from persys.model.failure import Failure, FailureReason
from persys.wire.git import host_of

DEADLINE_SECONDS = 600.0
EXPORT_BYTES_MAX = 4 * 1024**3
_QUICK_SECONDS = 60.0
_MESSAGE_MAX = 500
# Proxies and certificate authorities of the operator apply; nothing else of the agent's environment does.
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
    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    async def fetch(
        self, store: Path, *, repository: str, ref: str, credential: str, commit: str
    ) -> str:
        """Have `commit`, or what `ref` is now if that is "", in the bare repository `store`.

        Returns the commit. Raises FetchError.
        """
        try:
            found = self._credential(credential, repository)
        except RefusedError as err:
            raise _failed(str(err), code="CredentialUnusable") from err
        with _environment(found, repository) as env:
            await self._begin(store, env)
            if commit and await self._has(store, commit, env):
                return commit
            wanted = commit or ref or "HEAD"
            fetch = ("fetch", "--quiet", "--depth=1", "--no-tags", "--force", "--", repository)
            await _git(store, env, *fetch, wanted)
            return await _git(store, env, "rev-parse", "FETCH_HEAD^{commit}")

    async def export(self, store: Path, commit: str, to: Path) -> None:
        """Write the files of a commit into an empty directory. Raises FetchError, OSError."""
        with _environment(Credential(), "") as env:
            await self._check_size(store, commit, env)
            index = to.with_name(f".{to.name}.index")
            index.unlink(missing_ok=True)
            inside = env | {"GIT_INDEX_FILE": str(index), "GIT_WORK_TREE": str(to)}
            try:
                await _git(store, inside, "read-tree", commit)
                await _git(store, inside, "checkout-index", "--all", "--force", "--quiet")
            finally:
                index.unlink(missing_ok=True)

    async def object_id(self, store: Path, commit: str, path: str) -> str:
        """The object id of a path in a commit; "" if the commit has no such path."""
        with _environment(Credential(), "") as env:
            asked = ("rev-parse", "--verify", "--quiet", f"{commit}:{path}")
            try:
                ran = await run(_command(store, *asked), env=env, deadline=_QUICK_SECONDS)
            except TimeoutError as err:
                raise _failed("git rev-parse did not end") from err
        return ran.out.strip() if ran.ok else ""

    def _credential(self, name: str, repository: str) -> Credential:
        return self._credentials.get_for(name, host_of(repository)) if name else Credential()

    async def _begin(self, store: Path, env: Mapping[str, str]) -> None:
        try:
            is_new = await asyncio.to_thread(_make_room, store)
        except OSError as err:
            text = f"git repository {store}: {err.strerror}"
            raise FetchError(Failure(FailureReason.STORAGE_ERROR, text)) from err
        if is_new:
            await _git(store, env, "init", "--quiet", "--bare", "--template=")

    async def _has(self, store: Path, commit: str, env: Mapping[str, str]) -> bool:
        asked = _command(store, "cat-file", "-e", f"{commit}^{{commit}}")
        try:
            return (await run(asked, env=env, deadline=_QUICK_SECONDS)).ok
        except TimeoutError as err:
            raise _failed("git cat-file did not end") from err

    async def _check_size(self, store: Path, commit: str, env: Mapping[str, str]) -> None:
        """Content may be compressed a thousand times, so what would be written is added up first."""
        listed = await _git(store, env, "ls-tree", "-r", "--format=%(objectsize)", commit)
        size = sum(int(word) for word in listed.split() if word.isdigit())
        if size > EXPORT_BYTES_MAX or len(listed) >= OUTPUT_BYTES_MAX:
            limit = f"{EXPORT_BYTES_MAX // 1024**3} GiB"
            text = f"commit {commit} is larger than a stack may be ({limit}, one million files)"
            raise FetchError(Failure(FailureReason.INVALID_SPEC, text, retryable=False))


def is_local(repository: str) -> Path | None:
    """The directory that a file URL names."""
    url = urlsplit(repository)
    return Path(url.path) if url.scheme == "file" else None


def problem_with_local(repository: Path) -> str:
    """Why a repository on this node is not fetched: it leads to files outside its own directory."""
    inner = repository / ".git"
    place = inner if os.path.lexists(inner) else repository
    for name in (".", "HEAD", "objects", "refs", "packed-refs", "objects/pack", "objects/info"):
        if (place / name).is_symlink():
            return f"{place / name} is a symbolic link"
    if not (place / "objects").is_dir():
        return f"{repository} is not a git repository"
    for name in ("commondir", "objects/info/alternates"):
        if os.path.lexists(place / name):
            return f"{place / name} refers to another repository"
    return ""


def _make_room(store: Path) -> bool:
    """Whether a repository has yet to be made there."""
    for lock in ("index.lock", "shallow.lock", "HEAD.lock"):
        (store / lock).unlink(missing_ok=True)  # of a git that was killed
    if (store / "HEAD").exists():
        return False
    shutil.rmtree(store, ignore_errors=True)
    store.mkdir(mode=0o700, parents=True)
    return True


async def _git(store: Path, env: Mapping[str, str], *arguments: str) -> str:
    try:
        ran = await run(_command(store, *arguments), env=env, deadline=DEADLINE_SECONDS)
    except TimeoutError as err:
        text = f"git {arguments[0]} did not end within {DEADLINE_SECONDS:.0f} s"
        raise _failed(text) from err
    if not ran.ok:
        raise _failed(f"git {arguments[0]}: {_said(ran)}")
    return ran.out.strip()


def _command(store: Path, *arguments: str) -> list[str]:
    return ["git", f"--git-dir={store}", *arguments]


@contextmanager
def _environment(credential: Credential, repository: str) -> Iterator[dict[str, str]]:
    passed = (*_PASSED, *_PASSED_FOR_TLS)
    env = {name: os.environ[name] for name in passed if name in os.environ}
    config = dict(_CONFIG)
    if repository:
        scheme = urlsplit(repository).scheme if "://" in repository else "ssh"
        env["GIT_ALLOW_PROTOCOL"] = scheme
        config[f"protocol.{scheme}.allow"] = "always"
    if credential.username or credential.password:
        config["http.followRedirects"] = "false"  # the answer to a redirect would get it, too
    with tempfile.TemporaryDirectory(prefix="persys-git-") as directory:
        place = Path(directory)
        key = Path("/dev/null")
        if credential.ssh_key:
            key = _write(place / "key", credential.ssh_key.rstrip("\n") + "\n")
        ssh = f"{_SSH} -i {key}"
        if credential.known_hosts:
            hosts = _write(place / "known_hosts", credential.known_hosts.rstrip("\n") + "\n")
            ssh += f" -o UserKnownHostsFile={hosts} -o GlobalKnownHostsFile=/dev/null"
        _write(place / "username", credential.username)
        _write(place / "password", credential.password)
        askpass = _write(place / "askpass", _ASKPASS)
        askpass.chmod(0o700)
        (place / "home").mkdir()
        yield (
            env
            | _numbered(config)
            | {
                "HOME": str(place / "home"),
                "XDG_CONFIG_HOME": str(place / "home"),
                "GIT_TERMINAL_PROMPT": "0",
                "GIT_CONFIG_NOSYSTEM": "1",
                "GIT_ATTR_NOSYSTEM": "1",
                "GIT_CONFIG_GLOBAL": "/dev/null",
                "GIT_CONFIG_SYSTEM": "/dev/null",
                "GIT_LFS_SKIP_SMUDGE": "1",
                "GIT_ASKPASS": str(askpass),
                "GIT_SSH_COMMAND": ssh,
            }
        )


def _numbered(config: Mapping[str, str]) -> dict[str, str]:
    """Configuration for one run of git, which overrides that of any file."""
    env = {"GIT_CONFIG_COUNT": str(len(config))}
    for index, (key, value) in enumerate(config.items()):
        env |= {f"GIT_CONFIG_KEY_{index}": key, f"GIT_CONFIG_VALUE_{index}": value}
    return env


def _write(path: Path, text: str) -> Path:
    with os.fdopen(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    return path


def _said(ran: Ran) -> str:
    lines = [line.strip() for line in ran.err.splitlines() if line.strip()]
    return " ".join(lines)[-_MESSAGE_MAX:] or f"exit code {ran.code}"


def _failed(message: str, code: str = "GitFailed") -> FetchError:
    # git has one exit code for all errors, so none is known to be permanent.
    return FetchError(Failure(FailureReason.RUNTIME_ERROR, message, code=code))
