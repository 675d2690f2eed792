"""What a host reports about itself, and the problems that prevent a set-up.

The script only reads. It runs as the user of the ssh connection, and uses sudo where it needs root.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from persys.cli.hosts.inventory import Host, Member
from persys.errors import InvalidError
from persys.model.ids import node_id

PYTHON_LEAST = (3, 11)
CLOCK_SECONDS_MAX = 30
PORTS = {
    "ca": (8888,),
    "etcd": (2379, 2380),
    "scheduler": (8085, 8084),
    "agent": (50051, 8089),
    "gateway": (8551, 8585),
}
STATE = "/var/lib/persys/cluster-create"
SCHEDULERS_FILE = f"{STATE}/schedulers"
SCRIPT = rf"""
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
as_root() {{ if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi; }}
echo "user=$(id -un)"
as_root true 2>/dev/null && echo root=yes
echo "hostname=$(uname -n)"
echo "address=$(echo "${{SSH_CONNECTION:-}}" | cut -d ' ' -f 3)"
echo "now=$(date +%s)"
[ -d /run/systemd/system ] && echo systemd=yes
for python in python3 python3.13 python3.12 python3.11; do
  version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || continue
  venv=no
  "$python" -c 'import ensurepip, venv' 2>/dev/null && venv=yes
  echo "python=$python $version $venv"
done
for part in {" ".join(PORTS)}; do
  systemctl is-active --quiet "persys-$part" 2>/dev/null && echo "active=$part"
done
cat /proc/net/tcp /proc/net/tcp6 2>/dev/null |
  awk '$4 == "0A" {{ n = split($2, part, ":"); print "listening=" part[n] }}'
