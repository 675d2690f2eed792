"""GET /metrics of the gateway."""

import re
from pathlib import Path

from shells.gateway.running_gateway import RunningGateway

ROOT = Path(__file__).parents[3]


async def page(api: RunningGateway) -> str:
    async with api.session.get("/metrics") as response:
        assert response.status == 200
        return await response.text()


async def test_requests_are_counted_by_method_and_status(api: RunningGateway) -> None:
    await api.get("/api/v1/nodes")
    await api.get("/api/v1/workloads/missing")

    response = await page(api)

    assert 'persys_gateway_requests_total{method="GET",status="200"} 1.0' in response
    assert 'persys_gateway_requests_total{method="GET",status="404"} 1.0' in response
    assert "persys_gateway_request_seconds_count 2.0" in response


async def test_reachable_schedulers_are_counted(api: RunningGateway) -> None:
    await api.get("/api/v1/nodes")

    assert 'persys_gateway_schedulers_reachable{cluster="default"} 1.0' in await page(api)


async def test_every_metric_is_in_the_table(api: RunningGateway) -> None:
    families = set(re.findall(r"^# TYPE (\S+)", await page(api), re.MULTILINE))
    documented = (ROOT / "docs" / "reference" / "metrics.md").read_text("utf-8")

    assert {name for name in families if f"`{name}`" not in documented} == set()
