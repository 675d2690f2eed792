"""Entry point of `persys`: one machine (up, down, status, clean-demo), a cluster over ssh, sim and bench."""

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path

from persys.cli.connect.settings import STATE_DIR
from persys.cli.framework.exit_codes import ExitCode, report_error
from persys.cli.hosts.options import add_arguments
from persys.cli.local import simulate
from persys.errors import PersysError
from persys.infra.command_line import StrictParser

_PORTS = {
    "ca-port": (8888, "port of the CA"),
    "scheduler-port": (8085, "port of the scheduler"),
    "scheduler-metrics-port": (8084, "port of the scheduler's /health and /metrics"),
    "agent-port": (50051, "port of the agent"),
    "agent-metrics-port": (8089, "port of the agent's /health and /metrics"),
    "gateway-port": (8551, "port of the gateway, which serves REST and the dashboard"),
    "gateway-public-port": (8585, "port of the gateway for webhooks"),
}
_COMMANDS = (
    (
        "up",
        "start a CA, a scheduler, an agent, a gateway and a demo workload, and Docker if it is not running",
        ("state-dir", *_PORTS, "demo-port"),
    ),
    (
        "down",
        "stop what `persys up` started, except Docker and the workloads, which keep running",
        ("state-dir",),
    ),
    (
        "status",
        "show the processes of `persys up` and how often each was restarted",
        ("state-dir",),
    ),
    (
        "clean-demo",
        "remove the workload that `persys up` deployed",
        ("state-dir", "scheduler-port"),
    ),
)


def main() -> int:
    options = new_parser().parse_args()
    try:
        return _command(options.command)(options)
    except PersysError as err:
        return report_error(err)
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        # The reader has closed the pipe. Without this Python reports the error again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.FAILED


def _command(name: str) -> Callable[[argparse.Namespace], int]:
    if name == "sim":
        return simulate.simulate
    # Slow imports, after the command line is parsed.
    if name == "bench":
        from persys.cli.benchmark.bench import bench

        return bench
    if name == "cluster":
        from persys.cli.hosts import create

        return create.create
    from persys.cli.local import up

    commands = {
        "up": up.up,
        "down": up.down,
        "status": up.status,
        "clean-demo": up.clean_demo,
    }
    return commands[name]


def new_parser() -> argparse.ArgumentParser:
    parser = StrictParser(prog="persys", description="Set up Persys on this machine or on hosts.")
    parser.add_version()
    parser.set_defaults(
        state_dir=STATE_DIR,
        **{port.replace("-", "_"): default for port, (default, _) in _PORTS.items()},
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, text, options in _COMMANDS:
        command = commands.add_parser(name, help=text, description=text)
        for option in options:
            _add(command, option)
    text = "test the scheduler and its agents under seeded faults, in virtual time"
    simulate.add_arguments(commands.add_parser("sim", help=text, description=text))
    _add_bench(commands)
    _add_cluster(commands)
    return parser


def _add_bench(commands: "argparse._SubParsersAction[StrictParser]") -> None:
    text = "measure this machine: placement, applies and containers, each as a ratio to its floor"
    command = commands.add_parser("bench", help=text, description=text)
    command.add_argument(
        "--output",
        type=Path,
        default=Path("persys-bench.html"),
        metavar="FILE",
        help="the page with the report and its plots (default: %(default)s)",
    )


def _add_cluster(commands: "argparse._SubParsersAction[StrictParser]") -> None:
    text = "set up a cluster on several hosts"
    cluster = commands.add_parser("cluster", help=text, description=text)
    verbs = cluster.add_subparsers(dest="verb", metavar="COMMAND", required=True)
    text = (
        "set up a cluster on hosts with systemd, over ssh; repeat the command to continue after an "
        "error, or to install another version"
    )
    add_arguments(verbs.add_parser("create", help=text, description=text))


def _add(command: argparse.ArgumentParser, option: str) -> None:
    if option == "state-dir":
        command.add_argument(
            "--state-dir",
            type=lambda word: Path(word).resolve(),
            default=STATE_DIR,
            metavar="DIR",
            help="directory of stores, logs and pid files (default: %(default)s)",
        )
        return
    default, text = _PORTS.get(option, (None, "port of the demo workload"))
    command.add_argument(
        f"--{option}",
        type=_port,
        default=default,
        metavar="PORT",
        help=f"{text} (default: {default or '18080, from its spec'})",
    )


def _port(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 65535:
        raise argparse.ArgumentTypeError(f"invalid port {text!r}: expected 1 to 65535")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
