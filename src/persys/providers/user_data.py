"""What a new machine does at its first boot, as cloud-init user data. Pure: text in, text out.

In this order: the power-off timer starts, so that a machine that never joins does not run for ever; the
metadata service of the provider is blocked for workloads; the software is installed and its checksum
verified; the machine joins with its token and the agent starts. The agent does not start without the block.

The block drops packets that arrive at the machine for the metadata service, before they are routed: those
come from containers, stacks and VMs. The machine's own requests do not arrive, so cloud-init still works
after a reboot. Some clouds serve DNS at the same address, so that port stays open.

The power-off timer acts on what the agent reports, and treats no report as a machine with workloads.
"""

import re
import shlex
from datetime import timedelta
from urllib.parse import urlsplit

from msgspec import Struct

from persys.core.bounded_yaml import dump
from persys.errors import InvalidError
from persys.model.nodepool import Software

BYTES_MAX = 16 * 1024  # the limit of EC2, the lowest of the supported providers
NO_LEADER_AFTER = timedelta(hours=1)
DESTROY_GRACE = timedelta(minutes=10)  # for the scheduler to destroy an idle machine
METADATA_ADDRESSES = ("169.254.169.254", "100.100.100.200")
METADATA_ADDRESSES_V6 = ("fd00:ec2::254", "fd20:ce::254")

TOKEN_FILE = "/etc/persys/join-token"  # noqa: S105
CONFIG_FILE = "/etc/persys/agent.yaml"
BOOT_SCRIPT = "/usr/local/sbin/persys-boot"
BLOCK_SCRIPT = "/usr/local/sbin/persys-block-metadata"
POWER_OFF_SCRIPT = "/usr/local/sbin/persys-power-off"
UNITS = "/etc/systemd/system"
_SHA256 = re.compile(r"[0-9a-f]{64}")
_PACKAGE = re.compile(r"[a-z0-9][-+.a-z0-9]{0,99}")
_INSTALLERS = (".tar.gz", ".whl", ".deb")


class Boot(Struct, frozen=True):
    """A machine and the cluster that it joins."""

    node_id: str
    cluster_id: str
    schedulers: tuple[str, ...]  # host:port, or the name of an SRV record
    join_token: str  # names the CA; "": the cluster has no TLS
    idle_after: timedelta
    keeps_idle: bool = (
        False  # the pool has a minimum: an idle machine in contact with a leader stays
    )
    labels: dict[str, str] = {}
    tier: int = 0
    core_hour_price: float = 0.0
    software: Software = Software()
    packages: tuple[str, ...] = ()


def user_data(boot: Boot) -> str:
    """Raises InvalidError."""
    files = [
        _file(BLOCK_SCRIPT, _block_script(), "0755"),
        _file(POWER_OFF_SCRIPT, _power_off_script(boot), "0755"),
        _file(BOOT_SCRIPT, _boot_script(boot), "0755"),
        _file(CONFIG_FILE, dump(_agent_settings(boot)), "0644"),
        *(_file(f"{UNITS}/{name}", text, "0644") for name, text in _units().items()),
    ]
    if boot.join_token:
        files.append(_file(TOKEN_FILE, f"{boot.join_token}\n", "0600"))
    config: dict[str, object] = {
        "hostname": boot.node_id,
        "preserve_hostname": False,
        **({"packages": list(_packages(boot)), "package_update": True} if boot.packages else {}),
        "write_files": files,
        "runcmd": [[BOOT_SCRIPT]],
    }
    text = f"#cloud-config\n{dump(config, width=10_000)}"
    if (size := len(text.encode())) > BYTES_MAX:
        raise InvalidError(
            "user_data",
            f"{size} bytes: expected at most {BYTES_MAX}; use fewer or shorter labels and packages",
        )
    return text


def _file(path: str, content: str, mode: str) -> dict[str, str]:
    return {"path": path, "permissions": mode, "owner": "root:root", "content": content}


def _packages(boot: Boot) -> tuple[str, ...]:
    for name in boot.packages:
        if not _PACKAGE.fullmatch(name):
            raise InvalidError(
                "options.packages",
                f"invalid package '{name}': expected a name, for example docker.io",
            )
    return boot.packages


def _agent_settings(boot: Boot) -> dict[str, object]:
    """The settings of the agent. `persys-agent join` adds the addresses of the CA."""
    settings: dict[str, object] = {
        "node_id": boot.node_id,
        "cluster_id": boot.cluster_id,
        "scheduler_addr": list(boot.schedulers),
    }
    if boot.labels:
        settings["node_labels"] = dict(boot.labels)
    if boot.tier:
        settings["node_tier"] = boot.tier
    if boot.core_hour_price:
        settings["node_price"] = boot.core_hour_price
    if not boot.join_token:
        settings["insecure"] = True
    return settings


