"""The argparse parser of all programs, in which no option silently replaces another.

An option with a value either collects the values of all its uses (`action="append"`) or is refused when it is
given twice. Options cannot be abbreviated.
"""

import argparse
import sys
from typing import Any

_GIVEN = "options_given"


class Once(argparse.Action):
    """Stores a value and refuses a second one."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        if option_string is not None:
            given: frozenset[str] = getattr(namespace, _GIVEN, frozenset())
            if self.dest in given:
                parser.error(f"argument {'/'.join(self.option_strings)}: given more than once")
            setattr(namespace, _GIVEN, given | {self.dest})
        setattr(namespace, self.dest, values)


class ShowVersion(argparse.Action):
    """Prints the version and exits. Unlike the action of argparse it reads the version when it is used."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        from persys import __version__  # slow

        sys.stdout.write(f"{parser.prog} {__version__}\n")
        parser.exit()


class StrictParser(argparse.ArgumentParser):
    def __init__(self, **options: Any) -> None:
        super().__init__(**{"allow_abbrev": False, **options})
        self.register("action", None, Once)
        self.register("action", "store", Once)

    def add_version(self) -> None:
        self.add_argument(
            "--version",
            action=ShowVersion,
            nargs=0,
            help="show the version of the program and exit",
        )
