"""Decides which workloads a git push concerns. The address of a repository has many spellings."""

import re

from msgspec import Struct

_HEADS = "refs/heads/"
_URL = re.compile(
    r"(?:[a-z+]+://)?(?:[^@/]+@)?(?P<host>[^/:]+)(?::\d+(?=/)|(?=/)|:(?!\d+/))/?(?P<path>.+)"
)
_HOME = "github.com"  # the default host


class Push(Struct, frozen=True):
    repository: str  # as `repository_name` has it
    branch: str
    is_default: bool  # of the repository's branches
    commit: str
    delivery: str


def repository_name(text: str) -> str:
    """host/owner/name, from a URL, an ssh address or owner/name."""
    text = text.strip().removesuffix("/").removesuffix(".git")
    if re.fullmatch(r"[\w.-]+/[\w.-]+", text):
        return f"{_HOME}/{text}".lower()
    found = _URL.fullmatch(text)
    if found is None:
        return text.lower()
    return f"{found['host']}/{found['path'].strip('/')}".lower()


def branch_of(ref: str) -> str:
    """The branch of a ref; empty if it is not a branch."""
    return ref.removeprefix(_HEADS) if ref.startswith(_HEADS) else ""


def follows(push: Push, *, git_repo: str, git_ref: str) -> bool:
    """Whether the push changes a stack of this repository and branch."""
    if repository_name(git_repo) != push.repository:
        return False
    if not git_ref:
        return push.is_default
    return git_ref.removeprefix(_HEADS) == push.branch
