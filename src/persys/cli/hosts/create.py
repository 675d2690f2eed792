"""`persys cluster create --hosts a,b,c`: sets up a cluster over ssh, and a context of persysctl for it.

All hosts are checked before the first change. The command can be repeated: it skips what is done, and
continues an interrupted run.
"""

import getpass
import io
import re
import sys
import tarfile
import tempfile
from argparse import Namespace
from collections.abc import Mapping, Sequence
from datetime import timedelta
from hashlib import file_digest
from pathlib import Path
from typing import NamedTuple

from persys.ca.key_files import ROOTS
from persys.cli.connect.context_file import context_path, read_contexts, write_contexts
from persys.cli.framework.exit_codes import ExitCode, SetupError, UsageError
from persys.cli.framework.live import live_view
from persys.cli.hosts import facts as fact_sheet
from persys.cli.hosts import scripts
from persys.cli.hosts.bundle import pack
from persys.cli.hosts.execute import Execution, Progress, on_all, todo
from persys.cli.hosts.facts import Facts, parse_facts, parts_of
from persys.cli.hosts.inventory import Host, Member, parse_hosts, parse_hosts_file
from persys.cli.hosts.plan import CA, GATEWAY, SCHEDULER, Cluster, Program, phases
from persys.cli.hosts.ssh import HostError, Shell, open_ssh
from persys.cli.local.poll import poll
from persys.client.grpc.channel import Trust
from persys.client.scheduler import SchedulerClient
from persys.core.auth.certificate_renewal import Freshness, freshness
from persys.errors import SettingsError, UnavailableError
from persys.infra.atomic_files import PRIVATE, PUBLIC, CertificateFiles, write_files
from persys.infra.clock import SystemClock
from persys.infra.tls.certificates import read_key_pair
from persys.model.identity import Identity
from persys.model.role import Role

READY_DEADLINE = timedelta(minutes=3)
_CALL_TIMEOUT = timedelta(seconds=5)
_ELF = b"\x7fELF"  # a program starts with it
_NOT_IN_NAMES = re.compile(r"[^a-z0-9-]+")


class Checked(NamedTuple):
    members: list[Member]
    facts: Mapping[Host, Facts]
    schedulers: int


def create(options: Namespace) -> ExitCode:
    hosts = _hosts(options)
    schedulers = _scheduler_count(options.schedulers, len(hosts))
    etcd = _program(options.etcd) if options.etcd else None
    with (
        tempfile.TemporaryDirectory(prefix="persys-") as directory,
        open_ssh(identity=options.identity, options=options.ssh_option) as shell,
    ):
        checked = _check(shell, hosts, schedulers, own_etcd=etcd is not None)
        package = pack(options.package, options.wheelhouse, Path(directory))
        cluster = Cluster(
            tuple(checked.members), schedulers, package, etcd, tuple(options.gateway_host)
        )
        if options.dry_run:
            return _print_plan(shell, cluster)
        _execute(shell, cluster)
        trust = _context(shell, cluster, options.context)
    _wait_until_ready(cluster, trust)
    print(_summary(checked, cluster, options.context))
    return ExitCode.OK


