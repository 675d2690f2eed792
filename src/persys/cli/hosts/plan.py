"""The steps that set up a cluster, as in docs/how-to/production.md: pure.

A step has a condition, which only reads, and an action. It is done if its key is recorded on the host and the
condition holds. The key covers what the action depends on: with another package or other settings it runs
again. Each action can be repeated: a step that was interrupted at any point is not recorded, and runs again.
Steps of one phase run on all hosts at the same time, in order on each host.
"""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from persys.cli.hosts import scripts
from persys.cli.hosts.facts import SCHEDULERS_FILE, STATE, parts_of, scheduler_record
from persys.cli.hosts.inventory import Member

CA, ETCD, ETCD_PEER, SCHEDULER, AGENT, GATEWAY = 8888, 2379, 2380, 8085, 50051, 8551
_ETCD_VARIABLES = {
    "ETCD_CA": f"{scripts.ETCD_CERTIFICATES}/ca.crt",
    "ETCD_CERT": f"{scripts.ETCD_CERTIFICATES}/etcd.crt",
    "ETCD_KEY": f"{scripts.ETCD_CERTIFICATES}/etcd.key",
}
_ETCD_UNIT = """\
# Member of the etcd of Persys; written by `persys cluster create`.
[Unit]
Description=etcd of Persys
Wants=network-online.target
After=network-online.target
Before=persys-scheduler.service
StartLimitIntervalSec=0

[Service]
Type=exec
ExecStart={program}
EnvironmentFile=/etc/persys/etcd.env
Restart=always
RestartSec=2
User=persys
Group=persys
StateDirectory=persys/etcd
StateDirectoryMode=0700
UMask=0077
LimitNOFILE=65536

CapabilityBoundingSet=
LockPersonality=yes
NoNewPrivileges=yes
PrivateDevices=yes
PrivateTmp=yes
ProtectControlGroups=yes
ProtectHome=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectSystem=strict
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native

[Install]
WantedBy=multi-user.target
"""


class Package(NamedTuple):
    bundle: Path
    digest: str
    title: str
    debs: bool  # Debian packages, which have units and users; else a wheel


class Program(NamedTuple):
    path: Path
    digest: str


class Cluster(NamedTuple):
    members: tuple[Member, ...]
    schedulers: int
    package: Package
    etcd: Program | None = None  # sent to the hosts; None: that of the host or its distribution
    gateway_hosts: tuple[str, ...] = ()

    @property
    def first(self) -> Member:
        return self.members[0]

    @property
    def scheduler_members(self) -> tuple[Member, ...]:
        return self.members[: self.schedulers]

    @property
    def etcd_members(self) -> tuple[Member, ...]:
        """A single scheduler uses the embedded store."""
        return self.scheduler_members if self.schedulers > 1 else ()

    @property
    def scheduler_addresses(self) -> str:
        return ",".join(member.at(SCHEDULER) for member in self.scheduler_members)


class Output(NamedTuple):
    """The output of a script on another host, as the input of an action."""

    member: Member
    script: str


class Step(NamedTuple):
    member: Member
    name: str  # of its record on the host
    title: str
    action: str
    condition: str = ""  # exits with 0 if the result of the action exists; reads only
    given: Path | Output | None = None  # the standard input of the action
    depends_on: str = ""  # more that the action depends on

    @property
    def key(self) -> str:
        given = self.given.script if isinstance(self.given, Output) else ""
        text = "\0".join((self.action, given, self.depends_on))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def check_script(self) -> str:
        return scripts.PRELUDE + scripts.is_recorded(self.name, self.key) + self.condition

    @property
    def action_script(self) -> str:
        return scripts.PRELUDE + scripts.LOCK + self.action + scripts.record(self.name, self.key)


Phase = tuple[Step, ...]


def phases(cluster: Cluster) -> list[Phase]:
    """A phase starts when all hosts have completed the one before."""
    first, others = cluster.scheduler_members[0], cluster.scheduler_members[1:]
    found = [
        [step for number in range(len(cluster.members)) for step in _programs(cluster, number)],
        [*_ca(cluster)],
        [_reach(member, cluster.first, CA, "the CA") for member in cluster.members[1:]],
        [step for member in cluster.etcd_members for step in _etcd(cluster, member)],
        [_etcd_answers(cluster, member) for member in cluster.etcd_members],
        [
            step
            for member in cluster.scheduler_members
            for step in _scheduler_settings(cluster, member)
        ],
        [
            _start(cluster, first, "scheduler", SCHEDULER, _scheduler_variables(cluster, first)),
            *(_copied_secrets_key(cluster, member) for member in others),
        ],
        [
            _start(cluster, member, "scheduler", SCHEDULER, _scheduler_variables(cluster, member))
            for member in others
        ],
        [
            *_gateway(cluster),
            *(step for member in cluster.members for step in _agent(cluster, member)),
        ],
    ]
    return [tuple(phase) for phase in found if phase]


