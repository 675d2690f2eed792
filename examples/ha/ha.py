"""Three schedulers on an etcd with three members, on this host: up, down, kill-leader.

Requires etcd on the PATH, and the commands of this project next to the Python that runs this script, in the
virtual environment of the project, or on the PATH. Data, logs and process ids are stored in one directory.
"""

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
LEASE_SECONDS = 3
WAIT_SECONDS = 40


class Ports:
    """Twelve consecutive ports: three each for etcd clients, etcd peers, gRPC and HTTP."""

    def __init__(self, first: int) -> None:
        numbers = range(first, first + 12)
        self.etcd, self.peer = numbers[0:3], numbers[3:6]
        self.grpc, self.http = numbers[6:9], numbers[9:12]

    @property
    def schedulers(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.grpc)


def up(directory: Path, ports: Ports) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "ports").write_text(str(ports.etcd[0]))
    for number in range(3):
        start_etcd(directory, ports, number)
    wait_until(lambda: all(accepts(port) for port in ports.etcd), "etcd did not start", directory)
    for number in range(3):
        start_scheduler(directory, ports, number)
    wait_until(lambda: is_complete(ports), "the schedulers did not start", directory)
    print(f"schedulers:   {ports.schedulers}")
    print(f"etcd:         {', '.join(f'127.0.0.1:{port}' for port in ports.etcd)}")
    print(f"health:       http://127.0.0.1:{ports.http[0]}/health, and the next two ports")
    print(f"state, logs:  {directory}")
    print(f"leader:       {leader(ports)}")
    print(
        f"\nexport PERSYS_GRPC_ENDPOINT={ports.schedulers} PERSYS_INSECURE=true    # for persysctl"
    )
    print(f"export PERSYS_SCHEDULER_ADDR={ports.schedulers}    # for agents, with -insecure")


def down(directory: Path) -> None:
    """Stops all processes, also those that were killed or did not start. Logs and data are kept."""
    for pid_file in sorted(directory.glob("*.pid"), reverse=True):  # schedulers first
        stop(pid_file)
    print(f"stopped; data and logs are kept in {directory}")


def kill_leader(directory: Path, ports: Ports) -> None:
    """Kills the leader during a watch, which continues and misses no event."""
    persysctl = [command("persysctl"), "--insecure", "--scheduler", ports.schedulers]
    workload = HERE.parents[1] / "src" / "persys" / "cli" / "local" / "hello.yaml"
    with (directory / "watch.log").open("wb") as log:
        watch = subprocess.Popen(
            [*persysctl, "-o", "name", "events", "--watch", "--after", "0"], stdout=log
        )
        try:
            apply(persysctl, workload, "before")
            number = [role(port) for port in ports.http].index("leader")
            name = f"scheduler-{number}"
            pid = int((directory / f"{name}.pid").read_text())
            os.kill(pid, signal.SIGKILL)
            killed_at = time.monotonic()
            print(f"killed the leader, {name} (process {pid})")
            wait_until(
                lambda: apply(persysctl, workload, "after"), "no new leader was elected", directory
            )
            print(f"the new leader accepted a change after {time.monotonic() - killed_at:.1f} s")
            start_scheduler(directory, ports, number)
            wait_until(lambda: is_complete(ports), f"{name} did not restart", directory)
            listed = run(*persysctl, "-o", "name", "events").split()
            seen: list[str] = []

            def all_seen() -> bool:
                """Whether the watch has all listed events; there may be newer ones."""
                seen[:] = (directory / "watch.log").read_text().split()
                return seen[: len(listed)] == listed and len(set(seen)) == len(seen)

            wait_until(all_seen, "the watch did not show every event exactly once", directory)
            print(f"the watch showed all {len(seen)} events, each once: {seen[0]} to {seen[-1]}")
        finally:
            watch.terminate()
            watch.wait(10)


def apply(persysctl: list[str], workload: Path, name: str) -> bool:
    text = workload.read_text().splitlines()
    spec = "\n".join(f"id: ha-{name}" if line.startswith("id:") else line for line in text)
    arguments = [*persysctl, "--timeout", "5s", "workload", "apply", "-f", "-"]
    result = subprocess.run(
        arguments, input=spec, text=True, capture_output=True, timeout=60, check=False
    )
    return result.returncode == 0


