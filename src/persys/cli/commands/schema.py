"""`persysctl schema`: the JSON schema of spec files."""

from argparse import Namespace

from persys.cli.framework.exit_codes import ExitCode
from persys.wire.schema import json_schema


def show(options: Namespace) -> ExitCode:
    print(json_schema.text(), end="")
    return ExitCode.OK
