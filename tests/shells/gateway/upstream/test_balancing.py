"""The order in which schedulers are tried."""

from typing import NamedTuple

import pytest

from persys.gateway.upstream.balancing import Strategy, order_by_strategy


class FakeEndpoint(NamedTuple):
    address: str
    healthy: bool = True
    is_leader: bool = False


FIVE = [FakeEndpoint(f"s{number}:8085") for number in range(5)]


def test_the_leader_comes_first_and_the_unhealthy_last() -> None:
    lost, plain, leader = (
        FakeEndpoint("a", healthy=False),
        FakeEndpoint("b"),
        FakeEndpoint("c", is_leader=True),
    )

    assert order_by_strategy([lost, plain, leader], Strategy.LEADER_ONLY, "") == [
        leader,
        plain,
        lost,
    ]


@pytest.mark.parametrize("strategy", [Strategy.STICKY, Strategy.SHARD])
def test_a_key_always_selects_the_same_scheduler_and_keys_are_spread(strategy: Strategy) -> None:
    first = {str(key): order_by_strategy(FIVE, strategy, str(key))[0] for key in range(200)}

    assert first == {
        str(key): order_by_strategy(FIVE[::-1], strategy, str(key))[0] for key in range(200)
    }
    assert set(first.values()) == set(FIVE)


def test_a_leaving_scheduler_moves_only_its_own_keys() -> None:
    before = {str(key): order_by_strategy(FIVE, Strategy.SHARD, str(key))[0] for key in range(200)}
    after = {
        str(key): order_by_strategy(FIVE[1:], Strategy.SHARD, str(key))[0] for key in range(200)
    }

    assert all(after[key] == one for key, one in before.items() if one is not FIVE[0])