def _programs(cluster: Cluster, number: int) -> Iterator[Step]:
    member, package = cluster.members[number], cluster.package
    parts = [part for part in parts_of(number, cluster.schedulers) if part != "etcd"]
    action = scripts.install_debs() if package.debs else scripts.install_wheel(member.python)
    yield Step(
        member,
        "programs",
        f"install {package.title}",
        action,
        "command -v persysctl >/dev/null || exit 1\n",
        package.bundle,
        package.digest,
    )
    if not package.debs:
        units = scripts.install_units(parts)
        yield Step(
            *(member, "units", "install systemd units", units, scripts.has_units(parts)),
            depends_on=package.digest,
        )
    # Refuses a later run with other schedulers, see facts.py.
    record = scheduler_record(cluster.scheduler_members)
    yield Step(
        *(member, "topology", "record the schedulers"),
        f"mkdir -p {STATE}\necho '{record}' >{SCHEDULERS_FILE}\n",
        f"[ -s {SCHEDULERS_FILE} ] || exit 1\n",
    )


def _ca(cluster: Cluster) -> Iterator[Step]:
    member = cluster.first
    variables = {"PERSYS_CA_ADVERTISE": member.at(CA)}
    yield _variables(member, "ca", variables)
    yield _start(cluster, member, "ca", CA, variables)


def _etcd(cluster: Cluster, member: Member) -> Iterator[Step]:
    program = scripts.ETCD_PROGRAM if cluster.etcd else "/usr/bin/env etcd"
    if cluster.etcd:
        present = f"[ -x {program} ] || exit 1\n"
        yield Step(
            *(
                member,
                "etcd-program",
                f"install etcd from {cluster.etcd.path}",
                scripts.SEND_ETCD,
                present,
            ),
            cluster.etcd.path,
            cluster.etcd.digest,
        )
    else:
        present = "command -v etcd >/dev/null || exit 1\n"
        yield Step(member, "etcd-program", "install etcd", scripts.INSTALL_ETCD, present)
    yield Step(
        *(member, "etcd-certificate", "issue the certificate of etcd"),
        scripts.SAVE_ETCD_CERTIFICATES,
        f"[ -s {scripts.ETCD_CERTIFICATES}/etcd.key ] || exit 1\n",
        Output(cluster.first, scripts.etcd_certificate(member.name, member.address)),
    )
    settings, unit = etcd_settings(cluster, member), _ETCD_UNIT.format(program=program)
    files = (("/etc/persys/etcd.env", settings), ("/etc/systemd/system/persys-etcd.service", unit))
    write = "".join(scripts.write_file(path, content) for path, content in files)
    same = "".join(scripts.has_file(path, content) for path, content in files)
    start = "systemctl daemon-reload\nrestart persys-etcd\n"
    yield Step(
        *(member, "etcd-start", "start etcd", write + start, same + scripts.is_active("etcd")),
        depends_on=cluster.etcd.digest if cluster.etcd else "",
    )


def _etcd_answers(cluster: Cluster, member: Member) -> Step:
    """etcd listens for clients when it has a quorum, so all members are started before."""
    peers = "".join(
        f"must_reach {member.python} {peer.address} {ETCD_PEER}\n"
        for peer in cluster.scheduler_members
        if peer != member
    )
    wait = f"wait_for_port {member.python} {member.address} {ETCD} persys-etcd\n"
    answers = f"connects {member.python} {member.address} {ETCD} || exit 1\n"
    # The peers may still be starting; what does not answer in the end is named.
    action = f"(\n{wait}) || {{\n{peers}exit 1\n}}\n"
    return Step(member, "etcd-answers", "wait for etcd", action, answers)


def etcd_settings(cluster: Cluster, member: Member) -> str:
    peers = (f"{each.name}=https://{each.at(ETCD_PEER)}" for each in cluster.scheduler_members)
    files = {"TRUSTED_CA_FILE": "ca.crt", "CERT_FILE": "etcd.crt", "KEY_FILE": "etcd.key"}
    variables = {
        "NAME": member.name,
        "DATA_DIR": "/var/lib/persys/etcd",
        "LISTEN_CLIENT_URLS": f"https://{member.at(ETCD)}",
        "ADVERTISE_CLIENT_URLS": f"https://{member.at(ETCD)}",
        "LISTEN_PEER_URLS": f"https://{member.at(ETCD_PEER)}",
        "INITIAL_ADVERTISE_PEER_URLS": f"https://{member.at(ETCD_PEER)}",
        "INITIAL_CLUSTER": ",".join(peers),
        "INITIAL_CLUSTER_TOKEN": "persys",
        "AUTO_COMPACTION_RETENTION": "1h",
        "CLIENT_CERT_AUTH": "true",
        "PEER_CLIENT_CERT_AUTH": "true",
        **{name: f"{scripts.ETCD_CERTIFICATES}/{file}" for name, file in files.items()},
        **{f"PEER_{name}": f"{scripts.ETCD_CERTIFICATES}/{file}" for name, file in files.items()},
    }
    head = "# Variables of etcd; written by `persys cluster create`.\n"
    return head + "".join(f"ETCD_{name}={value}\n" for name, value in variables.items())


