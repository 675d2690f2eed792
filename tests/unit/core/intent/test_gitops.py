"""Which workloads a push concerns."""

import pytest

from persys.core.intent.gitops import Push, branch_of, follows, repository_name


@pytest.mark.parametrize(
    "text",
    [
        "https://github.com/Acme/shop.git",
        "https://github.com/acme/shop",
        "https://github.com/acme/shop/",
        "http://user:token@github.com/acme/shop.git",
        "git@github.com:acme/shop.git",
        "ssh://git@github.com/acme/shop.git",
        "ssh://git@github.com:22/acme/shop.git",
        "acme/shop",
    ],
)
def test_equivalent_repository_urls_match(text: str) -> None:
    assert repository_name(text) == "github.com/acme/shop"


def test_other_hosts_are_other_repositories() -> None:
    assert repository_name("https://git.example/acme/shop") == "git.example/acme/shop"


def a_push(branch: str = "main", *, is_default: bool = True) -> Push:
    return Push("github.com/acme/shop", branch, is_default, "abc", "d1")


@pytest.mark.parametrize(
    ("git_repo", "git_ref", "expected"),
    [
        ("https://github.com/acme/shop", "main", True),
        ("git@github.com:acme/shop.git", "refs/heads/main", True),
        ("https://github.com/acme/shop", "", True),
        ("https://github.com/acme/shop", "next", False),
        ("https://github.com/acme/other", "main", False),
        ("https://github.com/acme/shop", "v1.0", False),
    ],
)
def test_a_stack_follows_its_branch(git_repo: str, git_ref: str, expected: bool) -> None:
    assert follows(a_push(), git_repo=git_repo, git_ref=git_ref) is expected


def test_a_stack_without_a_branch_follows_only_the_usual_one() -> None:
    assert not follows(a_push("next", is_default=False), git_repo="acme/shop", git_ref="")


def test_a_tag_is_not_a_branch() -> None:
    assert branch_of("refs/heads/a/b") == "a/b"
    assert branch_of("refs/tags/v1") == ""
