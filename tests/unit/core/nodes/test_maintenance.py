"""Node maintenance by operators."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from builders import N1, NOON
from persys.core import nodes
from persys.errors import RefusedError
from persys.model.node import Capabilities, Node, NodeStatus

NODE = Node(N1, Capabilities(1000, 1000), "127.0.0.1:1", NOON)


def test_a_cordoned_node_is_ready_and_closed() -> None:
    cordoned = nodes.cordon(NODE, now=NOON)

    assert cordoned.status is NodeStatus.READY
    assert nodes.closed_because(cordoned) == "cordoned"


def test_a_drain_has_a_deadline_and_state_draining() -> None:
    drained = nodes.drain(NODE, deadline=timedelta(minutes=5), now=NOON)

    assert drained.drain is not None
    assert drained.drain.deadline_at == NOON + timedelta(minutes=5)
    assert drained.status is NodeStatus.DRAINING
    assert nodes.closed_because(drained) == "draining"


def test_uncordon_ends_a_drain_too() -> None:
    opened = nodes.uncordon(nodes.drain(NODE, deadline=None, now=NOON), now=NOON)

    assert nodes.closed_because(opened) == ""
    assert opened.status is NodeStatus.READY


def test_a_node_without_heartbeats_stays_not_ready() -> None:
    silent = replace(NODE, status=NodeStatus.NOT_READY)

    assert nodes.drain(silent, deadline=None, now=NOON).status is NodeStatus.NOT_READY
    assert nodes.confirm_dead(silent, now=NOON).confirmed_dead


def test_a_node_that_sends_heartbeats_is_not_confirmed_dead() -> None:
    with pytest.raises(RefusedError, match="only a NotReady node"):
        nodes.confirm_dead(NODE, now=NOON)


def test_a_tainted_node_is_schedulable_and_shows_its_taints() -> None:
    tainted = nodes.taint(NODE, frozenset({"gpu", "team=ml"}), now=NOON)

    assert nodes.closed_because(tainted) == ""
    assert tainted.status_reason == "tainted: gpu, team=ml"
    assert nodes.taint(tainted, frozenset({"team=ml", "gpu"}), now=NOON) is tainted
    assert nodes.taint(tainted, frozenset(), now=NOON).taints == frozenset()
