"""`persysctl version`."""

from argparse import Namespace

from persys import __version__
from persys.cli.framework.exit_codes import Exit


def show(options: Namespace) -> Exit:
    print(f"persysctl {__version__}")
    return Exit.OK
