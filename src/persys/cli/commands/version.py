"""`persysctl version`."""

from argparse import Namespace

from persys.cli.framework.exit_codes import ExitCode


def show(options: Namespace) -> ExitCode:
    from persys import __version__  # its import is slow

    print(f"persysctl {__version__}")
    return ExitCode.OK
