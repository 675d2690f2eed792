"""The user data of a machine: its files, its limits, and the script that powers an unused machine off."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from persys.errors import InvalidError
from persys.model.nodepool import Software
from persys.providers.user_data import (
    BLOCK_SCRIPT,
    BOOT_SCRIPT,
    BYTES_MAX,
    CONFIG_FILE,
    POWER_OFF_SCRIPT,
    TOKEN_FILE,
    UNITS,
    Boot,
    user_data,
)

SHA = "ab" * 32
SCHEMA = Path(__file__).parents[3] / ".cache" / "cloud-init" / "schema-cloud-config-v1.json"
BOOT = Boot(
    node_id="home-burst-7",
    cluster_id="home",
    schedulers=("10.0.0.1:8085", "10.0.0.2:8085"),
    join_token="TOKEN",
    idle_after=timedelta(minutes=10),
    labels={"zone": "eu: 'west'", "pool": "burst"},
    tier=1,
    core_hour_price=0.02,
    software=Software("https://example.com/persys-0.1.0-linux-x86_64.tar.gz", SHA),
)


def files_of(boot: Boot) -> dict[str, dict[str, str]]:
    text = user_data(boot)
    assert text.startswith("#cloud-config\n")
    return {each["path"]: each for each in yaml.safe_load(text)["write_files"]}


@pytest.mark.skipif(not SCHEMA.exists(), reason="`make engines` fetches the schema of cloud-init")
def test_cloud_init_accepts_the_user_data() -> None:
    validator = jsonschema.Draft4Validator(json.loads(SCHEMA.read_text()))
    boots = [BOOT, replace(BOOT, join_token="", packages=("docker.io", "python3-venv"))]

    for boot in boots:
        assert list(validator.iter_errors(yaml.safe_load(user_data(boot)))) == []
    wrong = yaml.safe_load(user_data(BOOT)) | {"write_files": [{"content": "no path"}]}
    assert list(validator.iter_errors(wrong)) != []


def test_the_settings_of_the_agent_are_those_of_the_pool() -> None:
    settings = yaml.safe_load(files_of(BOOT)[CONFIG_FILE]["content"])

    assert settings == {
        "node_id": "home-burst-7",
        "cluster_id": "home",
        "scheduler_addr": ["10.0.0.1:8085", "10.0.0.2:8085"],
        "node_labels": {"zone": "eu: 'west'", "pool": "burst"},
        "node_tier": 1,
        "node_price": 0.02,
    }


def test_the_token_is_private_and_in_no_other_file() -> None:
    files = files_of(BOOT)

    assert files[TOKEN_FILE]["permissions"] == "0600"
    assert files[TOKEN_FILE]["content"] == "TOKEN\n"
    assert [path for path, each in files.items() if "TOKEN" in each["content"]] == [TOKEN_FILE]


def test_a_cluster_without_tls_needs_no_token() -> None:
    files = files_of(replace(BOOT, join_token=""))

    assert TOKEN_FILE not in files
    assert "persys-agent join" not in files[BOOT_SCRIPT]["content"]
    assert yaml.safe_load(files[CONFIG_FILE]["content"])["insecure"] is True


@pytest.mark.parametrize("path", [BOOT_SCRIPT, BLOCK_SCRIPT])
@pytest.mark.parametrize("end", ["tar.gz", "whl", "deb", ""])
def test_the_scripts_are_valid_shell(path: str, end: str) -> None:
    software = Software(f"https://example.com/it's a {end}.{end}", SHA) if end else Software()
    script = files_of(replace(BOOT, software=software))[path]["content"]

    done = subprocess.run(["sh", "-n"], input=script, text=True, capture_output=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")


def test_the_timer_and_the_block_start_before_anything_is_fetched() -> None:
    script = files_of(BOOT)[BOOT_SCRIPT]["content"]

    steps = [
        "persys-power-off.timer",
        "persys-block-metadata",
        "urlretrieve",
        "sha256sum -c",
        "tar ",
    ]
    steps += ["pip install", "persys-agent join", "systemctl restart persys-agent"]
    places = [script.index(step) for step in steps]
    assert places == sorted(places)


def test_the_agent_requires_the_block() -> None:
    files = files_of(BOOT)

    unit = files[f"{UNITS}/persys-block-metadata.service"]["content"]
    assert "RequiredBy=persys-agent.service" in unit
    for address in ("169.254.169.254", "fd00:ec2::254"):
        assert address in files[BLOCK_SCRIPT]["content"]


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"software": Software("ftp://x/y.whl", SHA)}, "software.url: invalid URL"),
        ({"software": Software("https://x/y.zip", SHA)}, "software.url: invalid URL"),
        ({"software": Software("https://x/y.whl", "12")}, "software.sha256: invalid checksum '12'"),
        ({"packages": ("docker.io", "-y")}, "options.packages: invalid package '-y'"),
        ({"labels": {"a": "b" * BYTES_MAX}}, f"expected at most {BYTES_MAX}"),
    ],
)
def test_what_cannot_be_written_is_refused(wrong: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidError) as caught:
        user_data(replace(BOOT, **wrong))

    assert problem in str(caught.value)


@given(
    st.dictionaries(st.text(max_size=20), st.text(max_size=40), max_size=5), st.text(max_size=40)
)
def test_labels_and_tokens_are_read_back_as_they_were(labels: dict[str, str], token: str) -> None:
    files = files_of(replace(BOOT, labels=labels, join_token=token))

    assert yaml.safe_load(files[CONFIG_FILE]["content"]).get("node_labels", {}) == labels
    assert files.get(TOKEN_FILE, {"content": "\n"})["content"] == f"{token}\n"


class Machine:
    """Runs the script of the timer, with a fake agent and a clock that is the state file."""

    def __init__(self, folder: Path, boot: Boot) -> None:
        self.report: dict[str, Any] | None = {"workloads": 0, "leader_contact_seconds": 1.0}
        self.state = folder / "state.json"
        self._script = folder / "power-off"
        self._script.write_text(files_of(boot)[POWER_OFF_SCRIPT]["content"])
        self._off = folder / "off"
        command = folder / "systemctl"
        command.write_text(f'#!/bin/sh\necho "$@" > {self._off}\n')
        command.chmod(0o755)
        machine = self

        class Agent(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = b"" if machine.report is None else json.dumps(machine.report).encode()
                self.send_response(503 if machine.report is None else 200)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Tests print nothing."""

        self.server = HTTPServer(("127.0.0.1", 0), Agent)
        self._env = {
            "PATH": f"{folder}:/usr/bin:/bin",
            "PERSYS_POWER_OFF_STATE": str(self.state),
            "PERSYS_POWER_OFF_HEALTH": f"http://127.0.0.1:{self.server.server_port}/health",
        }

    def runs_on(self, *, idle: int = 0, alone: int = 0) -> bool:
        """One run of the timer, after these seconds without workloads and without a leader."""
        subprocess.run([sys.executable, self._script], env=self._env, timeout=60, check=True)
        state = json.loads(self.state.read_text())
        self.state.write_text(
            json.dumps({"busy": state["busy"] - idle, "leader": state["leader"] - alone})
        )
        subprocess.run(
            [sys.executable, self._script],
            env=self._env,
            timeout=60,
            check=True,
            capture_output=True,
        )
        return not self._off.exists()


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path, BOOT)
    thread = threading.Thread(target=made.server.serve_forever, args=(0.05,))
    thread.start()
    yield made
    made.server.shutdown()
    thread.join()
    made.server.server_close()


