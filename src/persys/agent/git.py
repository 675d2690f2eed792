"""Fetching a repository with the git command: shallow, without asking anybody, and without secrets in sight.

A credential reaches git through files that only this user can read, and that are gone afterwards; it is in no
argument, no variable and no log. Hooks, submodules, and transports other than https, ssh and file are off.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from persys.agent.commands import Ran, run
from persys.agent.credentials import Credential, Credentials
from persys.errors import RefusedError
from persys.model.failure import Failure, FailureReason

DEADLINE_SECONDS = 600.0
_QUICK_SECONDS = 60.0
_MESSAGE_MAX = 500
# An operator's own proxies and authorities are heeded; nothing else of the agent's surroundings is.
_PASSED = ("PATH", "HOME", "http_proxy", "https_proxy", "no_proxy", "HTTPS_PROXY", "NO_PROXY")
_PASSED_FOR_TLS = ("GIT_SSL_CAINFO", "SSL_CERT_FILE", "SSL_CERT_DIR")
_ASKPASS = """#!/bin/sh
case "$1" in
  Username*) exec cat "${0%/*}/username" ;;
  *) exec cat "${0%/*}/password" ;;
esac
"""


class FetchError(RefusedError):
    """It could not be fetched. `failure` says why."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class Git:
    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    async def fetch(
        self, place: Path, *, repository: str, ref: str, credential: str, commit: str
    ) -> str:
        """Check out `commit`, or what `ref` is now if that is "", into a directory that exists.

        Answers with the commit. Raises FetchError.
        """
        try:
            found = self._credentials.get(credential) if credential else Credential()
        except RefusedError as err:
            raise _failed(str(err), code="CredentialUnusable") from err
        with _environment(found) as env:
            await self._begin(place, env)
            if not commit or not await self._has(place, commit, env):
                wanted = commit or ref or "HEAD"
                fetch = ("fetch", "--quiet", "--depth=1", "--no-tags", "--force", "--", repository)
                await self._git(place, env, *fetch, wanted)
                commit = await self._git(place, env, "rev-parse", "FETCH_HEAD^{commit}")
            await self._git(place, env, "checkout", "--quiet", "--force", "--detach", commit)
        return commit

    async def object_id(self, place: Path, commit: str, path: str) -> str:
        """What names the content of a path in a commit; "" if it has no such path."""
        with _environment(Credential()) as env:
            asked = [
                "git",
                "-C",
                str(place),
                "rev-parse",
                "--verify",
                "--quiet",
                f"{commit}:{path}",
            ]
            ran = await run(asked, env=env, deadline=_QUICK_SECONDS)
        return ran.out.strip() if ran.ok else ""

    async def _begin(self, place: Path, env: Mapping[str, str]) -> None:
        for lock in ("index.lock", "shallow.lock", "HEAD.lock"):
            (place / ".git" / lock).unlink(missing_ok=True)  # of a git that was killed
        if not (place / ".git" / "HEAD").exists():
            shutil.rmtree(place / ".git", ignore_errors=True)
            await self._git(place, env, "init", "--quiet")

    async def _has(self, place: Path, commit: str, env: Mapping[str, str]) -> bool:
        asked = ["git", "-C", str(place), "cat-file", "-e", f"{commit}^{{commit}}"]
        return (await run(asked, env=env, deadline=_QUICK_SECONDS)).ok

    async def _git(self, place: Path, env: Mapping[str, str], *arguments: str) -> str:
        try:
            ran = await run(
                ["git", "-C", str(place), *arguments], env=env, deadline=DEADLINE_SECONDS
            )
        except TimeoutError as err:
            text = f"git {arguments[0]} did not end within {DEADLINE_SECONDS:.0f} s"
            raise _failed(text) from err
        if not ran.ok:
            raise _failed(f"git {arguments[0]}: {_said(ran)}")
        return ran.out.strip()


def is_local(repository: str) -> Path | None:
    """The directory that a file URL names."""
    url = urlsplit(repository)
    return Path(url.path) if url.scheme == "file" else None


@contextmanager
def _environment(credential: Credential) -> Iterator[dict[str, str]]:
    passed = (*_PASSED, *_PASSED_FOR_TLS)
    env = {name: os.environ[name] for name in passed if name in os.environ}
    env |= {
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ALLOW_PROTOCOL": "https:ssh:file",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_LFS_SKIP_SMUDGE": "1",
        # Repositories on this node may belong to others; hooks of a checkout never run.
        "GIT_CONFIG_COUNT": "2",
        "GIT_CONFIG_KEY_0": "safe.directory",
        "GIT_CONFIG_VALUE_0": "*",
        "GIT_CONFIG_KEY_1": "core.hooksPath",
        "GIT_CONFIG_VALUE_1": "/dev/null",
    }
    with tempfile.TemporaryDirectory(prefix="persys-git-") as directory:
        place = Path(directory)
        ssh = ["ssh", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes"]
        if credential.ssh_key:
            key = _write(place / "key", credential.ssh_key.rstrip("\n") + "\n")
            ssh += ["-i", str(key), "-o", "IdentitiesOnly=yes"]
        if credential.known_hosts:
            hosts = _write(place / "known_hosts", credential.known_hosts.rstrip("\n") + "\n")
            ssh += ["-o", f"UserKnownHostsFile={hosts}"]
        _write(place / "username", credential.username)
        _write(place / "password", credential.password)
        askpass = _write(place / "askpass", _ASKPASS)
        askpass.chmod(0o700)
        yield env | {"GIT_ASKPASS": str(askpass), "GIT_SSH_COMMAND": " ".join(ssh)}


def _write(path: Path, text: str) -> Path:
    with os.fdopen(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    return path


def _said(ran: Ran) -> str:
    lines = [line.strip() for line in ran.err.splitlines() if line.strip()]
    return " ".join(lines)[-_MESSAGE_MAX:] or f"exit code {ran.code}"


def _failed(message: str, code: str = "GitFailed") -> FetchError:
    # git tells all its troubles by one exit code, so none is taken for permanent.
    return FetchError(Failure(FailureReason.RUNTIME_ERROR, message, code=code))
