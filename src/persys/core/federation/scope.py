"""What a spec may contain if its caller has a token with a prefix: nothing that belongs to others.

The id of the workload is checked before, like that of every other request. The metadata with which another
cluster marks its workloads is checked for all callers.
"""

from collections.abc import Iterator

from persys.core.federation.cluster_ids import HOME_CLUSTER, HOME_STOP_AFTER, cluster_of
from persys.core.numbers import whole_number
from persys.core.secrets import references_of
from persys.errors import InvalidError
from persys.model.placement import NO_RULES, Rules
from persys.model.secret import StoredReference
from persys.model.spec import ComposeSpec, ContainerSpec, Spec, VMSpec

STOP_AFTER_SECONDS_MAX = 366 * 24 * 60 * 60


def check_scope(prefix: str, spec: Spec, rules: Rules, metadata: dict[str, str]) -> None:
    """Raises InvalidError with the field. `prefix` is empty for a caller that is not limited."""
    _check_home_stop_after(metadata)
    if not prefix:
        return
    _check_rules(prefix, rules)
    for field, reference in references_of(spec).items():
        if not isinstance(reference, StoredReference):
            raise _outside(field, "a secret of Vault", prefix)
        if not reference.name.startswith(prefix):
            raise _outside(field, f"secret {reference.name}", prefix)
    for field, name in _names(spec):
        if name and not name.startswith(prefix):
            raise _outside(field, repr(name), prefix)
    home = metadata.get(HOME_CLUSTER, cluster_of(prefix))
    if home != cluster_of(prefix):
        raise _outside(f"spec.metadata[{HOME_CLUSTER!r}]", f"cluster {home[:80]!r}", prefix)


def home_stop_after(metadata: dict[str, str]) -> int:
    """Seconds without contact to its home cluster after which the workload is stopped; 0: never."""
    return whole_number(metadata.get(HOME_STOP_AFTER, "")) or 0


def _check_home_stop_after(metadata: dict[str, str]) -> None:
    text = metadata.get(HOME_STOP_AFTER)
    if text is None:
        return
    seconds = whole_number(text)
    if seconds is None or not 1 <= seconds <= STOP_AFTER_SECONDS_MAX:
        raise InvalidError(
            f"spec.metadata[{HOME_STOP_AFTER!r}]",
            f"invalid time {text[:40]!r}: expected 1 to {STOP_AFTER_SECONDS_MAX} seconds, for example 60",
        )
    if not metadata.get(HOME_CLUSTER):
        raise InvalidError(
            f"spec.metadata[{HOME_CLUSTER!r}]",
            f"is missing: expected the id of the cluster, because {HOME_STOP_AFTER} is set",
        )


def _check_rules(prefix: str, rules: Rules) -> None:
    for field, is_set in (
        ("offload", rules.offload is not NO_RULES.offload),
        ("offload_data", rules.offload_data),
        ("return", rules.return_when_free),
    ):
        if is_set:
            raise InvalidError(
                f"spec.placement.{field}",
                f"cannot be set with a token that is limited to the prefix {prefix!r}: a workload of "
                "another cluster is not offloaded again",
            )
    if rules.group and not rules.group.startswith(prefix):
        raise _outside("spec.placement.group", f"group {rules.group}", prefix)


def _names(spec: Spec) -> Iterator[tuple[str, str]]:
    """Names of what exists on nodes independently of the workload."""
    match spec:
        case ContainerSpec():
            yield "spec.container.image_credential", spec.image_credential
        case ComposeSpec():
            # Volumes that an earlier project of this name has left would be mounted.
            yield "spec.compose.project_name", spec.project_name
            yield "spec.compose.image_credential", spec.image_credential
            yield "spec.compose.git_credential", spec.git_credential
        case VMSpec():
            yield "spec.vm.name", spec.name


def _outside(field: str, what: str, prefix: str) -> InvalidError:
    return InvalidError(
        field, f"{what} is not allowed: the token is limited to names that begin with {prefix!r}"
    )