def _boot_script(boot: Boot) -> str:
    """Ends on the first error. The power-off timer then ends the machine."""
    join = ""
    if boot.join_token:
        command = f"persys-agent join {shlex.quote(','.join(boot.schedulers))} -"
        join = f"""
until {command} <{TOKEN_FILE}; do
  tries=$((tries + 1))
  if [ $tries -ge 60 ]; then exit 1; fi
  sleep 10
done
rm -f {TOKEN_FILE}
"""
    return f"""#!/bin/sh
# Prepares this machine as node {boot.node_id}. cloud-init runs it once.
set -eu
export PATH=/opt/persys/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
tries=0
systemctl daemon-reload
systemctl enable --now persys-power-off.timer
systemctl enable --now persys-block-metadata.service
{_install_commands(boot.software)}
command -v persys-agent >/dev/null || {{ echo "persys-agent is not installed in this image" >&2; exit 1; }}
{join}
if ! systemctl cat persys-agent.service >/dev/null 2>&1; then
  mv {UNITS}/persys-agent.service.default {UNITS}/persys-agent.service
  systemctl daemon-reload
fi
systemctl enable persys-agent.service
systemctl restart persys-agent.service
"""


def _install_commands(software: Software) -> str:
    if not software.url:
        return "# The image contains the software."
    parts = urlsplit(software.url)
    kind = next((end for end in _INSTALLERS if parts.path.endswith(end)), "")
    if parts.scheme not in ("http", "https") or not parts.netloc or not kind:
        raise InvalidError(
            "software.url",
            f"invalid URL '{software.url}': expected one that ends with {', '.join(_INSTALLERS)}, "
            "for example https://example.com/persys-linux-x86_64.tar.gz",
        )
    if not _SHA256.fullmatch(software.sha256):
        raise InvalidError(
            "software.sha256", f"invalid checksum '{software.sha256}': expected 64 hex digits"
        )
    file = shlex.quote(parts.path.rpartition("/")[2])
    fetch = f"""work=$(mktemp -d)
until python3 -c 'import sys, urllib.request as r; r.urlretrieve(sys.argv[1], sys.argv[2])' \\
  {shlex.quote(software.url)} "$work"/{file}; do
  tries=$((tries + 1))
  if [ $tries -ge 60 ]; then exit 1; fi
  sleep 5
done
echo "{software.sha256}  $work/"{file} | sha256sum -c -
"""
    if kind == ".deb":
        return f'{fetch}DEBIAN_FRONTEND=noninteractive apt-get install -y "$work"/{file}\nrm -rf "$work"'
    source = f'"$work"/{file}'
    unpack = ""
    if kind == ".tar.gz":
        unpack = f'mkdir "$work/wheels"\ntar -xzf "$work"/{file} -C "$work/wheels" --strip-components=1\n'
        source = '--no-index --find-links "$work/wheels" persys'
    # An image may contain the environment with all dependencies.
    return f"""{fetch}{unpack}if ! [ -x /opt/persys/bin/pip ]; then
  python3 -c 'import ensurepip' 2>/dev/null || apt-get install -y python3-venv
  python3 -m venv /opt/persys
fi
/opt/persys/bin/pip install --quiet --no-compile {source}
rm -rf "$work\""""


