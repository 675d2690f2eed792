"""The options of `persys cluster create`. Imported at every start of `persys`, so it imports nothing slow."""

from argparse import ArgumentParser

SCHEDULER_COUNTS = (1, 3, 5)


def add_arguments(command: ArgumentParser) -> None:
    one_of = command.add_mutually_exclusive_group(required=True)
    one_of.add_argument(
        "--hosts",
        metavar="HOSTS",
        help="[USER@]HOST[:PORT], separated by commas; the first also runs the CA",
    )
    one_of.add_argument(
        "--hosts-file",
        metavar="FILE",
        help="one host per line, with optional name=NAME and address=ADDRESS",
    )
    command.add_argument(
        "--schedulers",
        type=int,
        choices=SCHEDULER_COUNTS,
        help="1 with the embedded store, 3 or 5 with etcd (default: 3 if there are 3 hosts or more, else 1)",
    )
    command.add_argument(
        "--package",
        action="append",
        default=[],
        metavar="FILE",
        help="wheel, or Debian packages (repeatable), to install (default: a wheel of this installation)",
    )
    command.add_argument(
        "--wheelhouse",
        default="",
        metavar="DIR",
        help="directory with the wheels of all dependencies, for hosts without a package index",
    )
    command.add_argument(
        "--etcd",
        default="",
        metavar="PATH",
        help="etcd program to send (default: the package etcd-server)",
    )
    command.add_argument(
        "--gateway-host",
        action="append",
        default=[],
        metavar="NAME",
        help="further DNS name of the gateway, for its certificate; repeatable",
    )
    command.add_argument(
        "--context",
        default="cluster",
        metavar="NAME",
        help="context of persysctl (default: %(default)s)",
    )
    _add_ssh_arguments(command)
    command.add_argument(
        "--dry-run", action="store_true", help="check the hosts and print the steps; change nothing"
    )


def _add_ssh_arguments(command: ArgumentParser) -> None:
    command.add_argument("--identity", default="", metavar="FILE", help="private key for ssh")
    command.add_argument(
        "--ssh-option",
        action="append",
        default=[],
        metavar="OPTION",
        help="option for ssh -o, for example StrictHostKeyChecking=accept-new; repeatable",
    )
