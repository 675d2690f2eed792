"""Structured logs on standard error: one line per change, as JSON or for a terminal.

Log records of libraries and Python warnings are written in the same format.
"""

import logging
import sys

import structlog

from persys.errors import SettingsError

_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


def configure_logs(*, level: str, form: str) -> None:
    """`form` is json, console, or empty for console on a terminal and json elsewhere."""
    if level.lower() not in _LEVELS:
        raise SettingsError(f"invalid log level {level!r}: expected one of {', '.join(_LEVELS)}")
    if form not in ("", "json", "console"):
        raise SettingsError(f"invalid log format {form!r}: expected json or console")
    console = form == "console" or (not form and sys.stderr.isatty())
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.dev.ConsoleRenderer() if console else structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level.lower()]),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
    root = logging.getLogger()
    root.handlers = [_Forward()]
    # Libraries log debugging details below this level.
    root.setLevel(max(_LEVELS[level.lower()], logging.WARNING))
    logging.captureWarnings(True)


class _Forward(logging.Handler):
    """Writes log records of libraries as structured lines."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = record.getMessage()
        except (TypeError, ValueError):  # the arguments do not match the format string
            text = str(record.msg)
        level = record.levelno if record.levelno in _LEVELS.values() else logging.ERROR
        structlog.get_logger().log(
            level, "library.logged", library=record.name, text=text, exc_info=record.exc_info
        )
