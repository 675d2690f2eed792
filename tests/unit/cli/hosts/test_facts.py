"""Facts of hosts, and the problems that they show."""

import pytest

from persys.cli.hosts.facts import (
    Facts,
    Python,
    conflicts_of,
    members_of,
    notes_of,
    parse_facts,
    parts_of,
    problems_of,
    usable_pythons,
)
from persys.cli.hosts.inventory import Host
from unit.cli.hosts.builders import NOW, a_member, facts

OUTPUT = """\
Welcome to this server
user=ada
root=yes
hostname=Web-1.example.org
address=10.0.0.7
now=1800000000
systemd=yes
python=python3 3.10 yes
python=python3.12 3.12 yes
active=agent
listening=0016
listening=1F95
docker=yes
apt=yes
firewall=ufw
schedulers=
"""


def problems(found: Facts, *parts: str, own_etcd: bool = False) -> list[str]:
    return list(problems_of(found, parts or ("agent",), now=NOW, own_etcd=own_etcd))


def test_facts_are_read_from_the_output_of_the_script() -> None:
    found = parse_facts(OUTPUT)

    assert found.root
    assert found.pythons == (Python("python3", (3, 10), True), Python("python3.12", (3, 12), True))
    assert found.active == {"agent"}
    assert found.listening == {22, 8085}
    assert (found.address, found.firewall, found.etcd) == ("10.0.0.7", "ufw", False)


def test_a_host_without_output_has_every_problem() -> None:
    found = problems(parse_facts(""), "etcd", "agent")

    assert len(found) == 6


def test_a_member_has_the_name_of_its_host_and_a_recent_python() -> None:
    host, named = Host("ada@a"), Host("b", name="n2", address="192.168.0.2")
    facts_of = {host: parse_facts(OUTPUT), named: parse_facts(OUTPUT)}

    first, second = members_of([host, named], facts_of)

    assert (first.name, first.address, first.python) == ("web-1", "10.0.0.7", "python3.12")
    assert (second.name, second.address) == ("n2", "192.168.0.2")


@pytest.mark.parametrize(
    ("number", "schedulers", "expected"),
    [
        (0, 1, ("ca", "scheduler", "gateway", "agent")),
        (1, 1, ("agent",)),
        (0, 3, ("ca", "etcd", "scheduler", "gateway", "agent")),
        (2, 3, ("etcd", "scheduler", "agent")),
        (3, 3, ("agent",)),
    ],
)
def test_the_first_host_also_has_the_ca_and_the_gateway(
    number: int, schedulers: int, expected: tuple[str, ...]
) -> None:
    assert parts_of(number, schedulers) == expected


def test_a_usual_host_has_no_problem() -> None:
    assert problems(facts(), "ca", "etcd", "scheduler", "gateway", "agent") == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"root": False}, "user ada is not root and cannot use sudo without a password"),
        ({"systemd": False}, "systemd is not running"),
        ({"pythons": ()}, "Python is not installed: expected 3.11 or newer"),
        ({"pythons": (Python("python3", (3, 9), True),)}, "Python 3.9 is too old"),
        ({"pythons": (Python("python3", (3, 12), False),)}, "python3 has no venv"),
        ({"listening": frozenset({8085})}, "port 8085 of the scheduler is in use"),
        ({"listening": frozenset({2379})}, "systemctl disable --now etcd"),
        ({"apt": False}, "etcd is not installed"),
        ({"clock": NOW - 100}, "its clock differs by 100 s"),
        ({"address": ""}, "its address is unknown"),
    ],
)
def test_each_problem_has_its_remedy(changes: dict[str, object], expected: str) -> None:
    (only,) = problems(facts(**changes), "etcd", "scheduler")

    assert expected in only


def test_a_port_of_an_active_unit_is_not_a_problem() -> None:
    found = facts(listening=frozenset({8085, 8084}), active=frozenset({"scheduler"}))

    assert problems(found, "scheduler") == []


def test_etcd_that_is_sent_or_installed_needs_no_package() -> None:
    assert problems(facts(apt=False), "etcd", own_etcd=True) == []
    assert problems(facts(apt=False, etcd=True), "etcd") == []


def test_a_python_without_venv_is_not_used() -> None:
    pythons = (Python("python3", (3, 13), False), Python("python3.11", (3, 11), True))

    assert [each.command for each in usable_pythons(facts(pythons=pythons))] == ["python3.11"]


def test_equal_names_and_addresses_are_refused() -> None:
    members = [a_member("a", 1), a_member("a", 1)._replace(host=Host("b"))]
    known = {member.host: facts() for member in members}

    names, addresses = conflicts_of(members, known, 1)

    assert names.startswith("ada@a.example.org and b have the same host name 'a'")
    assert addresses.startswith("ada@a.example.org and b have the same address '10.0.0.1'")


def test_a_host_name_that_is_not_a_node_id_is_refused() -> None:
    member = a_member()._replace(name="_")

    (only,) = conflicts_of([member], {member.host: facts()}, 1)

    assert "set name=NAME in a hosts file" in only


def test_other_schedulers_than_before_are_refused() -> None:
    members = [a_member(name, number) for number, name in enumerate("abc", 1)]
    known = {member.host: facts() for member in members}
    known[members[1].host] = facts(schedulers="a=10.0.0.1")

    (only,) = conflicts_of(members, known, 3)

    assert "belongs to a cluster with the schedulers a=10.0.0.1" in only
    assert "expected a=10.0.0.1,b=10.0.0.2,c=10.0.0.3" in only
    assert conflicts_of(members, known, 1) == []


def test_notes_have_the_commands_for_docker_and_the_firewall() -> None:
    member = a_member()

    assert "apt-get install docker.io" in next(notes_of(member, facts(docker=False), ("agent",)))
    (ufw,) = notes_of(member, facts(firewall="ufw"), ("agent",))
    assert ufw.endswith("open the ports: ufw allow 50051/tcp && ufw allow 8089/tcp")
    (other,) = notes_of(member, facts(firewall="firewalld"), ("agent",))
    assert "firewall-cmd --permanent --add-port=50051/tcp --add-port=8089/tcp" in other