LOST = {"workloads": 0, "leader_contact_seconds": None}


@pytest.mark.parametrize(
    ("report", "idle", "alone", "runs_on"),
    [
        ({"workloads": 0, "leader_contact_seconds": 1.0}, 900, 0, True),
        ({"workloads": 0, "leader_contact_seconds": 1.0}, 1300, 0, False),
        ({"workloads": 2, "leader_contact_seconds": 1.0}, 1300, 0, True),
        (LOST, 500, 700, True),
        (LOST, 700, 500, True),
        (LOST, 700, 700, False),
        ({"workloads": 2, "leader_contact_seconds": None}, 700, 700, True),
        ({"workloads": 2, "leader_contact_seconds": None}, 0, 3700, False),
        (None, 700, 700, True),
        (None, 700, 3700, False),
    ],
)
def test_an_unused_machine_powers_itself_off(
    machine: Machine, report: dict[str, Any] | None, idle: int, alone: int, runs_on: bool
) -> None:
    machine.report = report

    assert machine.runs_on(idle=idle, alone=alone) is runs_on


def test_an_idle_machine_of_a_pool_with_a_minimum_stays(machine: Machine, tmp_path: Path) -> None:
    script = files_of(replace(BOOT, keeps_idle=True))[POWER_OFF_SCRIPT]["content"]
    (tmp_path / "power-off").write_text(script)

    assert machine.runs_on(idle=100_000)
