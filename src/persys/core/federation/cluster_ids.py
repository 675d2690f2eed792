"""Ids of clusters, and the ids of workloads that one cluster runs in another.

The workloads of cluster `home` in another cluster have ids such as `home--web`, and the token of `home` there
is limited to the prefix `home--`. A cluster id therefore has no `--` and does not end with `-`: the first
`--` of such an id is the end of the cluster id, so that no prefix is the beginning of another.
"""

import re

from persys.errors import InvalidError

SEPARATOR = "--"
# Metadata of a workload that another cluster runs here.
HOME_CLUSTER = "persys.home_cluster"
HOME_STOP_AFTER = "persys.home_stop_after"

PREFIX_RULE = (
    "the id of a cluster followed by '--', of a-z, 0-9 and '-', beginning with a letter or digit, "
    "for example home--"
)

_PREFIX = re.compile(r"[a-z0-9](-?[a-z0-9])*--")
_PREFIX_LENGTH_MAX = 62  # a workload id has at most 63 characters


def problem_of(cluster_id: str) -> str:
    """Why this is not a valid cluster id; empty if it is."""
    if not cluster_id:
        return "expected the name of the cluster"
    if SEPARATOR in cluster_id or cluster_id.endswith("-"):
        return (
            "expected a name without '--' and without '-' at the end, for example "
            f"{_suggested(cluster_id)}: '--' separates the id of a cluster from the ids of its workloads in "
            "other clusters"
        )
    return ""


def check_prefix(text: str, field: str = "prefix") -> str:
    if len(text) > _PREFIX_LENGTH_MAX or not _PREFIX.fullmatch(text):
        raise InvalidError(field, f"invalid prefix {text[:80]!r}: expected {PREFIX_RULE}")
    return text


def prefix_of(cluster_id: str) -> str:
    return f"{cluster_id}{SEPARATOR}"


def cluster_of(prefix: str) -> str:
    """The cluster id of a prefix."""
    return prefix.removesuffix(SEPARATOR)


def _suggested(cluster_id: str) -> str:
    return re.sub("-+", "-", cluster_id).rstrip("-") or "default"