command -v docker >/dev/null && echo docker=yes
command -v etcd >/dev/null && echo etcd=yes
command -v apt-get >/dev/null && echo apt=yes
as_root ufw status 2>/dev/null | grep -q '^Status: active' && echo firewall=ufw
as_root firewall-cmd --state 2>/dev/null | grep -q '^running' && echo firewall=firewalld
echo "schedulers=$(as_root cat {SCHEDULERS_FILE} 2>/dev/null)"
exit 0
"""


class Python(NamedTuple):
    command: str
    version: tuple[int, ...]
    has_venv: bool


class Facts(NamedTuple):
    user: str
    root: bool  # is root, or may use sudo without a password
    hostname: str
    address: str
    clock: int  # in seconds since 1970
    systemd: bool
    pythons: tuple[Python, ...]
    active: frozenset[str]  # our units
    listening: frozenset[int]
    docker: bool
    etcd: bool
    apt: bool
    firewall: str
    schedulers: str  # the addresses of an earlier set-up


def parse_facts(output: str) -> Facts:
    """Other lines, such as those of a login script, are ignored."""
    found: dict[str, list[str]] = {}
    for line in output.splitlines():
        key, equals, value = line.partition("=")
        if equals:
            found.setdefault(key, []).append(value.strip())

    def one(key: str) -> str:
        return found.get(key, [""])[-1]

    return Facts(
        user=one("user"),
        root=one("root") == "yes",
        hostname=one("hostname"),
        address=one("address"),
        clock=int(one("now")) if one("now").isdecimal() else 0,
        systemd=one("systemd") == "yes",
        pythons=tuple(_python(value) for value in found.get("python", ()) if value.count(" ") == 2),
        active=frozenset(found.get("active", ())),
        listening=frozenset(int(port, 16) for port in found.get("listening", ())),
        docker=one("docker") == "yes",
        etcd=one("etcd") == "yes",
        apt=one("apt") == "yes",
        firewall=one("firewall"),
        schedulers=one("schedulers"),
    )


def _python(text: str) -> Python:
    command, version, venv = text.split()
    return Python(command, tuple(int(part) for part in version.split(".")), venv == "yes")


def members_of(hosts: Sequence[Host], facts: Mapping[Host, Facts]) -> list[Member]:
    return [
        Member(
            host,
            name=host.name or facts[host].hostname.partition(".")[0].lower(),
            address=host.address or facts[host].address,
            python=next((each.command for each in usable_pythons(facts[host])), ""),
        )
        for host in hosts
    ]


def usable_pythons(facts: Facts) -> list[Python]:
    return [each for each in facts.pythons if each.version >= PYTHON_LEAST and each.has_venv]


def parts_of(number: int, schedulers: int) -> tuple[str, ...]:
    """What runs on the host with this number. The first also has the CA and the gateway."""
    return (
        *(("ca",) if number == 0 else ()),
        *(("etcd",) if number < schedulers and schedulers > 1 else ()),
        *(("scheduler",) if number < schedulers else ()),
        *(("gateway",) if number == 0 else ()),
        "agent",
    )


def problems_of(facts: Facts, parts: Sequence[str], *, now: float, own_etcd: bool) -> Iterator[str]:
    """Why this host cannot be set up, each with the remedy. `own_etcd`: etcd is sent to the host."""
    if not facts.root:
        yield (
            f"user {facts.user} is not root and cannot use sudo without a password: connect as root, "
            f"or allow it with '{facts.user} ALL=(ALL) NOPASSWD: ALL' in /etc/sudoers.d/persys"
        )
    if not facts.systemd:
        yield "systemd is not running: expected a host that was booted with systemd"
    if not usable_pythons(facts):
        yield _python_problem(facts.pythons)
    for part in parts:
        if part not in facts.active:
            for port in PORTS[part]:
                if port in facts.listening:
                    yield _port_problem(part, port)
    if "etcd" in parts and not (facts.etcd or own_etcd or facts.apt):
        yield "etcd is not installed: install etcd 3.4 or newer, or send it with --etcd PATH"
    if abs(facts.clock - now) > CLOCK_SECONDS_MAX:
        yield (
            f"its clock differs by {abs(facts.clock - now):.0f} s from the clock of this machine: "
            "synchronize it, for example with `timedatectl set-ntp true`"
        )
    if not facts.address:
        yield "its address is unknown: set address=ADDRESS in a hosts file"


def _python_problem(pythons: Sequence[Python]) -> str:
    wanted = ".".join(map(str, PYTHON_LEAST))
    if not pythons:
        return (
            f"Python is not installed: expected {wanted} or newer, for example python3 of Debian 12"
        )
    recent = [each for each in pythons if each.version >= PYTHON_LEAST]
    if not recent:
        newest = ".".join(map(str, max(each.version for each in pythons)))
        return (
            f"Python {newest} is too old: expected {wanted} or newer, for example the packages "
            "python3.11 and python3.11-venv"
        )
    return f"{recent[0].command} has no venv: install it, for example with `apt-get install python3-venv`"


def _port_problem(part: str, port: int) -> str:
    text = f"port {port} of the {part} is in use by another process: find it with `ss -ltnp sport = :{port}`"
    return text + (
        ", and stop an etcd of the distribution with `systemctl disable --now etcd`"
        if part == "etcd"
        else ""
    )


def conflicts_of(
    members: Sequence[Member], facts: Mapping[Host, Facts], schedulers: int
) -> list[str]:
    """Problems of the hosts together."""
    found = []
    for what, remedy, values in (
        ("host name", "set name=NAME in a hosts file", [one.name for one in members]),
        ("address", "set address=ADDRESS in a hosts file", [one.address for one in members]),
    ):
        for value in sorted({value for value in values if values.count(value) > 1}):
            names = " and ".join(
                str(one.host) for one, has in zip(members, values, strict=True) if has == value
            )
            found.append(f"{names} have the same {what} '{value}': {remedy}")
    for member in members:
        try:
            node_id(member.name, field=f"the name of {member.host}")
        except InvalidError as err:
            found.append(f"{err}; set name=NAME in a hosts file")
    wanted = scheduler_record(members[:schedulers])
    for member in members:
        earlier = facts[member.host].schedulers
        if earlier and earlier != wanted:
            found.append(
                f"{member.host} belongs to a cluster with the schedulers {earlier}: expected {wanted}. "
                "List the hosts in the same order, and set the same --schedulers"
            )
    return found


def scheduler_record(members: Iterable[Member]) -> str:
    return ",".join(f"{one.name}={one.address}" for one in members)


def notes_of(member: Member, facts: Facts, parts: Sequence[str]) -> Iterator[str]:
    """What does not prevent the set-up."""
    if not facts.docker:
        yield (
            f"{member.name} has no Docker and cannot run containers: install it, for example with "
            "`apt-get install docker.io`"
        )
    ports = [port for part in parts for port in PORTS[part]]
    if facts.firewall == "ufw":
        opened = " ".join(f"&& ufw allow {port}/tcp" for port in ports)
        yield f"{member.name} has a firewall; open the ports: {opened.removeprefix('&& ')}"
    if facts.firewall == "firewalld":
        opened = " ".join(f"--add-port={port}/tcp" for port in ports)
        yield (
            f"{member.name} has a firewall; open the ports: firewall-cmd --permanent {opened} && "
            "firewall-cmd --reload"
        )
