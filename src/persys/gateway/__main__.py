"""persys-gateway: read the settings, start the process."""

from persys.infra.telemetry import plain_structlog  # isort: skip  # noqa: F401  # before structlog

import os
import sys
from functools import partial

from persys.errors import SettingsError
from persys.gateway.settings import GatewaySettings
from persys.infra.process import run
from persys.infra.settings import load
from persys.infra.telemetry.logs import configure_logs

_CONFIG = "PERSYS_GATEWAY_CONFIG"


def main() -> int:
    arguments = sys.argv[1:]
    if (file := os.environ.get(_CONFIG)) and "--config" not in arguments:
        arguments = ["--config", file, *arguments]
    try:
        loaded = load(GatewaySettings, arguments, os.environ, program="persys-gateway")
        if loaded.print_config:
            print(loaded.describe())
            return 0
        configure_logs(level=loaded.settings.log_level, form=loaded.settings.log_format)
    except SettingsError as err:
        print(f"error: {err}", file=sys.stderr)
        return 2
    from persys.gateway.app import run_gateway  # imported late: --print-config stays fast

    return run(partial(run_gateway, loaded.settings))


if __name__ == "__main__":
    sys.exit(main())
