"""Entry point of persys-federation, the process that joins another cluster as a node."""

from persys.infra.telemetry import plain_structlog  # isort: skip  # noqa: F401  # before structlog

import os
import sys
from functools import partial

from persys.errors import SettingsError
from persys.federation.settings import DEFAULT_CONFIG_FILE, FederationSettings
from persys.infra.process import run
from persys.infra.settings import load
from persys.infra.telemetry import tracing
from persys.infra.telemetry.logs import configure_logs


def main() -> int:
    try:
        loaded = load(
            FederationSettings,
            sys.argv[1:],
            os.environ,
            program="persys-federation",
            usual_file=DEFAULT_CONFIG_FILE,
        )
        if loaded.print_config:
            print(loaded.describe())
            return 0
        loaded.settings.check()
        configure_logs(level=loaded.settings.log_level, form=loaded.settings.log_format)
        tracing.start(
            "persys-federation",
            endpoint=loaded.settings.otlp_endpoint,
            insecure=loaded.settings.otlp_insecure,
            timeout_ms=loaded.settings.otlp_timeout_ms,
        )
    except SettingsError as err:
        print(f"error: {err}", file=sys.stderr)
        return 2
    from persys.federation.app import run_federation  # slow import

    try:
        return run(partial(run_federation, loaded.settings))
    finally:
        tracing.stop()


if __name__ == "__main__":
    sys.exit(main())
