"""Workloads and nodes that fail, and what is reported to the user."""

from datetime import timedelta

from shells.scheduler.harness import Cluster, eventually
from shells.scheduler.third_party_agent import Node


async def failed_again(cluster: Cluster, node: Node, *, orders: int) -> None:
    """Wait until the agent got this many orders and the last failure is counted."""

    async def counted() -> bool:
        view = await cluster.control.workload("web")
        attempts = min(orders, 5)
        return len(node.agent.applies) == orders and view.retry_attempts == attempts

    await eventually(counted, lambda: f"order {orders}; there were {len(node.agent.applies)}")
    await cluster.control.until("web", "Failed")


async def test_a_failing_workload_is_retried_with_back_off_until_it_runs(
    cluster: Cluster,
) -> None:
    node = await cluster.join()
    node.agent.behaviour.failures["web"] = ("RUNTIME_ERROR", "exit code 137")
    await cluster.control.apply("web")
    view = await cluster.control.until("web", "Failed")
    assert (view.failure_reason, view.reason.message) == ("RUNTIME_ERROR", "exit code 137")
    assert (view.retry_attempts, view.retry_max_attempts) == (1, 5)
    assert view.reason.retryable
    delay = view.retry_next_at.ToDatetime() - view.reason.last_transition.ToDatetime()
    assert timedelta(seconds=3.9) < delay < timedelta(seconds=6.1)

    for order in range(2, 7):
        assert len(node.agent.applies) == order - 1
        cluster.clock.ahead += timedelta(minutes=3)
        await failed_again(cluster, node, orders=order)

    async def is_retried_slowly() -> bool:
        view = await cluster.control.workload("web")
        wait = view.retry_next_at.ToDatetime() - cluster.clock.now().replace(tzinfo=None)
        return timedelta(seconds=180) < wait < timedelta(seconds=361)

    await eventually(is_retried_slowly, lambda: "the slow attempts to begin")
    view = await cluster.control.workload("web")
    assert (view.status, view.retry_attempts, view.reason.retryable) == ("Failed", 5, True)
    assert len(node.agent.applies) == 6

    del node.agent.behaviour.failures["web"]
    cluster.clock.ahead += timedelta(minutes=7)
    view = await cluster.control.until("web", "Running")
    assert (view.retry_attempts, view.HasField("retry_next_at")) == (0, False)


async def test_a_permanent_failure_is_not_retried(cluster: Cluster) -> None:
    node = await cluster.join()
    node.agent.behaviour.failures["web"] = ("IMAGE_NOT_FOUND", "no such image: nginx")
    await cluster.control.apply("web")
    view = await cluster.control.until("web", "Failed")

    assert view.failure_reason == "IMAGE_NOT_FOUND"
    assert not view.HasField("retry_next_at")
    assert not view.reason.retryable

    del node.agent.behaviour.failures["web"]
    await cluster.control.apply("web", image="nginx:1")
    await cluster.control.until("web", "Running")


async def test_a_retry_request_starts_a_workload_that_was_given_up(cluster: Cluster) -> None:
    node = await cluster.join()
    node.agent.behaviour.failures["web"] = ("IMAGE_NOT_FOUND", "no such image: nginx")
    await cluster.control.apply("web")
    await cluster.control.until("web", "Failed")
    del node.agent.behaviour.failures["web"]

    assert (await cluster.control.retry("web")).accepted

    await cluster.control.until("web", "Running")
    first, second = node.agent.applies
    assert (first.id, first.revision_id) == (second.id, second.revision_id)


async def test_a_node_that_cannot_run_a_type_is_not_offered_it_until_it_registers_again(
    cluster: Cluster,
) -> None:
    node = await cluster.join("n1")
    node.agent.behaviour.refuses_at_once = True
    await cluster.control.apply("web")

    async def refused() -> bool:
        view = await cluster.control.workload("web")
        return view.reason.message == "1 node without a runtime for container"

    await eventually(refused, lambda: "the node to be ruled out")
    assert len(node.agent.applies) == 1
    assert list((await cluster.control.node("n1")).supported_workload_types) == ["compose"]

    node.agent.behaviour.refuses_at_once = False
    await node.register()
    await cluster.control.until("web", "Running")
    view = await cluster.control.node("n1")
    assert list(view.supported_workload_types) == ["compose", "container"]


async def test_a_runtime_error_in_a_task_result_also_excludes_the_node_for_the_type(
    cluster: Cluster,
) -> None:
    node = await cluster.join("n1")
    node.agent.behaviour.refuses_later = True
    await cluster.control.apply("web")

    async def refused() -> bool:
        view = await cluster.control.workload("web")
        return view.reason.message == "1 node without a runtime for container"

    await eventually(refused, lambda: f"the node to be ruled out: {len(node.agent.applies)} orders")
    assert len(node.agent.applies) == 1

    other = await cluster.join("n2")
    await cluster.control.until("web", "Running")
    assert other.agent.running() == {"web"}


async def test_a_slow_node_does_not_delay_others(cluster: Cluster) -> None:
    slow = await cluster.join("slow")
    await cluster.control.apply("first")
    await cluster.control.until("first", "Running")
    slow.agent.behaviour.answer_seconds = 1.5
    fast = await cluster.join("fast", cpu=64_000)
    await cluster.control.apply("on-slow", cpu=100)
    for number in range(10):
        await cluster.control.apply(f"w{number}", cpu=500)
    for number in range(10):
        await cluster.control.until(f"w{number}", "Running", within=5)

    assert len(fast.agent.running()) >= 10


async def test_a_slow_node_is_not_polled_again_before_it_has_replied(cluster: Cluster) -> None:
    node = await cluster.join()
    node.agent.behaviour.work_seconds = 1.5
    names = [f"w{number}" for number in range(5)]
    for name in names:
        await cluster.control.apply(name)

    async def sent() -> bool:
        return len(node.agent.applies) == len(names)

    await eventually(sent, lambda: "the orders to arrive")
    node.agent.behaviour.answer_seconds = 0.3
    before = len(node.agent.asked)
    for name in names:
        await cluster.control.until(name, "Running")
    # One poll takes 0.3 s, so few fit into the time of the operation.
    assert len(node.agent.asked) - before < 20
    await cluster.control.apply("after")
    await cluster.control.until("after", "Pending")

    async def is_applied() -> bool:
        return any(sent.id == "after" for sent in node.agent.applies)

    await eventually(is_applied, lambda: "an order to get through", within=3)


async def test_a_node_without_an_agent_is_shown_and_gets_the_order_on_return(
    cluster: Cluster,
) -> None:
    node = await cluster.join()
    await node.agent.stop()
    await cluster.control.apply("web")

    async def unreachable() -> bool:
        view = await cluster.control.workload("web")
        return view.reason.code == "NodeUnreachable"

    await eventually(unreachable, lambda: "the trouble to be told")
    view = await cluster.control.workload("web")
    assert view.reason.message.startswith("node n1 does not respond: UNAVAILABLE")
    assert view.retry_attempts == 0

    await node.agent.start()
    await cluster.control.until("web", "Running")


async def test_overlong_texts_of_an_agent_are_cut(cluster: Cluster) -> None:
    node = await cluster.join()
    node.agent.behaviour.failures["web"] = ("INVALID_SPECIFICATION", "x" * 3_000_000)
    await cluster.control.apply("web")
    view = await cluster.control.until("web", "Failed")

    assert view.failure_reason == "INVALID_SPEC"
    assert 0 < len(view.reason.message) < 100_000
    await cluster.control.apply("other")
    await cluster.control.until("other", "Running")