def _block_script() -> str:
    """Repeating it has no effect."""
    rules = "".join(
        f"{family} {address}\n"
        for family, addresses in (
            ("iptables", METADATA_ADDRESSES),
            ("ip6tables", METADATA_ADDRESSES_V6),
        )
        for address in addresses
    )
    v4, v6 = ", ".join(METADATA_ADDRESSES), ", ".join(METADATA_ADDRESSES_V6)
    drops = f"""
    ip daddr {{ {v4} }} meta l4proto != {{ tcp, udp }} drop
    ip daddr {{ {v4} }} th dport != 53 drop
    ip6 daddr {{ {v6} }} meta l4proto != {{ tcp, udp }} drop
    ip6 daddr {{ {v6} }} th dport != 53 drop"""
    return f"""#!/bin/sh
# Drops packets of containers, stacks and VMs to the metadata service of the provider, except DNS.
set -eu
if command -v nft >/dev/null; then
  nft -f - <<'END'
table inet persys_metadata
delete table inet persys_metadata
table inet persys_metadata {{
  chain prerouting {{
    type filter hook prerouting priority -310; policy accept;{drops}
  }}
}}
table bridge persys_metadata
delete table bridge persys_metadata
table bridge persys_metadata {{
  chain prerouting {{
    type filter hook prerouting priority -310; policy accept;{drops}
  }}
}}
END
  exit 0
fi
while read -r command address; do
  [ "$command" = iptables ] || [ -e /proc/net/if_inet6 ] || continue
  "$command" -t raw -N PERSYS-METADATA 2>/dev/null || true
  "$command" -t raw -C PREROUTING -d "$address" -j PERSYS-METADATA 2>/dev/null ||
    "$command" -t raw -I PREROUTING -d "$address" -j PERSYS-METADATA
  "$command" -t raw -F PERSYS-METADATA
  for protocol in udp tcp; do
    "$command" -t raw -A PERSYS-METADATA -p $protocol --dport 53 -j RETURN
  done
  "$command" -t raw -A PERSYS-METADATA -j DROP
done <<'END'
{rules}END
"""


def _power_off_script(boot: Boot) -> str:
    idle = int(boot.idle_after.total_seconds())
    no_leader = int(NO_LEADER_AFTER.total_seconds())
    with_leader = None if boot.keeps_idle else idle + int(DESTROY_GRACE.total_seconds())
    return f"""#!/usr/bin/env python3
# Powers this machine off when the cluster does not use it. A timer runs it every minute.
import json, os, subprocess, time, urllib.error, urllib.request

NO_LEADER = {no_leader}
IDLE = {idle}  # without workloads and without a leader
IDLE_WITH_LEADER = {with_leader}  # None: never
STATE = os.environ.get("PERSYS_POWER_OFF_STATE", "/run/persys-power-off.json")
HEALTH = os.environ.get("PERSYS_POWER_OFF_HEALTH", "http://127.0.0.1:8089/health")


def health():
    try:
        try:
            answer = urllib.request.urlopen(HEALTH, timeout=10)
        except urllib.error.HTTPError as err:  # a degraded agent
            answer = err
        with answer:
            return json.load(answer)
    except (OSError, ValueError):
        return {{}}


now = time.clock_gettime(time.CLOCK_BOOTTIME)
try:
    with open(STATE) as file:
        state = json.load(file)
except (OSError, ValueError):
    state = {{"busy": now, "leader": now}}
report = health()
if report.get("workloads") != 0:  # or unknown
    state["busy"] = now
since = report.get("leader_contact_seconds")
if since is not None:
    state["leader"] = max(state["leader"], now - since)
with open(STATE + ".new", "w") as file:
    json.dump(state, file)
os.replace(STATE + ".new", STATE)
idle, alone = now - state["busy"], now - state["leader"]
reason = ""
if alone >= NO_LEADER:
    reason = "no leader"
elif idle >= IDLE and alone >= IDLE:
    reason = "no workloads and no leader"
elif IDLE_WITH_LEADER is not None and idle >= IDLE_WITH_LEADER:
    reason = "no workloads"
if reason:
    print(f"powering off: {{reason}}; idle {{idle:.0f}} s, without a leader {{alone:.0f}} s", flush=True)
    subprocess.run(["systemctl", "poweroff"], check=True)
"""


def _units() -> dict[str, str]:
    return {
        "persys-power-off.service": f"""[Unit]
Description=Power this machine off when the cluster does not use it

[Service]
Type=oneshot
ExecStart={POWER_OFF_SCRIPT}
""",
        "persys-power-off.timer": """[Unit]
Description=Check every minute whether the cluster uses this machine

[Timer]
OnBootSec=60
OnUnitActiveSec=60
AccuracySec=5

[Install]
WantedBy=timers.target
""",
        "persys-block-metadata.service": f"""[Unit]
Description=Block the metadata service of the provider for workloads
Before=docker.service libvirtd.service virtqemud.service persys-agent.service

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart={BLOCK_SCRIPT}

[Install]
WantedBy=multi-user.target
RequiredBy=persys-agent.service
""",
        "persys-agent.service.default": """[Unit]
Description=Persys agent
Wants=network-online.target
After=network-online.target docker.service libvirtd.service
StartLimitIntervalSec=0

[Service]
Environment=PATH=/opt/persys/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
ExecStart=/usr/bin/env persys-agent
Restart=always
RestartSec=2
StateDirectory=persys
KillMode=mixed
OOMScoreAdjust=-500
LimitNOFILE=65536

[Install]
WantedBy=multi-user.target
""",
    }
