"""Structured logs on standard error: one line per change, as JSON or for a terminal."""

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
        raise SettingsError(f"log level {level!r}: expected one of {', '.join(_LEVELS)}")
    if form not in ("", "json", "console"):
        raise SettingsError(f"log format {form!r}: expected json or console")
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
