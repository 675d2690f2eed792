"""`persysctl suggestion`: submit, list, approve and reject suggestions of automation policies."""

import sys
from argparse import Namespace
from datetime import datetime
from pathlib import Path

from persys.cli.connect.clients import scheduler_client
from persys.cli.framework.ages import BLANK, age
from persys.cli.framework.exit_codes import ExitCode, UsageError
from persys.cli.framework.live import print_or_watch
from persys.cli.framework.output import Column, code_text, key_value_lines, render_list, render_one
from persys.wire.gen.control.v1.control_pb2 import (
    AutomationActionType,
    AutomationSuggestion,
    SubmitAutomationSuggestionResponse,
    SuggestionView,
)

_COLUMNS: tuple[Column[SuggestionView], ...] = (
    Column("ID", lambda view, now: view.suggestion.suggestion_id),
    Column("DECISION", lambda view, now: code_text(view.decision)),
    Column("WORKLOAD", lambda view, now: view.suggestion.target_workload or BLANK),
    Column("ACTION", lambda view, now: _action(view)),
    Column("DECIDED", lambda view, now: age(view, "decided_at", now=now)),
    Column("SUBMITTED BY", lambda view, now: view.submitted_by or BLANK, wide=True),
    Column("DECIDED BY", lambda view, now: view.decided_by or BLANK, wide=True),
    Column("POLICY", lambda view, now: view.suggestion.policy_name or BLANK, wide=True),
    Column("REASON", lambda view, now: view.reason or BLANK),
)


def submit(options: Namespace) -> ExitCode:
    """Exit code 1 for a suggestion that policy rejects."""
    suggestion = _read(options.file)
    with scheduler_client(options) as client:
        found = client.suggest(suggestion)
    print(render_one(found, options, describe=_describe, name=lambda _: suggestion.suggestion_id))
    return ExitCode.OK if found.accepted else ExitCode.FAILED


def list_suggestions(options: Namespace) -> ExitCode:
    with scheduler_client(options) as client:
        return print_or_watch(
            lambda: client.list_suggestions(decision=options.decision, limit=options.limit),
            lambda found: render_list(
                found,
                options,
                columns=_COLUMNS,
                name=lambda view: view.suggestion.suggestion_id,
                empty="no suggestions",
            ),
            watch=options.watch,
        )


def approve(options: Namespace) -> ExitCode:
    with scheduler_client(options) as client:
        view = client.approve_suggestion(options.id)
    print(f"suggestion {options.id} approved: {view.applied_action}")
    return ExitCode.OK


def reject(options: Namespace) -> ExitCode:
    with scheduler_client(options) as client:
        client.reject_suggestion(options.id)
    print(f"suggestion {options.id} rejected")
    return ExitCode.OK


def _read(name: str) -> AutomationSuggestion:
    from google.protobuf.json_format import ParseDict, ParseError

    from persys.core.bounded_yaml import YamlError, load_texts

    shown = "standard input" if name == "-" else name
    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
        # Strings only: dates and numbers of YAML differ from those of protobuf JSON.
        content = load_texts(text)
        if not isinstance(content, dict):
            raise UsageError(f"{shown}: expected a mapping of keys to values")
        return ParseDict(content, AutomationSuggestion())
    except OSError as err:
        raise UsageError(f"cannot read {shown}: {err.strerror}") from err
    except (YamlError, UnicodeDecodeError) as err:
        raise UsageError(f"cannot read {shown}: {err}") from err
    except (ParseError, TypeError, AttributeError, ValueError) as err:
        raise UsageError(f"invalid suggestion in {shown}: {err}") from err


def _describe(found: SubmitAutomationSuggestionResponse, now: datetime, wide: bool) -> str:
    return key_value_lines(
        (("Decision", found.decision), ("Reason", found.reason), ("Action", found.applied_action))
    )


def _action(view: SuggestionView) -> str:
    kind = AutomationActionType.Name(view.suggestion.action_type)
    word = kind.removeprefix("AUTOMATION_ACTION_").lower()
    desired = view.suggestion.desired_state
    return f"{word}={desired}" if desired else word
