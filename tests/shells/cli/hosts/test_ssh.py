"""Scripts on a host, through a real sshd on this machine."""

import getpass
import os
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from persys.cli.framework.exit_codes import ExitCode
from persys.cli.framework.live import LiveState
from persys.cli.hosts import facts
from persys.cli.hosts.execute import Execution, Outcome, Progress, todo
from persys.cli.hosts.inventory import Host, Member
from persys.cli.hosts.plan import Output, Phase, Step
from persys.cli.hosts.ssh import HostError, Ssh, open_ssh
from persys.cli.persys import main
from ssh_server import ssh_server

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="scripts of steps run as root")


class Server:
    def __init__(self, port: int, key: Path, known_hosts: Path) -> None:
        self.host = Host(f"{getpass.getuser()}@127.0.0.1", port)
        self.identity = str(key)
        self.options = (f"UserKnownHostsFile={known_hosts}", "IdentitiesOnly=yes")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("sshd")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with ssh_server(directory, port) as (key, known_host):
        (known := directory / "known").write_text(f"{known_host}\n")
        yield Server(port, key, known)


@pytest.fixture
def ssh(server: Server) -> Iterator[Ssh]:
    with open_ssh(identity=server.identity, options=server.options) as opened:
        yield opened


def member(server: Server, name: str) -> Member:
    return Member(server.host, name, "127.0.0.1", "python3")


def run(ssh: Ssh, *plan: Phase) -> tuple[Outcome, list[LiveState]]:
    shown: list[LiveState] = []
    names = sorted({step.member.name for phase in plan for step in phase})
    progress = Progress(lambda states: shown.extend(states.values()), names)
    return Execution(ssh, progress).run(plan), shown


def test_a_script_has_quotes_input_output_and_an_exit_code(ssh: Ssh, server: Server) -> None:
    script = """read -r line; echo "it's $line"; echo 'a "problem"' >&2; exit 7"""

    ended = ssh.run(server.host, script, root=False, data=b"$HOME\nrest\n")

    assert ended.code == 7
    assert ended.output == b"it's $HOME\n"
    assert ended.errors == 'a "problem"'


def test_a_file_is_the_input_of_a_script(ssh: Ssh, server: Server, tmp_path: Path) -> None:
    (file := tmp_path / "bundle").write_bytes(bytes(range(256)) * 4096)

    ended = ssh.run(server.host, "cat | wc -c", root=False, data=file)

    assert int(ended.output) == 256 * 4096


def test_a_host_that_cannot_be_reached_is_an_error_with_the_command_to_try(ssh: Ssh) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        host = Host("ada@127.0.0.1", unused.getsockname()[1])
        with pytest.raises(HostError) as failed:
            ssh.run(host, "true", root=False)

    assert "ssh failed: " in str(failed.value)
    assert "try `ssh -p" in str(failed.value)


def test_a_host_with_another_key_is_not_trusted(server: Server, tmp_path: Path) -> None:
    options = [f"UserKnownHostsFile={tmp_path / 'none'}", "IdentitiesOnly=yes"]

    with (
        open_ssh(identity=server.identity, options=options) as ssh,
        pytest.raises(HostError, match="Host key verification failed"),
    ):
        ssh.run(server.host, "true", root=False)


def test_the_facts_of_this_machine_are_read(ssh: Ssh, server: Server) -> None:
    ended = ssh.run(server.host, facts.SCRIPT, root=False)
    found = facts.parse_facts(ended.output.decode())

    assert ended.code == 0
    assert found.user == getpass.getuser()
    assert found.hostname == socket.gethostname()
    assert found.address == "127.0.0.1"
    assert server.host.port in found.listening
    assert found.clock > 0


