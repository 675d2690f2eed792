"""kill -9 of a gateway at each step of a workload's lifecycle, in plain text and with mTLS."""

import pytest

from third_party.gateway_pairings import MOMENTS, GatewayPairing, after_a_gateway_kill
from third_party.steps import STEPS


@pytest.mark.full
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("name", STEPS)
def test_a_step_completes_after_kill_9_of_the_gateway(
    gateway_pairing: GatewayPairing, name: str, moment: str, unique_id: str
) -> None:
    after_a_gateway_kill(gateway_pairing, name, unique_id, moment)
