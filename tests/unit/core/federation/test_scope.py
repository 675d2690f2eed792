"""What a spec may contain if its caller has a token with a prefix."""

import pytest

from persys.core.federation.cluster_ids import HOME_CLUSTER, HOME_STOP_AFTER
from persys.core.federation.scope import check_scope, home_stop_after
from persys.errors import InvalidError
from persys.model.placement import NO_RULES, Offload, Rules
from persys.model.spec import ComposeSpec, ContainerSpec, Spec, VMSpec

NGINX = ContainerSpec("nginx")


def check(spec: Spec = NGINX, rules: Rules = NO_RULES, prefix: str = "home--", **home: str) -> None:
    metadata = {f"persys.home_{key}": value for key, value in home.items()}
    check_scope(prefix, spec, rules, metadata)


def with_env(value: str) -> ContainerSpec:
    return ContainerSpec("nginx", env={"X": value})


def test_a_plain_spec_and_its_own_names_are_accepted() -> None:
    check()
    check(with_env("secret://home--db"))
    check(rules=Rules(group="home--db", apart=True))
    check(cluster="home", stop_after="20")
    check(ComposeSpec(project_name="home--shop", git_credential="home--forge"))
    check(ContainerSpec("nginx", image_credential="home--hub"))


@pytest.mark.parametrize(
    ("rules", "field"),
    [
        (Rules(offload=Offload.WHEN_FULL), "spec.placement.offload"),
        (Rules(offload=Offload.PREFER), "spec.placement.offload"),
        (Rules(offload_data=True), "spec.placement.offload_data"),
        (Rules(return_when_free=True), "spec.placement.return"),
        (Rules(group="db"), "spec.placement.group"),
    ],
)
def test_rules_that_concern_others_are_refused(rules: Rules, field: str) -> None:
    with pytest.raises(InvalidError) as err:
        check(rules=rules)
    assert str(err.value).startswith(f"{field}:")
    check(rules=rules, prefix="")


@pytest.mark.parametrize("value", ["secret://db", "secret://home-db@2", "secret://vault/a#b"])
def test_secrets_of_others_are_refused(value: str) -> None:
    with pytest.raises(InvalidError, match="begin with 'home--'"):
        check(with_env(value))
    check(with_env(value), prefix="")


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        (ComposeSpec(project_name="shop"), "spec.compose.project_name"),
        (ComposeSpec(image_credential="hub"), "spec.compose.image_credential"),
        (ComposeSpec(git_credential="forge"), "spec.compose.git_credential"),
        (ContainerSpec("nginx", image_credential="hub"), "spec.container.image_credential"),
        (VMSpec(1, 512, name="db"), "spec.vm.name"),
    ],
)
def test_projects_machines_and_credentials_of_others_are_refused(spec: Spec, field: str) -> None:
    with pytest.raises(InvalidError) as err:
        check(spec)
    assert str(err.value).startswith(f"{field}:")
    check(spec, prefix="")


def test_another_home_cluster_is_refused() -> None:
    with pytest.raises(InvalidError, match="home_cluster"):
        check(cluster="east")
    check(cluster="east", prefix="")


@pytest.mark.parametrize("text", ["", "0", "-1", "soon", "1.5", "9" * 30])
@pytest.mark.parametrize("prefix", ["", "home--"])
def test_an_invalid_time_without_contact_is_refused_for_all(text: str, prefix: str) -> None:
    with pytest.raises(InvalidError, match="home_stop_after"):
        check(prefix=prefix, cluster="home", stop_after=text)


def test_a_time_without_contact_needs_a_home_cluster() -> None:
    with pytest.raises(InvalidError, match=r"home_cluster.*is missing"):
        check(prefix="", stop_after="20")


def test_the_time_without_contact_is_read_from_the_metadata() -> None:
    assert home_stop_after({HOME_CLUSTER: "home", HOME_STOP_AFTER: "20"}) == 20
    assert home_stop_after({HOME_STOP_AFTER: "soon"}) == home_stop_after({}) == 0
