"""Whole rollouts, decision by decision."""

from datetime import timedelta
from random import Random

from persys.core.sets.rollout import DELETE_RULES, RULES, STOP_RULES
from persys.model.event import EventKind
from persys.model.sets import OnFailure, Phase, UpdatePolicy
from set_builders import decision_of, members_of
from set_model import Behaviour, Cluster

QUICK = UpdatePolicy(min_healthy_seconds=10, healthy_deadline_seconds=60)


def a_cluster(
    replicas: int = 4,
    *,
    update: UpdatePolicy = QUICK,
    data: bool = False,
    first: Behaviour = Behaviour.GOOD,
) -> Cluster:
    """With the first revision on all members, unless it does not become healthy."""
    cluster = Cluster(Random(0), faults=False, behaviours=False)
    cluster.create(replicas, update, first, data=data)
    cluster.settle()
    return cluster


def revisions(cluster: Cluster) -> list[int]:
    """The revision of each member, by index."""
    members = sorted(cluster.live(), key=lambda member: member.index)
    return [member.revision for member in members]


def test_a_new_set_becomes_steady() -> None:
    cluster = a_cluster(4)

    assert cluster.record.stable == 1
    assert [member.number for member in cluster.live()] == [0, 1, 2, 3]


def test_a_good_revision_reaches_all_members() -> None:
    for data in (False, True):
        cluster = a_cluster(4, data=data)

        cluster.apply_template(Behaviour.GOOD)
        cluster.settle()

        assert (cluster.record.rollout.phase, cluster.record.stable) == (Phase.STEADY, 2)
        assert revisions(cluster) == [2, 2, 2, 2]


def test_members_with_data_keep_their_numbers() -> None:
    cluster = a_cluster(4, data=True)

    cluster.apply_template(Behaviour.GOOD)
    cluster.settle()
    cluster.scale(2)
    cluster.settle()
    cluster.scale(4)
    cluster.settle()

    assert [(member.number, member.index) for member in cluster.live()] == [
        (number, number) for number in range(4)
    ]


def test_a_bad_revision_is_rolled_back_from_one_member() -> None:
    for behaviour in (Behaviour.UNHEALTHY, Behaviour.FAILED, Behaviour.SLOW, Behaviour.LOOP):
        for data in (False, True):
            cluster = a_cluster(4, data=data)

            cluster.apply_template(behaviour)
            cluster.settle()

            record = cluster.record
            assert (record.rollout.phase, record.target, record.stable) == (Phase.STEADY, 1, 1)
            assert record.rollout.rolled_back_from == 2
            assert revisions(cluster) == [1, 1, 1, 1]


def test_a_revision_that_fails_late_is_rolled_back_once() -> None:
    cluster = a_cluster(6)

    cluster.apply_template(Behaviour.LATE)
    cluster.settle()

    assert cluster.record.rollout.phase is Phase.STEADY
    assert revisions(cluster) == [1] * 6


def test_a_rollback_to_a_revision_that_no_longer_works_pauses() -> None:
    cluster = a_cluster(4, data=True)
    cluster.apply_template(Behaviour.LATE)
    cluster.run(20)

    cluster.break_revision(1)
    cluster.settle()

    assert cluster.record.rollout.phase is Phase.PAUSED
    assert cluster.record.rollout.reason.startswith("the rollback failed")
    assert cluster.rollbacks == 1


def test_a_first_deployment_that_fails_is_repaired_by_a_new_template() -> None:
    cluster = a_cluster(4, first=Behaviour.FAILED)
    assert cluster.record.rollout.phase is Phase.PAUSED

    cluster.apply_template(Behaviour.GOOD)
    cluster.settle()

    assert (cluster.record.rollout.phase, cluster.record.stable) == (Phase.STEADY, 2)


def test_a_paused_rollout_is_judged_again_after_a_resume() -> None:
    cluster = a_cluster(4, update=UpdatePolicy(10, on_failure=OnFailure.PAUSE))
    cluster.apply_template(Behaviour.UNHEALTHY)
    cluster.settle()
    assert cluster.record.rollout.phase is Phase.PAUSED

    cluster.repair_revision(2)
    cluster.resume()
    cluster.settle()

    assert (cluster.record.rollout.phase, cluster.record.stable) == (Phase.STEADY, 2)


def test_a_canary_reaches_the_other_members_after_its_time() -> None:
    update = UpdatePolicy(min_healthy_seconds=10, canary=1, bake_seconds=120)
    cluster = a_cluster(4, update=update)
    cluster.apply_template(Behaviour.GOOD)

    cluster.run(60)
    assert revisions(cluster) == [2, 1, 1, 1]
    cluster.settle()

    assert revisions(cluster) == [2, 2, 2, 2]


def test_a_lost_member_is_updated_without_waiting_for_its_node() -> None:
    cluster = a_cluster(4, data=True)
    cluster.record = cluster.with_update(max_parallel=2)
    cluster.lose(cluster.members[1])

    cluster.apply_template(Behaviour.GOOD)
    cluster.settle()

    assert cluster.record.rollout.phase is Phase.STEADY
    assert revisions(cluster) == [2, 2, 2, 2]


def test_scaling_during_a_rollout_does_not_spread_the_new_revision() -> None:
    cluster = a_cluster(2)
    cluster.apply_template(Behaviour.SLOW)
    cluster.run(10)

    cluster.scale(6)
    cluster.run(10)

    assert revisions(cluster).count(2) == 1


def test_a_rollout_takes_a_time_that_is_proportional_to_its_members() -> None:
    cluster = a_cluster(10)
    started = cluster.now

    cluster.apply_template(Behaviour.GOOD)
    cluster.settle()

    assert cluster.now - started < timedelta(seconds=10 * 25)


def test_every_rule_has_its_own_name() -> None:
    for rules in (RULES, STOP_RULES, DELETE_RULES):
        assert len({rule.name for rule in rules}) == len(rules)


def test_the_first_rule_that_changes_something_is_named() -> None:
    cluster = a_cluster(2)
    cluster.apply_template(Behaviour.GOOD)

    decision = cluster.decide(cut=False)

    assert (decision.rule, len(decision.put)) == ("update", 1)
    assert decision_of(None, members_of(3)).rule == "steady"


def test_a_completed_rollout_says_so() -> None:
    cluster = a_cluster(2)
    cluster.apply_template(Behaviour.GOOD)
    cluster.settle()

    assert cluster.events[-1].kind is EventKind.ROLLOUT_COMPLETED
