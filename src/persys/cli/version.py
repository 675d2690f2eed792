"""`persysctl version`."""

from argparse import Namespace

from persys import __version__
from persys.cli.exits import Exit


def show_version(options: Namespace) -> Exit:
    print(f"persysctl {__version__}")
    return Exit.OK
