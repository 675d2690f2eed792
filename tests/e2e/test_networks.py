"""Networks across nodes on two nodes, each with a network namespace and a Docker of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.network_nodes import DOMAIN, NetworkNode, Switch, configure
from e2e.waiting import eventually
from persys.wire.gen.agent.v1 import agent_pb2 as pb

SLEEP = ("sleep", "86400")
BYTES = 64 * 1024
SERVE = f"mkdir -p /www; head -c {BYTES} /dev/zero > /www/large; exec httpd -f -p 80 -h /www"


@pytest.fixture(scope="module")
def nodes(
    tmp_path_factory: pytest.TempPathFactory, demo_image: str
) -> Iterator[tuple[NetworkNode, NetworkNode]]:
    directory: Path = tmp_path_factory.mktemp("networks")
    switch = Switch()
    made = [NetworkNode(switch, number, directory, demo_image) for number in (1, 2)]
    try:
        for node in made:
            node.start()
        yield made[0], made[1]
    finally:
        for node in made:
            node.close()
        switch.close()


def test_members_reach_each_other_and_a_removed_network_leaves_nothing(
    nodes: tuple[NetworkNode, NetworkNode],
) -> None:
    """One test, because its steps build on each other and nodes take long to start."""
    first, second = nodes
    first.apply("client", *SLEEP)
    eventually(
        lambda: first.status("client").message == "waiting for network backend",
        lambda: f"{first.status('client')} {first.log}",
    )
    second.apply("web", "sh", "-c", SERVE)

    configure(nodes, "v1")
    client, web = first.address_of("client"), second.address_of("web")
    assert (client, web) == ("10.128.0.2", "10.128.0.65"), (client, web)
    configure(nodes, "v2", names={"web": [web], "client": [client]})

    for name in (web, "web", "web.backend", f"web.backend.{DOMAIN}"):
        eventually(
            lambda name=name: _received(first, name) == BYTES,  # type: ignore[misc]
            lambda name=name: f"{name}: {_received(first, name)} {first.log} {second.log}",  # type: ignore[misc]
        )

    _check_stack(nodes, web)
    _check_spoofing(first, web)
    _check_rules(nodes, client, web)
    _check_repair(first, web)
    _check_restart(first, web)
    _check_removal(nodes)


def _received(node: NetworkNode, name: str) -> int:
    command = f"timeout 5 wget -q -O - http://{name}/large"
    return len(node.exec("client", "sh", "-c", command).stdout)


def _check_stack(nodes: tuple[NetworkNode, NetworkNode], web: str) -> None:
    """The services of a stack join with an address each, and keep the default network of the stack."""
    first, second = nodes
    service = f"{{image: {second.image}, init: true, stop_grace_period: 1s, command: [sh, -c, '{SERVE}']}}"
    second.apply_stack("shop", f"services:\n  front: {service}\n  db: {service}\n")
    addresses = dict(one.split("=") for one in second.address_of("shop").split(","))
    assert addresses.keys() == {"front", "db"}
    configure(nodes, "v2-stack", names={"shop": list(addresses.values()), "web": [web]})
    for name in (*addresses.values(), "shop"):
        eventually(
            lambda name=name: _received(first, name) == BYTES,  # type: ignore[misc]
            lambda name=name: f"{name}: {_received(first, name)} {first.log} {second.log}",  # type: ignore[misc]
        )
    front = second.containers(
        *("ps", "-q", "--filter", "label=persys.workload_id=shop"),
        *("--filter", "label=com.docker.compose.service=front"),
    ).strip()
    for name in ("db", "web", f"web.backend.{DOMAIN}"):
        second.containers("exec", front, "wget", "-q", "-O", "/dev/null", f"http://{name}/large")
    second.stub.DeleteWorkload(pb.DeleteWorkloadRequest(id="shop"), timeout=30)


def _check_spoofing(node: NetworkNode, web: str) -> None:
    """A privileged process in the container sends with another address of the slice and with another MAC."""
    pid = node.containers("inspect", "-f", "{{.State.Pid}}", node.container_of("client")).strip()
    enter = ("nsenter", f"--net=/proc/{pid}/ns/net")
    node.run(*enter, "ip", "addr", "add", "10.128.0.9/22", "dev", "eth0")
    try:
        node.run(*enter, "busybox", "ping", "-c", "1", "-W", "2", web)
        with pytest.raises(AssertionError):
            node.run(*enter, "busybox", "ping", "-c", "2", "-W", "1", "-I", "10.128.0.9", web)
    finally:
        node.run(*enter, "ip", "addr", "delete", "10.128.0.9/22", "dev", "eth0")


def _check_rules(nodes: tuple[NetworkNode, NetworkNode], client: str, web: str) -> None:
    names = {"web": [web]}
    rule = pb.NetworkRule(targets=[web], ports=[80], protocol="tcp", sources=["10.128.0.3"])
    configure(nodes, "v3", names=names, rules=[rule])
    eventually(lambda: _received(nodes[0], web) == 0, lambda: nodes[1].log)
    rule = pb.NetworkRule(targets=[web], ports=[80], protocol="tcp", sources=[client])
    configure(nodes, "v4", names=names, rules=[rule])
    eventually(lambda: _received(nodes[0], web) == BYTES, lambda: nodes[1].log)


def _check_repair(node: NetworkNode, web: str) -> None:
    started = node.containers("inspect", "-f", "{{.State.StartedAt}}", node.container_of("client"))
    node.run("ip", "link", "delete", "pnb7")
    eventually(lambda: _received(node, web) == BYTES, lambda: node.log)
    node.run("nft", "flush", "ruleset")
    node.run("ip", "link", "delete", "pnx7")
    eventually(lambda: _received(node, web) == BYTES, lambda: node.log)
    after = node.containers("inspect", "-f", "{{.State.StartedAt}}", node.container_of("client"))
    assert after == started


def _check_restart(node: NetworkNode, web: str) -> None:
    container = node.container_of("client")
    started = node.containers("inspect", "-f", "{{.State.StartedAt}}", container)
    node.agent.kill()
    assert _received(node, web) == BYTES
    node.agent = node.new_agent({})
    node.agent.start()
    node.connect()
    assert node.address_of("client") == "10.128.0.2"
    eventually(lambda: _received(node, "web") == BYTES, lambda: node.log)
    assert node.containers("inspect", "-f", "{{.State.StartedAt}}", container) == started


def _check_removal(nodes: tuple[NetworkNode, NetworkNode]) -> None:
    for node, workload_id in zip(nodes, ("client", "web"), strict=True):
        node.stub.DeleteWorkload(pb.DeleteWorkloadRequest(id=workload_id), timeout=30)
    configure(nodes, "v9", network_ids=())
    for node in nodes:
        eventually(lambda node=node: not _left(node), lambda node=node: f"{_left(node)} {node.log}")  # type: ignore[misc]


def _left(node: NetworkNode) -> list[str]:
    """What the network has left on the node."""
    links = node.run("ip", "-o", "link")
    found = [name for name in ("pnb7", "pnx7") if name in links]
    found += node.containers("network", "ls", "-q", "--filter", "label=persys.network_id").split()
    return found + [
        line for line in node.run("nft", "list", "tables").splitlines() if "persys" in line
    ]
