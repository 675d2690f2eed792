"""persys-ca: the certificate authority that issues the certificates of a cluster."""

from persys.infra.telemetry import plain_structlog  # isort: skip  # noqa: F401  # before structlog

import os
import sys
from functools import partial

from persys.ca.app import run_ca
from persys.ca.cli import COMMANDS, run_command
from persys.ca.settings import CaSettings
from persys.errors import PersysError, SettingsError
from persys.infra.process import run
from persys.infra.settings import load
from persys.infra.telemetry.logs import configure_logs


def main() -> int:
    try:
        if sys.argv[1:2] and sys.argv[1] in COMMANDS:
            configure_logs(level="warn", form="")
            print(run_command(sys.argv[1:], os.environ))
            return 0
        loaded = load(CaSettings, sys.argv[1:], os.environ, program="persys-ca", commands=COMMANDS)
        if loaded.print_config:
            print(loaded.describe())
            return 0
        configure_logs(level=loaded.settings.log_level, form=loaded.settings.log_format)
    except PersysError as err:
        print(f"error: {err}", file=sys.stderr)
        return 2 if isinstance(err, SettingsError) else 1
    return run(partial(run_ca, loaded.settings))


if __name__ == "__main__":
    sys.exit(main())
