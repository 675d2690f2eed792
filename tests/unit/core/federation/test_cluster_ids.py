"""Ids of clusters, and prefixes that no other cluster's prefix begins with."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from persys.core.federation.cluster_ids import check_prefix, cluster_of, prefix_of, problem_of
from persys.errors import InvalidError

cluster_ids = st.from_regex(r"[a-z0-9-]{1,12}", fullmatch=True).filter(
    lambda text: not problem_of(text)
)


@pytest.mark.parametrize("cluster_id", ["default", "eu-west-1", "a", "My.Cluster_2"])
def test_a_name_without_the_separator_is_valid(cluster_id: str) -> None:
    assert problem_of(cluster_id) == ""


@pytest.mark.parametrize("cluster_id", ["a--b", "a-", "--", "a--", "-"])
def test_an_id_with_the_separator_is_refused_with_another_name(cluster_id: str) -> None:
    problem = problem_of(cluster_id)

    assert "'--'" in problem
    assert "for example" in problem


def test_an_empty_id_is_refused() -> None:
    assert "expected the name" in problem_of("")


def test_the_suggested_name_is_valid() -> None:
    assert "for example eu-west:" in problem_of("eu---west-")


@pytest.mark.parametrize("prefix", ["home--", "a--", "eu-west-1--", f"{'x' * 60}--"])
def test_a_cluster_id_with_the_separator_is_a_prefix(prefix: str) -> None:
    assert check_prefix(prefix) == prefix
    assert prefix_of(cluster_of(prefix)) == prefix


@pytest.mark.parametrize(
    "prefix",
    ["", "home", "home-", "-home--", "Home--", "a--b--", "--", "home--x", "a---", "x" * 61 + "--"],
)
def test_anything_else_is_not_a_prefix(prefix: str) -> None:
    with pytest.raises(InvalidError, match="prefix"):
        check_prefix(prefix)


@given(cluster_ids, cluster_ids, st.from_regex(r"[a-z0-9][a-z0-9-]{0,9}", fullmatch=True))
def test_no_id_of_one_cluster_has_the_prefix_of_another(one: str, other: str, name: str) -> None:
    assert (prefix_of(one) + name).startswith(prefix_of(other)) == (one == other)