def _scheduler_settings(cluster: Cluster, member: Member) -> Iterator[Step]:
    yield _certificate(cluster, member, "scheduler")
    yield _variables(member, "scheduler", _scheduler_variables(cluster, member))
    if member == cluster.first:
        yield _secrets_key(member, "create the key of secrets", scripts.CREATE_SECRETS_KEY)


def _scheduler_variables(cluster: Cluster, member: Member) -> dict[str, str]:
    variables = {
        "PERSYS_CA_ADDR": cluster.first.at(CA),
        "SCHEDULER_ADVERTISE_IP": member.address,
    }
    if cluster.schedulers == 1:
        return variables
    endpoints = ",".join(each.at(ETCD) for each in cluster.scheduler_members)
    return {"PERSYS_STORE": "etcd", "ETCD_ENDPOINTS": endpoints, **_ETCD_VARIABLES, **variables}


def _secrets_key(member: Member, title: str, action: str, given: Output | None = None) -> Step:
    """Secrets are encrypted with a key that all schedulers share.

    It may have become a systemd credential, as docs/how-to/production.md describes.
    """
    exists = f"[ -s {scripts.SECRETS_KEY} ] || [ -s {scripts.SECRETS_CREDENTIAL} ] || exit 1\n"
    return Step(member, "secrets-key", title, action, exists, given)


def _copied_secrets_key(cluster: Cluster, member: Member) -> Step:
    key = Output(cluster.first, f"cat {scripts.SECRETS_KEY}\n")
    return _secrets_key(member, "copy the key of secrets", scripts.SAVE_SECRETS_KEY, key)


def _gateway(cluster: Cluster) -> Iterator[Step]:
    member = cluster.first
    variables = {
        "PERSYS_CA_ADDR": member.at(CA),
        "PERSYS_SCHEDULER_ADDR": cluster.scheduler_addresses,
    }
    yield _certificate(cluster, member, "gateway", gateway_hosts(cluster))
    yield _variables(member, "gateway", variables)
    yield _start(cluster, member, "gateway", GATEWAY, variables)


def gateway_hosts(cluster: Cluster) -> list[str]:
    """The names that browsers and persysctl use."""
    first = cluster.first
    named = (first.address, first.name, first.host.destination.rpartition("@")[2])
    return list(dict.fromkeys((*named, *cluster.gateway_hosts)))


def _agent(cluster: Cluster, member: Member) -> Iterator[Step]:
    schedulers = cluster.scheduler_addresses
    for peer in cluster.scheduler_members:
        if peer != member:
            yield _reach(member, peer, SCHEDULER, f"the scheduler of {peer.name}")
    yield Step(
        *(member, "agent-join", "join the cluster"),
        f"persys-agent join {schedulers} - >&2\n",
        f"[ -s {scripts.CERTIFICATES}/agent.crt ] || exit 1\n",
        Output(cluster.first, scripts.token("agent", member.name)),
    )
    yield _start(cluster, member, "agent", AGENT, {"schedulers": schedulers})


def _certificate(cluster: Cluster, member: Member, role: str, hosts: Sequence[str] = ()) -> Step:
    return Step(
        *(member, f"{role}-certificate", f"issue the certificate of the {role}"),
        scripts.join(role, hosts),
        f"[ -s {scripts.CERTIFICATES}/persys-{role}/{role}.crt ] || exit 1\n",
        Output(cluster.first, scripts.token(role, member.name, hosts)),
    )


def _variables(member: Member, part: str, variables: dict[str, str]) -> Step:
    return Step(
        *(member, f"{part}-settings", f"write /etc/persys/{part}.env"),
        scripts.set_variables(part, variables),
        scripts.has_variables(part, variables),
    )


def _start(
    cluster: Cluster, member: Member, part: str, port: int, settings: dict[str, str]
) -> Step:
    """Also restarts it with a new package or other settings."""
    address = "127.0.0.1" if part == "agent" else member.address
    start = scripts.start(part, member.python, address, port)
    return Step(
        *(member, f"{part}-start", f"start the {'CA' if part == 'ca' else part}", start),
        scripts.is_active(part),
        depends_on=f"{cluster.package.digest} {sorted(settings.items())}",
    )


def _reach(member: Member, target: Member, port: int, what: str) -> Step:
    must_reach = f"must_reach {member.python} {target.address} {port}\n"
    return Step(member, f"reach-{target.name}-{port}", f"connect to {what}", must_reach)