def _hosts(options: Namespace) -> list[Host]:
    if options.hosts is not None:
        return parse_hosts(options.hosts)
    path = Path(options.hosts_file).expanduser()
    try:
        return parse_hosts_file(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as err:
        raise UsageError(f"--hosts-file {path}: {getattr(err, 'strerror', '') or err}") from err


def _scheduler_count(wanted: int | None, hosts: int) -> int:
    count = wanted or (3 if hosts >= 3 else 1)
    if count > hosts:
        raise UsageError(
            f"invalid --schedulers '{count}': expected at most {hosts}, the number of hosts"
        )
    return count


def _program(name: str) -> Program:
    path = Path(name).expanduser()
    try:
        with path.open("rb") as file:
            if file.read(len(_ELF)) != _ELF:
                raise UsageError(f"invalid --etcd '{name}': expected a program, not an archive")
            file.seek(0)
            return Program(path, file_digest(file, "sha256").hexdigest())
    except OSError as err:
        raise UsageError(f"--etcd {name}: {err.strerror}") from err


def _check(shell: Shell, hosts: Sequence[Host], schedulers: int, *, own_etcd: bool) -> Checked:
    """Read the facts of all hosts. Raises SetupError with all problems of all hosts."""
    now = SystemClock().now().timestamp()
    results = on_all(hosts, lambda host: shell.run(host, fact_sheet.SCRIPT, root=False))
    problems: list[str] = []
    found: dict[Host, Facts] = {}
    for number, (host, result) in enumerate(results.items()):
        if isinstance(result, HostError):
            problems.append(f"{host}: {result}")
            continue
        found[host] = parse_facts(result.output.decode(errors="replace"))
        parts = parts_of(number, schedulers)
        problems += [
            f"{host}: {each}"
            for each in fact_sheet.problems_of(found[host], parts, now=now, own_etcd=own_etcd)
        ]
    if not problems:
        members = fact_sheet.members_of(hosts, found)
        problems = fact_sheet.conflicts_of(members, found, schedulers)
        if not problems:
            return Checked(members, found, schedulers)
    raise SetupError("\nerror: ".join([*problems, "nothing was changed"]))


def _print_plan(shell: Shell, cluster: Cluster) -> ExitCode:
    steps = todo(shell, phases(cluster))
    for number, member in enumerate(cluster.members):
        parts = ", ".join(parts_of(number, cluster.schedulers))
        print(f"{member.name} ({member.address}): {parts}")
        for step, is_done in steps:
            if step.member == member:
                print(f"  {'done' if is_done else 'todo'}  {step.title}")
    count = sum(not is_done for _, is_done in steps)
    print(f"{count} of {len(steps)} steps to do; nothing was changed")
    return ExitCode.OK


def _execute(shell: Shell, cluster: Cluster) -> None:
    with live_view(quiet=False) as update:
        progress = Progress(update, [member.name for member in cluster.members])
        outcome = Execution(shell, progress).run(phases(cluster))
    if outcome.failures:
        lines = [f"{name}: {why}" for name, why in sorted(outcome.failures.items())]
        raise SetupError("\nerror: ".join([*lines, "run the same command again to continue"]))


def _context(shell: Shell, cluster: Cluster, name: str) -> Trust:
    """Write the certificate of this user and the context, which is the current one when it is new."""
    folder = context_path().parent / name
    files = CertificateFiles(folder / "admin.crt", folder / "admin.key", folder / "ca.crt")
    identity = Identity(
        Role.ADMIN, _NOT_IN_NAMES.sub("-", getpass.getuser().lower()).strip("-") or "admin"
    )
    host = cluster.first.host
    roots = shell.run(host, f"cat /var/lib/persys/ca/{ROOTS}", root=True).output
    if not _is_valid(files, identity, roots):
        script = scripts.PRELUDE + scripts.admin_certificate(identity.name)
        result = shell.run(host, script, root=True)
        if result.code != 0:
            raise SetupError(
                f"{cluster.first.name}: issue the certificate of {identity}: {result.errors}"
            )
        _save(result.output, files)
    contexts = read_contexts()
    keys: dict[str, object] = {
        "transport": "grpc",
        "grpc_endpoint": cluster.scheduler_addresses,
        "api_endpoint": f"https://{cluster.first.at(GATEWAY)}",
        "ca_endpoint": cluster.first.at(CA),
        "ca_cert_path": str(files.roots),
        "cert_path": str(files.certificate),
        "key_path": str(files.key),
    }
    is_new = name not in contexts.contexts or not contexts.contexts[name]
    changed = contexts.with_context(name, keys)
    if is_new:
        changed = changed.with_current(name)
    if changed != contexts:
        write_contexts(changed)
    return Trust(files)


def _is_valid(files: CertificateFiles, identity: Identity, roots: bytes) -> bool:
    now = SystemClock().now()
    try:
        pair = read_key_pair(files, now)
    except SettingsError:
        return False
    fresh = freshness(pair.claims.not_before, pair.claims.not_after, now) is Freshness.FRESH
    return fresh and pair.claims.identity == identity and bool(roots) and roots in pair.roots


def _save(archive: bytes, files: CertificateFiles) -> None:
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        content = {entry.name: tar.extractfile(entry) for entry in tar.getmembers()}
        read = {name: file.read() for name, file in content.items() if file is not None}
    try:
        files.roots.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_files(
            [
                (files.roots, read["ca.crt"], PUBLIC),
                (files.key, read["admin.key"], PRIVATE),
                (files.certificate, read["admin.crt"], PUBLIC),
            ]
        )
    except OSError as err:
        raise SetupError(f"{err.filename or files.roots.parent}: {err.strerror}") from err


def _wait_until_ready(cluster: Cluster, trust: Trust) -> None:
    wanted = {member.name for member in cluster.members}
    last = ""

    def all_ready() -> bool | None:
        nonlocal last
        for member in cluster.scheduler_members:
            try:
                address = member.at(SCHEDULER)
                with SchedulerClient(address, timeout=_CALL_TIMEOUT, trust=trust) as client:
                    ready = {node.node_id for node in client.list_nodes(status="Ready")}
            except UnavailableError as err:
                last = f"the schedulers do not answer this machine: {err}; open port {SCHEDULER} for it"
                continue
            missing = ", ".join(sorted(wanted - ready))
            last = f"not ready: {missing}; see `journalctl -u persys-agent` there"
            return None if missing else True
        return None

    print("waiting for the nodes", file=sys.stderr, flush=True)
    if poll(all_ready, within=READY_DEADLINE, every=timedelta(seconds=1)) is None:
        raise SetupError(f"{last}\nerror: run the same command again to continue")


def _summary(checked: Checked, cluster: Cluster, context: str) -> str:
    first, count = cluster.first, len(cluster.members)
    store = "the embedded store" if cluster.schedulers == 1 else "etcd"
    notes = [
        f"note: {each}"
        for number, member in enumerate(cluster.members)
        for each in fact_sheet.notes_of(
            member, checked.facts[member.host], parts_of(number, cluster.schedulers)
        )
    ]
    current = read_contexts().current
    used = (
        f"context '{context}' of persysctl is the current one"
        if current == context
        else f"use it with: persysctl context use {context}"
    )
    nodes = "1 node is ready" if count == 1 else f"{count} nodes are ready"
    schedulers = "1 scheduler" if cluster.schedulers == 1 else f"{cluster.schedulers} schedulers"
    return "\n".join(
        [
            f"{nodes}; {schedulers} with {store}",
            f"dashboard:  https://{first.at(GATEWAY)}/",
            f"persysctl:  {used}",
            f"backup:     store a copy of /var/lib/persys/ca of {first.name} in a safe place",
            *notes,
            "next:       persysctl node list",
        ]
    )