def start_etcd(directory: Path, ports: Ports, number: int) -> None:
    name = f"etcd-{number}"
    client = f"http://127.0.0.1:{ports.etcd[number]}"
    peers = [f"http://127.0.0.1:{port}" for port in ports.peer]
    start(
        directory,
        name,
        [
            command("etcd"),
            f"--name={name}",
            f"--data-dir={directory / name}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peers[number]}",
            f"--initial-advertise-peer-urls={peers[number]}",
            "--initial-cluster=" + ",".join(f"etcd-{n}={peer}" for n, peer in enumerate(peers)),
        ],
        {},
    )


def start_scheduler(directory: Path, ports: Ports, number: int) -> None:
    settings = {
        "PERSYS_GRPC_ADDR": "127.0.0.1",
        "GRPC_PORT": str(ports.grpc[number]),
        "METRICS_PORT": str(ports.http[number]),
        "PERSYS_STORE": "etcd",
        "ETCD_ENDPOINTS": ",".join(f"127.0.0.1:{port}" for port in ports.etcd),
        "SCHEDULER_LEADER_LEASE": f"{LEASE_SECONDS}s",
    }
    start(directory, f"scheduler-{number}", [command("persys-scheduler"), "-insecure"], settings)


def start(directory: Path, name: str, arguments: list[str], settings: dict[str, str]) -> None:
    pid_file = directory / f"{name}.pid"
    if pid_file.exists() and is_running(int(pid_file.read_text())):
        sys.exit(f"{name} is already running; stop it with {HERE / 'down'} {directory}")
    with (directory / f"{name}.log").open("ab") as log:
        started = subprocess.Popen(
            arguments,
            env={**os.environ, **settings},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # it continues after this command and its terminal
        )
    pid_file.write_text(str(started.pid))


def stop(pid_file: Path) -> None:
    pid = int(pid_file.read_text())
    for number, seconds in ((signal.SIGTERM, 10), (signal.SIGKILL, 5)):
        if is_running(pid):
            os.kill(pid, number)
            deadline = time.monotonic() + seconds
            while is_running(pid) and time.monotonic() < deadline:
                time.sleep(0.05)
    pid_file.unlink()


def is_running(pid: int) -> bool:
    """Whether the process is one of ours: the pid may have been reused."""
    try:
        cmdline = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return b"etcd" in cmdline or b"persys-scheduler" in cmdline


def is_complete(ports: Ports) -> bool:
    return sorted(role(port) for port in ports.http) == ["leader", "standby", "standby"]


def role(port: int) -> str:
    return str(health(port).get("role", ""))


def leader(ports: Ports) -> str:
    return str(health(ports.http[0])["leaderEndpoint"])


def health(port: int) -> dict[str, object]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2) as response:
            found: dict[str, object] = json.loads(response.read())
    except OSError:
        return {}
    return found


def accepts(port: int) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0


def wait_until(condition: Callable[[], bool], error: str, directory: Path) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            sys.exit(f"{error} within {WAIT_SECONDS} s; the logs are in {directory}")
        time.sleep(0.1)


def run(*arguments: str) -> str:
    return subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=True).stdout


def command(name: str) -> str:
    for folder in (Path(sys.executable).parent, HERE.parent.parent / ".venv" / "bin"):
        if (folder / name).exists():
            return str(folder / name)
    found = shutil.which(name)
    if found is None:
        sys.exit(f"{name} is not installed")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=("up", "down", "kill-leader"))
    parser.add_argument(
        "directory", nargs="?", type=Path, default=Path(tempfile.gettempdir()) / "persys-ha"
    )
    parser.add_argument("--ports", type=int, default=23790, help="first of twelve ports (up)")
    options = parser.parse_args()
    directory = options.directory.resolve()
    if options.action == "up":
        up(directory, Ports(options.ports))
        return
    if not (directory / "ports").exists():
        sys.exit(f"no schedulers were started in {directory}")
    if options.action == "down":
        down(directory)
    else:
        kill_leader(directory, Ports(int((directory / "ports").read_text())))


if __name__ == "__main__":
    main()
