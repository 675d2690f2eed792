"""persys-agent: what runs on each node."""

import os
import sys
from functools import partial

from persys.agent.app import run_agent
from persys.agent.settings import AgentSettings
from persys.errors import SettingsError
from persys.infra import tracing
from persys.infra.logs import configure_logs
from persys.infra.process import run
from persys.infra.settings import load


def main() -> int:
    try:
        loaded = load(AgentSettings, sys.argv[1:], os.environ, program="persys-agent")
        if loaded.print_config:
            print(loaded.describe())
            return 0
        loaded.settings.check()
        configure_logs(level=loaded.settings.log_level, form=loaded.settings.log_format)
        tracing.start(
            "persys-agent",
            endpoint=loaded.settings.otlp_endpoint,
            insecure=loaded.settings.otlp_insecure,
            timeout_ms=loaded.settings.otlp_timeout_ms,
        )
    except SettingsError as err:
        print(f"error: {err}", file=sys.stderr)
        return 2
    try:
        return run(partial(run_agent, loaded.settings))
    finally:
        tracing.stop()


if __name__ == "__main__":
    sys.exit(main())
