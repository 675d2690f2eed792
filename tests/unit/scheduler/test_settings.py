"""Settings of a scheduler: the store that they select, and the id of the cluster."""

import pytest

from persys.agent.settings import AgentSettings
from persys.errors import SettingsError
from persys.infra.settings import Loaded, load
from persys.scheduler.settings import SchedulerSettings, with_store


def selected(**environ: str) -> Loaded[SchedulerSettings]:
    return with_store(load(SchedulerSettings, [], environ, program="persys-scheduler"))


def test_without_a_setting_the_store_is_the_embedded_one() -> None:
    loaded = selected()

    assert loaded.settings.store == "sqlite:/var/lib/persys/scheduler.db"
    assert loaded.sources["store"] == "neither PERSYS_STORE nor an etcd option is set"


@pytest.mark.parametrize(
    "name", ["ETCD_ENDPOINTS", "ETCD_CA", "ETCD_CERT", "ETCD_KEY", "ETCD_USER", "ETCD_PASSWORD"]
)
def test_any_etcd_option_selects_etcd(name: str) -> None:
    loaded = selected(**{name: "a:2379"})

    assert loaded.settings.store == "etcd"
    assert loaded.sources["store"] == f"{name} is set"


def test_a_named_store_is_used() -> None:
    assert selected(PERSYS_STORE="etcd").settings.store == "etcd"
    assert selected(PERSYS_STORE="/a.db").settings.store == "/a.db"


def test_a_file_and_etcd_at_once_are_refused() -> None:
    with pytest.raises(SettingsError, match="ETCD_USER is set too"):
        selected(PERSYS_STORE="/a.db", ETCD_USER="u")


def test_options_for_the_etcd_of_names_may_stand_beside_a_file() -> None:
    names = {"DISCOVERY_ETCD_ENDPOINTS": "dns:2379", "ETCD_CA": "ca.pem"}

    assert selected(PERSYS_STORE="/a.db", **names).settings.store == "/a.db"
    with pytest.raises(SettingsError, match="ETCD_ENDPOINTS is set too"):
        selected(PERSYS_STORE="/a.db", ETCD_ENDPOINTS="a:2379", **names)


@pytest.mark.parametrize("cluster_id", ["eu--west", "eu-", "--"])
def test_a_cluster_id_with_the_separator_of_federation_is_refused(cluster_id: str) -> None:
    with pytest.raises(
        SettingsError, match=r"PERSYS_CLUSTER_ID='.*': expected a name without '--'"
    ):
        selected(PERSYS_CLUSTER_ID=cluster_id)
    with pytest.raises(SettingsError, match="drain the node"):
        AgentSettings(cluster_id=cluster_id).check()


def test_an_empty_cluster_id_is_refused() -> None:
    with pytest.raises(SettingsError, match="PERSYS_CLUSTER_ID='': expected the name"):
        SchedulerSettings(cluster_id="")
