"""Entry point of persys-agent, the process that runs on each node."""

from persys.infra.telemetry import plain_structlog  # isort: skip  # noqa: F401  # before structlog

import os
import sys
from collections.abc import Sequence
from functools import partial

from persys.agent.settings import DEFAULT_CONFIG_FILE, AgentSettings
from persys.errors import InvalidError, PersysError, SettingsError
from persys.infra.process import run
from persys.infra.settings import load
from persys.infra.telemetry import tracing
from persys.infra.telemetry.logs import configure_logs


def main() -> int:
    if sys.argv[1:2] == ["join"]:
        return _join(sys.argv[2:])
    try:
        loaded = load(
            AgentSettings,
            sys.argv[1:],
            os.environ,
            program="persys-agent",
            usual_file=DEFAULT_CONFIG_FILE,
            commands={"join": "obtain the certificate of this node with a join token"},
        )
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
    from persys.agent.app import run_agent  # slow import, deferred until the settings are valid

    try:
        return run(partial(run_agent, loaded.settings))
    finally:
        tracing.stop()


def _join(argv: Sequence[str]) -> int:
    from persys.agent.join import join_cluster  # slow import, needed only for join

    try:
        for line in join_cluster(argv, os.environ, sys.stdin.readline() if "-" in argv else ""):
            print(line)
    except (InvalidError, SettingsError) as err:
        print(f"error: {err}", file=sys.stderr)
        return 2
    except (PersysError, OSError) as err:
        print(f"error: {err}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
