"""`persysctl version`."""

from argparse import Namespace

from persys import __version__
from persys.cli.framework.exit_codes import ExitCode


def show(options: Namespace) -> ExitCode:
    print(f"persysctl {__version__}")
    return ExitCode.OK
