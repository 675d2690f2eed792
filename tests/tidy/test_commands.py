"""Commands: each call of the scheduler has one, each has an example that works, and the documents say so."""

import shlex
from pathlib import Path

import pytest

from persys.cli.framework.command_table import GROUPS, SINGLES
from persys.cli.framework.examples import EXAMPLES, examples_of
from persys.cli.framework.manual import pages
from persys.cli.framework.parser import parse
from persys.cli.framework.tables.command import Command
from persys.wire.gen.control.v1 import control_pb2
from persys.wire.rest.routes import NOT_SERVED, ROUTES

COMMANDS: dict[str, Command] = {
    **{f"{group.name} {each.name}": each for group in GROUPS for each in group.commands},
    **{each.name: each for each in SINGLES},
}
# Commands in a module of another name, because they share most of its code or are not command modules.
ELSEWHERE = {
    "apply": "commands.workload",
    "console": "commands.exec",
    "port-forward": "commands.port_forward",
    "stats": "commands.top",
    "doctor": "doctor.run",
    "completion": "framework.completion",
}
# Which command makes a call of the scheduler's.
MAKES = {
    "ApplyWorkload": "apply",
    "ApplyWorkloads": "apply",
    "DeleteWorkload": "workload delete",
    "RetryWorkload": "workload retry",
    "RedeployWorkload": "workload redeploy",
    "ListWorkloads": "workload list",
    "GetWorkload": "workload get",
    "ExplainWorkload": "explain",
    "PlanWorkloads": "plan",
    "GetCapacity": "capacity",
    "SubmitAutomationSuggestion": "suggestion submit",
    "ListNodes": "node list",
    "GetNode": "node get",
    "CordonNode": "node cordon",
    "UncordonNode": "node uncordon",
    "DrainNode": "node drain",
    "ConfirmNodeDead": "node confirm-dead",
    "RemoveNode": "node remove",
    "TaintNode": "node taint",
    "GetClusterSummary": "cluster summary",
    "ListEvents": "events",
    "WatchEvents": "events",
    "ListDrifts": "drift list",
    "AdoptOrphan": "orphans adopt",
    "DeleteOrphan": "orphans delete",
    "GetMode": "recovery status",
    "SaveSnapshot": "snapshot save",
    "RestoreSnapshot": "snapshot restore",
    "RebuildFromAgents": "recovery rebuild-from-agents",
    "AcceptEmpty": "recovery accept-empty",
    "ListSuggestions": "suggestion list",
    "ApproveSuggestion": "suggestion approve",
    "RejectSuggestion": "suggestion reject",
    "GetOrphan": "orphans get",
    "GetDiagnostics": "doctor",
    "ListRecords": "record list",
    "GetRecord": "record get",
    "DeleteRecord": "record delete",
    "StreamLogs": "logs",
    "Exec": "exec",
    "PortForward": "port-forward",
    "CopyFiles": "cp",
    "ListImages": "image list",
    "AddImage": "image add",
    "RemoveImage": "image remove",
    "ListVolumes": "volume list",
    "DeleteVolume": "volume delete",
    "GetIdentity": "cluster whoami",
    "CreateToken": "token create",
    "ListTokens": "token list",
    "RevokeToken": "token revoke",
    "PutSecret": "secret put",
    "ListSecrets": "secret list",
    "DeleteSecret": "secret delete",
    "CreateNodePool": "nodepool create",
    "ListNodePools": "nodepool list",
    "GetNodePool": "nodepool get",
    "PlanNodePool": "nodepool plan",
    "PauseNodePool": "nodepool pause",
    "DeleteNodePool": "nodepool delete",
    "ApplySet": "apply",
    "ListSets": "set list",
    "GetSet": "set get",
    "DeleteSet": "set delete",
    "ScaleSet": "scale",
    "PauseRollout": "rollout pause",
    "ResumeRollout": "rollout resume",
    "PromoteRollout": "rollout promote",
    "UndoRollout": "rollout undo",
    "ApplyService": "apply",
    "ListServices": "service list",
    "GetService": "service get",
    "DeleteService": "service delete",
    "ApplyJob": "apply",
    "ListJobs": "job list",
    "GetJob": "job get",
    "DeleteJob": "job delete",
    "RunJob": "job run",
    "SuspendJob": "job suspend",
    "CancelRun": "job cancel",
}
# What several groups do has one name in all of them.
VERBS = {"ls": "list", "show-all": "list", "rm": "remove", "describe": "get", "new": "create"}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_in_the_module_of_its_name(name: str) -> None:
    module = ELSEWHERE.get(name, f"commands.{name.split()[0]}")

    assert COMMANDS[name].run.partition(":")[0] == module


def test_every_call_that_is_not_an_agents_has_a_command_and_a_route() -> None:
    calls = {
        method.name for method in control_pb2.DESCRIPTOR.services_by_name["AgentControl"].methods
    }

    assert calls - NOT_SERVED == MAKES.keys()
    assert {route.rpc for route in ROUTES} == MAKES.keys()
    assert set(MAKES.values()) <= COMMANDS.keys()


def test_no_command_uses_a_synonym_of_a_verb() -> None:
    assert not [name for name in COMMANDS if name.split()[-1] in VERBS]


def test_every_command_has_examples_and_nothing_else_has() -> None:
    assert EXAMPLES.keys() == COMMANDS.keys()
    assert all(EXAMPLES.values())


@pytest.mark.parametrize("name", COMMANDS)
def test_each_example_is_of_its_command_and_parses(name: str) -> None:
    for line in examples_of(name):
        words = shlex.split(line)[1:]
        own = words[: _end(words)]
        assert own[: len(name.split())] == name.split()
        assert parse(own).run == COMMANDS[name].run


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_each_command_shows_its_examples(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parse([*name.split(), "--help"])

    shown = capsys.readouterr().out
    assert all(f"\n  {line}\n" in shown for line in examples_of(name))


def test_the_command_documents_match_the_table(root: Path) -> None:
    """`scripts/docs-commands` writes them."""
    written = {path.relative_to(root).as_posix() for path in (root / "man").iterdir()}
    stale = [name for name, text in pages().items() if (root / name).read_text("utf-8") != text]

    assert stale == []
    assert written == pages().keys() - {"docs/reference/commands.md"}


def _end(words: list[str]) -> int:
    """Where a shell would take over."""
    return next((at for at, word in enumerate(words) if word in ("<", ">")), len(words))
