"""persys-scheduler: read the settings, start the process."""

from persys.infra.telemetry import plain_structlog  # isort: skip  # noqa: F401  # before structlog

import os
import sys

import structlog

from persys.errors import SettingsError
from persys.infra.process import run
from persys.infra.settings import load
from persys.infra.telemetry import tracing
from persys.infra.telemetry.logs import configure_logs
from persys.scheduler.discovery.endpoints import check_discovery_settings
from persys.scheduler.settings import SchedulerSettings, with_store

log = structlog.get_logger()


def main() -> int:
    try:
        loaded = with_store(
            load(SchedulerSettings, sys.argv[1:], os.environ, program="persys-scheduler")
        )
        if loaded.print_config:
            print(loaded.describe())
            return 0
        settings = loaded.settings
        configure_logs(level=settings.log_level, form=settings.log_format)
        log.info("store.selected", store=settings.store, reason=loaded.sources["store"])
        check_discovery_settings(settings)
        tracing.start(
            "persys-scheduler",
            endpoint=settings.otlp_endpoint,
            insecure=settings.otlp_insecure,
            timeout_ms=settings.otlp_timeout_ms,
        )
    except SettingsError as err:
        print(f"error: {err}", file=sys.stderr)
        return 2
    from persys.scheduler.server import serve  # imported after the settings are checked: it is slow

    try:
        return run(lambda stop: serve(settings, stop))
    finally:
        tracing.stop()


if __name__ == "__main__":
    sys.exit(main())
