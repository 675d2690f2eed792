"""Builders of hosts, members, facts and clusters."""

from pathlib import Path

from persys.cli.hosts.facts import Facts, Python
from persys.cli.hosts.inventory import Host, Member
from persys.cli.hosts.plan import Cluster, Package, Program

NOW = 1_800_000_000


def a_member(name: str = "a", number: int = 1) -> Member:
    return Member(Host(f"ada@{name}.example.org"), name, f"10.0.0.{number}", "python3")


def facts(**changes: object) -> Facts:
    usual = Facts(
        user="ada",
        root=True,
        hostname="a.example.org",
        address="10.0.0.1",
        clock=NOW,
        systemd=True,
        pythons=(Python("python3", (3, 11), True),),
        active=frozenset(),
        listening=frozenset({22}),
        docker=True,
        etcd=False,
        apt=True,
        firewall="",
        schedulers="",
    )
    return usual._replace(**changes)  # type: ignore[arg-type]


def a_cluster(
    count: int = 3,
    *,
    schedulers: int | None = None,
    digest: str = "d1",
    debs: bool = False,
    etcd: Program | None = None,
) -> Cluster:
    members = tuple(a_member(chr(ord("a") + number), number + 1) for number in range(count))
    package = Package(Path("bundle.tar"), digest, "persys-1.whl", debs)
    return Cluster(members, schedulers or (3 if count >= 3 else 1), package, etcd)
