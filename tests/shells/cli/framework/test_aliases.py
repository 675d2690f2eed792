"""Aliases: words of docker, kubectl, nomad and virsh, and suggestions for unknown words."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import pytest

from persys.cli.framework.aliases import ALIASES, HINTS, TYPES, rewrite, spellings
from persys.cli.framework.command_table import GROUPS, SINGLES
from persys.cli.framework.examples import examples_of
from persys.cli.framework.parser import parse

if TYPE_CHECKING:
    from shells.cli.conftest import Cluster, Run

COMMANDS = {
    *(f"{group.name} {each.name}" for group in GROUPS for each in group.commands),
    *(each.name for each in SINGLES),
}


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("ps", "workload list"),
        ("ps -a", "workload list"),
        ("ps -aq -w", "workload list -o name -w"),
        ("ps -q", "workload list -o name"),
        ("ls --node n1", "workload list --node n1"),
        ("list", "workload list"),
        ("get", "workload list"),
        ("get web -o yaml", "workload get web -o yaml"),
        ("get -o yaml web", "workload get -o yaml web"),
        ("get pods -A", "workload list"),
        ("get all", "workload list"),
        ("get nodes", "node list"),
        ("get -w nodes", "node list -w"),
        ("get -o wide no", "node list -o wide"),
        ("get node n1", "node get n1"),
        ("get node/n1", "node get n1"),
        ("get workload/web", "workload get web"),
        ("get workload nodes", "workload get nodes"),
        ("get secrets", "secret list"),
        ("get events", "events"),
        ("get volumes", "volume list"),
        ("get volume/db/data", "volume get db/data"),
        ("get images", "image list"),
        ("get tokens", "token list"),
        ("get nodepools", "nodepool list"),
        ("get contexts", "context list"),
        ("list nodes", "node list"),
        ("describe web", "workload get web"),
        ("describe node n1", "node get n1"),
        ("describe vm/db", "workload get db"),
        ("inspect web", "workload get web"),
        ("status", "workload list"),
        ("status web", "workload get web"),
        ("stop web", "workload stop web"),
        ("start web db --wait", "workload start web db --wait"),
        ("rm -f web", "workload delete web"),
        ("delete web", "workload delete web"),
        ("delete -f web.yaml", "workload delete -f web.yaml"),
        ("delete workload/web", "workload delete web"),
        ("delete node n1", "node remove n1"),
        ("delete token 4f2a", "token revoke 4f2a"),
        ("diff -f web.yaml", "plan -f web.yaml"),
        ("create -f web.yaml", "apply -f web.yaml"),
        ("create secret db", "secret put db"),
        ("job run web.yaml", "apply -f web.yaml"),
        ("job run --wait web.yaml", "apply --wait -f web.yaml"),
        ("job run backup", "job run backup"),
        ("job run backup --wait", "job run backup --wait"),
        ("job status", "job list"),
        ("job status backup", "job get backup"),
        ("job scale web 5", "scale web 5"),
        ("job promote web", "rollout promote web"),
        ("job history web", "rollout history web"),
        ("job revert web", "rollout undo web"),
        ("job dispatch backup", "job run backup"),
        ("job restart web", "workload restart web"),
        ("jobs", "job list"),
        ("get jobs", "job list"),
        ("get cronjob/backup -o yaml", "job get backup -o yaml"),
        ("delete job backup", "job delete backup"),
        ("logs job/backup", "logs backup"),
        ("sets", "set list"),
        ("get deployments", "set list"),
        ("get deploy/web", "set get web"),
        ("describe statefulset db", "set get db"),
        ("delete deployment web", "set delete web"),
        ("service ls", "service list"),
        ("service ps web", "service get web"),
        ("service inspect web", "service get web"),
        ("get svc", "service list"),
        ("get endpoints web", "service get web"),
        ("service scale web=5", "scale web=5"),
        ("service rm web", "service delete web"),
        ("service logs web -f", "logs web -f"),
        ("service rollback web", "rollout undo web"),
        ("service update web", "edit web"),
        ("scale deployment/web --replicas=5", "scale web --replicas=5"),
        ("scale --replicas 5 deployment web", "scale --replicas 5 web"),
        ("scale job 5", "scale job 5"),
        ("rollout status deployment/web", "rollout status web"),
        ("rollout undo deployment web --to-revision 3", "rollout undo web --to-revision 3"),
        ("deployment promote web", "rollout promote web"),
        ("workload delete job db", "workload delete job db"),
        ("ps web", "workload list web"),
        ("job stop web", "workload stop web"),
        ("alloc logs web -f", "logs web -f"),
        ("container ls -a", "workload list"),
        ("container rm -f web", "workload delete web"),
        ("container exec web ls", "exec web ls"),
        ("image ls", "image list"),
        ("volume rm db/data", "volume delete db/data"),
        ("rmi debian", "image remove debian"),
        ("node status", "node list"),
        ("node status n1", "node get n1"),
        ("node describe n1", "node get n1"),
        ("nodes", "node list"),
        ("nodes drain n1", "node drain n1"),
        ("pods", "workload list"),
        ("cordon n1", "node cordon n1"),
        ("drain node/n1", "node drain n1"),
        ("taint nodes n1 gpu", "node taint n1 gpu"),
        ("top nodes", "top"),
        ("top", "top"),
        ("stats web", "stats web"),
        ("logs pod/web -f", "logs web -f"),
        ("config use-context lab", "context use lab"),
        ("shutdown vm1", "workload stop vm1"),
        ("restart web", "workload restart web"),
        ("rollout restart deployment/web", "workload restart web"),
        ("container restart web", "workload restart web"),
        ("edit deploy/web", "edit web"),
        ("delete pod/web pod/db -f vm/a.yaml", "workload delete web db -f vm/a.yaml"),
        ("stop vm/db --wait", "workload stop db --wait"),
        ("container run web --image x", "run web --image x"),
        ("--scheduler h:1 get nodes", "--scheduler h:1 node list"),
        ("-o json --insecure ps", "-o json --insecure workload list"),
        ("--context=lab describe web", "--context=lab workload get web"),
        # Commands of persysctl stay as they are.
        ("workload list", "workload list"),
        ("node get nodes", "node get nodes"),
        ("-o json node list", "-o json node list"),
        ("volume get db/data", "volume get db/data"),
        ("explain get", "explain get"),
        ("--help", "--help"),
        ("", ""),
    ],
)
def test_the_words_of_an_alias_are_replaced(typed: str, expected: str) -> None:
    assert rewrite(shlex.split(typed)) == shlex.split(expected)


def test_the_words_for_docker_kubectl_and_nomad_reach_the_cluster(
    cluster: Cluster, ctl: Run
) -> None:
    cluster.add_node("n1")
    cluster.add_workload("web")

    assert ctl("ps", "-q").out == "web\n"
    assert ctl("get", "nodes", "-o", "name").out == "n1\n"
    assert ctl("-o", "name", "describe", "node/n1").out == "n1\n"
    assert ctl("describe", "web").out == ctl("workload", "get", "web").out
    assert ctl("stop", "web").out == "web: being stopped\n"
    assert ctl("rm", "-f", "web").out == "web: being deleted\n"


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_no_command_is_rewritten(name: str) -> None:
    for line in examples_of(name):
        words = shlex.split(line)[1:]
        assert rewrite(words) == words


def test_every_alias_names_an_existing_command() -> None:
    commands = {command.removesuffix(" -f") for command in (*ALIASES.values(), *spellings())}

    assert commands <= COMMANDS
    assert TYPES.keys() <= {group.name for group in GROUPS}


def test_no_alias_hides_a_command() -> None:
    names = {group.name for group in GROUPS} | {each.name for each in SINGLES}

    assert not names & (ALIASES.keys() | HINTS.keys())


def test_every_documented_spelling_is_rewritten_to_its_command() -> None:
    for command, typed in spellings().items():
        for words in typed:
            given = words.replace("WORKLOAD", "web").replace("ID", "x").split()
            assert rewrite(given)[: len(command.split())] == command.split(), words


def test_every_hint_names_an_existing_command() -> None:
    for hint in HINTS.values():
        words = rewrite(hint.partition(",")[0].split())
        assert " ".join(words[:2]) in COMMANDS or words[0] in COMMANDS, hint


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("autoscale", "web"), "use `persysctl edit SET`, and add `scale` with min, max and cpu"),
        (("rollback", "web"), "use `persysctl rollout undo SET`"),
        (("login",), "use `persysctl context add NAME`"),
        (("aply",), "did you mean `persysctl apply`?"),
        (("descibe", "web"), "did you mean `persysctl describe`?"),
        (("node", "lst"), "did you mean `persysctl node list`?"),
        (("workload", "frobnicate"), "`persysctl workload --help` lists all commands"),
        (("frobnicate",), "`persysctl --help` lists all commands"),
        (("ps", "--wach"), "unknown option '--wach' of `workload list`; did you mean --watch?"),
        (("-o", "json", "node", "list", "n1"), "unknown argument 'n1' of `node list`"),
        (("node", "--frob", "x", "list"), "unknown command 'x'"),
        (("run", "web", "--image", "x", "sleep"), "put the command after --, as in `-- ls -l`"),
    ],
)
def test_an_unknown_command_suggests_an_existing_one(
    words: tuple[str, ...], error: str, run: Run
) -> None:
    result = run(*words)

    assert result.code == 2
    assert error in result.err
    assert result.err.count("\n") == 1


def test_a_command_after_an_unknown_option_with_a_value_is_found(run: Run) -> None:
    assert "unknown option '--frob' of `node list`" in run("--frob", "node", "list").err


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (("exec", "web", "ls", "-l"), ["ls", "-l"]),
        (("exec", "-it", "web", "sh", "-c", "echo -- x"), ["sh", "-c", "echo -- x"]),
        (("exec", "web", "git", "log", "--", "a"), ["git", "log", "--", "a"]),
        (("exec", "web", "--service", "db", "--", "ls"), ["ls"]),
        (("exec", "-c", "db", "web", "ls", "-c"), ["ls", "-c"]),
        (("exec", "--service", "db", "web", "ls", "-o", "json"), ["ls", "-o", "json"]),
        (("container", "exec", "web", "ps", "-a"), ["ps", "-a"]),
    ],
)
def test_exec_takes_everything_after_the_workload(
    words: tuple[str, ...], command: list[str]
) -> None:
    options = parse(words)

    assert (options.id, options.command) == ("web", command)


def test_the_topics_of_the_help(run: Run) -> None:
    assert "--scheduler HOST:PORT" in run("help", "connection").out
    assert "get nodes" in run("help", "aliases").out
    assert run("help").out == run("--help").out
    assert run("help", "node", "list").out == run("node", "list", "--help").out
    assert "did you mean `persysctl node`" in run("help", "nod").err


def test_the_help_of_a_command_points_to_the_connection_options(run: Run) -> None:
    shown = run("workload", "list", "--help").out

    assert "--scheduler" not in shown
    assert shown.index("examples:") < shown.index("options:") < shown.index("help connection")
