"""What an automation proposes, from a file: YAML or JSON of the contract's AutomationSuggestion."""

import sys
from argparse import Namespace
from datetime import datetime
from pathlib import Path

from persys.cli.exits import Exit, UsageError
from persys.cli.output import described, render_one
from persys.cli.peers import scheduler
from persys.wire.gen.control.v1.control_pb2 import (
    AutomationSuggestion,
    SubmitAutomationSuggestionResponse,
)


def submit(options: Namespace) -> Exit:
    """Exit code 1 for a suggestion that policy rejects."""
    suggestion = _read(options.file)
    with scheduler(options) as client:
        found = client.suggest(suggestion)
    print(render_one(found, options, describe=_describe, name=lambda _: suggestion.suggestion_id))
    return Exit.OK if found.accepted else Exit.FAILED


def _read(name: str) -> AutomationSuggestion:
    from google.protobuf.json_format import ParseDict, ParseError

    from persys.core.bounded_yaml import YamlError, load_texts

    shown = "standard input" if name == "-" else name
    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
        # Texts only: YAML's own dates and numbers are not protobuf's.
        content = load_texts(text)
        if not isinstance(content, dict):
            raise UsageError(f"{shown}: expected a mapping of keys to values")
        return ParseDict(content, AutomationSuggestion())
    except OSError as err:
        raise UsageError(f"cannot read {shown}: {err.strerror}") from err
    except (YamlError, UnicodeDecodeError) as err:
        raise UsageError(f"cannot read {shown}: {err}") from err
    except (ParseError, TypeError, AttributeError, ValueError) as err:
        raise UsageError(f"{shown} is no suggestion: {err}") from err


def _describe(found: SubmitAutomationSuggestionResponse, now: datetime, wide: bool) -> str:
    return described(
        (("Decision", found.decision), ("Reason", found.reason), ("Done", found.applied_action))
    )
