"""The settings of persys-federation."""

import pytest

from persys.errors import SettingsError
from persys.federation.settings import FederationSettings
from persys.infra.settings import load

REMOTE = "https://gateway:8551"


def settings(**environ: str) -> FederationSettings:
    environ = {"PERSYS_FEDERATION_REMOTE": REMOTE, **environ}
    loaded = load(FederationSettings, [], environ, program="persys-federation").settings
    loaded.check()
    return loaded


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("PERSYS_FEDERATION_REMOTE", ""),
        ("PERSYS_FEDERATION_SHARE_PERCENT", "0"),
        ("PERSYS_FEDERATION_SHARE_PERCENT", "101"),
        ("PERSYS_FEDERATION_CORES_MAX", "-1"),
        ("PERSYS_FEDERATION_SPEND_PER_HOUR_MAX", "-1"),
        ("PERSYS_FEDERATION_REMOTE_CERT", "/c"),
        ("PERSYS_NODE_TIER", "0"),
        ("PERSYS_NODE_PRICE", "-1"),
        ("PERSYS_CLUSTER_ID", "a--b"),
    ],
)
def test_a_wrong_value_is_refused_with_its_variable(variable: str, value: str) -> None:
    with pytest.raises(SettingsError, match=variable):
        settings(**{variable: value})


def test_a_spend_limit_needs_a_price() -> None:
    with pytest.raises(SettingsError, match="PERSYS_NODE_PRICE"):
        settings(PERSYS_FEDERATION_SPEND_PER_HOUR_MAX="5")

    limits = settings(PERSYS_FEDERATION_SPEND_PER_HOUR_MAX="5", PERSYS_NODE_PRICE="0.5").limits
    assert limits.cores_max() == 10


def test_the_agent_has_the_settings_of_the_node_and_no_runtimes() -> None:
    agent = settings(PERSYS_NODE_ID="far", PERSYS_NODE_TIER="2", PERSYS_TLS_CRL="/crl").agent()

    assert (agent.node_id, agent.node_tier, agent.tls_crl) == ("far", 2, "/crl")
    assert [agent.docker_enabled, agent.compose_enabled, agent.vm_enabled] == [False] * 3