@needs_root
class TestSteps:
    """Steps write below `place`; their records are in its folder `state`."""

    @pytest.fixture(autouse=True)
    def place(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        from persys.cli.hosts import scripts

        monkeypatch.setattr(
            scripts, "PRELUDE", scripts.PRELUDE.replace(facts.STATE, str(tmp_path / "state"))
        )
        return tmp_path

    def a_step(self, server: Server, place: Path, name: str, **changes: object) -> Step:
        step = Step(
            *(member(server, "a"), name, f"make {name}"),
            f"echo {name} >>{place}/{name}\n",
            f"[ -s {place}/{name} ] || exit 1\n",
        )
        return step._replace(**changes)  # type: ignore[arg-type]

    def test_a_second_run_changes_nothing(self, ssh: Ssh, server: Server, place: Path) -> None:
        plan = [(self.a_step(server, place, "one"), self.a_step(server, place, "two"))]

        first, _ = run(ssh, *plan)
        second, shown = run(ssh, *plan)

        assert (first.changed, second.changed) == ({"a": 2}, {})
        assert (place / "one").read_text() == "one\n"
        assert shown[-1] == LiveState("ready", "unchanged")

    def test_a_changed_input_and_a_lost_result_repeat_a_step(
        self, ssh: Ssh, server: Server, place: Path
    ) -> None:
        one, two = (self.a_step(server, place, name) for name in ("one", "two"))
        run(ssh, (one, two))
        (place / "two").unlink()

        outcome, _ = run(ssh, (one._replace(depends_on="another package"), two))

        assert outcome.changed == {"a": 2}
        assert (place / "one").read_text() == "one\none\n"

    def test_the_output_of_one_host_is_the_input_of_another(
        self, ssh: Ssh, server: Server, place: Path
    ) -> None:
        token = Output(member(server, "ca"), "echo secret-token\n")
        step = self.a_step(server, place, "join", action=f"cat >{place}/join\n", given=token)

        outcome, _ = run(ssh, (step,))

        assert outcome.failures == {}
        assert (place / "join").read_text() == "secret-token\n"

    def test_a_failed_step_is_named_with_its_host_and_continued_by_the_next_run(
        self, ssh: Ssh, server: Server, place: Path
    ) -> None:
        other = member(server, "b")
        wait = f"[ -e {place}/repaired ] || fail 'no space left'\necho done >{place}/two\n"
        plan = [
            (
                self.a_step(server, place, "one"),
                self.a_step(server, place, "two", action=wait),
                self.a_step(server, place, "three"),
                self.a_step(server, place, "other", member=other),
            ),
            (self.a_step(server, place, "later"),),
        ]

        first, _ = run(ssh, *plan)

        assert first.failures == {"a": "make two: no space left"}
        assert first.changed == {"a": 1, "b": 1}
        assert not (place / "three").exists()
        assert not (place / "later").exists()

        (place / "repaired").touch()
        second, _ = run(ssh, *plan)

        assert second.failures == {}
        assert second.changed == {"a": 3}

    def test_a_failed_output_names_the_host_that_gives_it(
        self, ssh: Ssh, server: Server, place: Path
    ) -> None:
        token = Output(member(server, "ca"), "fail 'the CA is not running'\n")
        step = self.a_step(server, place, "join", given=token)

        outcome, _ = run(ssh, (step,))

        assert outcome.failures == {"a": "make join: on ca: the CA is not running"}

    def test_todo_changes_nothing(self, ssh: Ssh, server: Server, place: Path) -> None:
        one, two = (self.a_step(server, place, name) for name in ("one", "two"))
        run(ssh, (one,))

        found = todo(ssh, [(one,), (two,)])

        assert found == [(one, True), (two, False)]
        assert not (place / "two").exists()


def persys(
    words: Sequence[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[int, str]:
    monkeypatch.setattr("sys.argv", ["persys", "cluster", "create", *words])
    return main(), capsys.readouterr().err


def test_every_host_that_cannot_be_used_is_listed(
    server: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """This machine may have systemd; its clock as the command sees it is always wrong."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        (file := tmp_path / "hosts").write_text(
            f"{server.host} name=a\n127.0.0.1:{unused.getsockname()[1]} name=b\n"
        )
        monkeypatch.setattr(facts, "CLOCK_SECONDS_MAX", -1)
        options = (f"--ssh-option={option}" for option in server.options)

        code, errors = persys(
            ["--hosts-file", str(file), "--identity", server.identity, *options],
            monkeypatch,
            capsys,
        )

    assert code == ExitCode.FAILED
    assert f"error: {server.host}: its clock differs by" in errors
    assert "ssh failed" in errors
    assert errors.endswith("error: nothing was changed\n")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--hosts", "a b"], "invalid host 'a b'"),
        (["--hosts", "a", "--schedulers", "3"], "invalid --schedulers '3': expected at most 1"),
        (["--hosts", "a", "--etcd", "/nonexistent"], "--etcd /nonexistent: No such file"),
        (["--hosts", "a", "--etcd", __file__], "expected a program, not an archive"),
        (["--hosts-file", "/nonexistent"], "--hosts-file /nonexistent: No such file"),
    ],
)
def test_an_invalid_command_line_is_refused_before_any_connection(
    words: list[str],
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, errors = persys(words, monkeypatch, capsys)

    assert code == ExitCode.USAGE
    assert expected in errors
