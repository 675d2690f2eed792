#!/usr/bin/env python3
"""runc on a host without all capabilities: Docker requests all of them for privileged containers.

A separate program that Docker starts as the container runtime.
"""

import json
import os
import sys
from pathlib import Path

# In the order of their bits.
NAMES = (
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "SETPCAP",
    "LINUX_IMMUTABLE",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_ADMIN",
    "NET_RAW",
    "IPC_LOCK",
    "IPC_OWNER",
    "SYS_MODULE",
    "SYS_RAWIO",
    "SYS_CHROOT",
    "SYS_PTRACE",
    "SYS_PACCT",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_NICE",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "MKNOD",
    "LEASE",
    "AUDIT_WRITE",
    "AUDIT_CONTROL",
    "SETFCAP",
    "MAC_OVERRIDE",
    "MAC_ADMIN",
    "SYSLOG",
    "WAKE_ALARM",
    "BLOCK_SUSPEND",
    "AUDIT_READ",
    "PERFMON",
    "BPF",
    "CHECKPOINT_RESTORE",
)


def ours() -> set[str]:
    status = Path("/proc/self/status").read_text().splitlines()
    bits = next(int(line.split()[1], 16) for line in status if line.startswith("CapBnd:"))
    return {f"CAP_{name}" for bit, name in enumerate(NAMES) if bits >> bit & 1}


def main() -> None:
    if "create" in sys.argv:
        file = Path(sys.argv[sys.argv.index("--bundle") + 1]) / "config.json"
        config = json.loads(file.read_text())
        granted = config["process"].get("capabilities", {})
        known = ours()
        for kind, names in granted.items():
            granted[kind] = [name for name in names if name in known]
        file.write_text(json.dumps(config))
    os.execvp("runc", ["runc", *sys.argv[1:]])


if __name__ == "__main__":
    main()
