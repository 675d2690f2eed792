"""Fetches are limited in size and per server. With the real git and with fakes."""

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from persys.agent.credentials import Credentials
from persys.agent.runtimes.compose.git import PER_HOST_MAX, TOO_LARGE, FetchError, Git
from persys.infra.aio.path_calls import ThreadPathCalls

MB = 1024 * 1024


def a_git(directory: Path, *, bytes_max: int = 100 * MB) -> Git:
    return Git(Credentials(directory), ThreadPathCalls(), bytes_max=bytes_max)


async def fetched(
    git: Git, store: Path, repository: str, queued_texts: list[str] | None = None
) -> str:
    return await git.fetch(
        store,
        repository=repository,
        ref="",
        credential="",
        commit="",
        queued=(queued_texts if queued_texts is not None else []).append,
    )


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with an incompressible file of 3 MB."""
    place = tmp_path / "repository"
    place.mkdir()
    (place / "large").write_bytes(os.urandom(3 * MB))
    for words in (
        ["init", "-q"],
        ["add", "."],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "one"],
    ):
        subprocess.run(["git", *words], cwd=place, check=True)
    return place


def fake_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """A fake git program."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "git").write_text(f"#!/bin/sh\n{script}\n")
    (programs / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")


async def test_a_repository_that_fits_is_fetched(repository: Path, tmp_path: Path) -> None:
    git, store = a_git(tmp_path), tmp_path / "store"

    commit = await fetched(git, store, f"file://{repository}")

    assert len(commit) == 40
    assert await git.object_id(store, commit, "large")


async def test_a_repository_over_the_limit_is_not_stored(repository: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"

    with pytest.raises(FetchError, match="PERSYS_GIT_MAX_GB") as failed:
        await fetched(a_git(tmp_path, bytes_max=MB), store, f"file://{repository}")

    assert (failed.value.failure.code, failed.value.failure.retryable) == (TOO_LARGE, False)
    assert not store.exists()


async def test_many_files_over_the_limit_in_total_are_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"
    fake_git(
        tmp_path,
        monkeypatch,
        f"""case "$*" in
        *fetch*) for i in 1 2 3 4 5; do head -c 600000 /dev/zero > {store}/part$i; done; sleep 60 ;;
        esac""",
    )

    async with asyncio.timeout(30):
        with pytest.raises(FetchError) as failed:
            await fetched(a_git(tmp_path, bytes_max=2 * MB), store, "https://forge.test/a.git")

    assert failed.value.failure.code == TOO_LARGE
    assert not store.exists()


async def test_files_of_a_killed_fetch_are_removed_by_the_next_fetch(
    repository: Path, tmp_path: Path
) -> None:
    git, store = a_git(tmp_path), tmp_path / "store"
    await fetched(git, store, f"file://{repository}")
    left = store / "objects" / "pack" / "tmp_pack_AbCdEf"
    left.write_bytes(b"half")

    await fetched(git, store, f"file://{repository}")

    assert not left.exists()


async def test_a_server_that_hangs_delays_only_its_own_repositories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = "0" * 40
    fake_git(
        tmp_path,
        monkeypatch,
        f"""case "$*" in
        *fetch*dead.test*) sleep 60 ;;
        *rev-parse*) echo {commit} ;;
        esac""",
    )
    git, reported = a_git(tmp_path), list[str]()
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        stuck = [
            group.create_task(
                fetched(git, tmp_path / f"dead-{number}", "https://dead.test/a.git", reported)
            )
            for number in range(PER_HOST_MAX + 1)
        ]
        assert await fetched(git, tmp_path / "live", "https://live.test/a.git") == commit
        while not reported:  # noqa: ASYNC110 - no event signals it
            await asyncio.sleep(0.01)
        for one in stuck:
            one.cancel()

    assert reported == [f"{PER_HOST_MAX} repositories are already being fetched from dead.test"]
