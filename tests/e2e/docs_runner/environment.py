"""The environment in which the documents are run: a separate cluster, created by `persys up`.

All differences from a reader's host are here: substituted ports, names and directories, and two wrapper
commands that precede the real ones on the PATH. Nothing else on this host is changed.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import compose_binaries
from e2e import vms
from e2e.containers import docker
from e2e.docs_runner.blocks import ROOT, Block
from e2e.process import free_port

BIN = Path(sys.executable).parent
DEADLINE_SECONDS = 240
# Ports in documents and examples, which are substituted.
PORTS = ("8888", "8085", "8084", "50051", "8089", "8551", "8585", "50052", "8090", "50053", "8091")
PORTS_OF_WORKLOADS = tuple(str(port) for port in range(18080, 18100))
# Node names in documents, which are substituted.
NODE_WORDS = ("NODE", "n3")
WORKLOADS = Path(__file__).with_name("workloads.yaml")
_UNWANTED = ("PERSYS_", "SCHEDULER_", "ETCD_")


class DocsEnvironment:
    def __init__(self, place: Path, machine_settings: Mapping[str, str]) -> None:
        self.place = place
        self.node_id = f"docs-{uuid4().hex[:8]}"
        self.state = place / "state"
        self._ports = {port: str(free_port()) for port in (*PORTS, *PORTS_OF_WORKLOADS)}
        self.second_id, self.third_id = f"{self.node_id}-2", f"{self.node_id}-3"
        self._substitutions = {
            **dict.fromkeys(NODE_WORDS, self.node_id),
            "second": self.second_id,
            "third": self.third_id,
            "/somewhere/safe": str(place / "safe"),
            "/var/lib/persys/up": str(self.state),
            "node-7:50051": f"127.0.0.1:{self._ports['50051']}",
            **self._ports,
        }
        self.env = {
            **{name: text for name, text in os.environ.items() if not name.startswith(_UNWANTED)},
            **machine_settings,
            "HOME": str(place),
            "PATH": f"{place / 'bin'}:{BIN}:{os.environ['PATH']}",
            "PERSYS_NODE_ID": self.node_id,
            "PERSYS_COMPOSE_BINARY": compose_binaries.V2,
            "PERSYS_STOP_GRACE": "1s",
        }

    def prepare(self) -> None:
        """A directory like the reader's clone; the ports in its examples are free on this host."""
        for name in ("bin", "safe", "clone"):
            (self.place / name).mkdir()
        for path in ROOT.iterdir():
            if path.name != "examples":
                (self.place / "clone" / path.name).symlink_to(path)
        examples = shutil.copytree(ROOT / "examples", self.place / "clone" / "examples")
        for path in (path for path in examples.rglob("*") if path.is_file()):
            path.write_text(self.substituted(path.read_text("utf-8")))
        self._wrapper("make", f'exec /usr/bin/make -C {ROOT} BIN={self.place / "bin"} "$@"')
        up = " ".join(f"--{name}={self._ports[port]}" for name, port in self._up_ports().items())
        self._wrapper(
            "persys",
            f"""case "$1" in
  up) exec {BIN}/persys "$@" --state-dir={self.state} {up} ;;
  down) exec {BIN}/persys "$@" --state-dir={self.state} ;;
  clean-demo) exec {BIN}/persys "$@" --state-dir={self.state} --scheduler-port={self._ports["8085"]} ;;
  *) exec {BIN}/persys "$@" ;;
esac""",
        )

    def set(self) -> None:
        """Start the cluster and the workloads that the documents use."""
        self.run_script("make up")
        spec_file = self.place / "clone" / "web.yaml"
        spec_file.write_text(self.substituted(WORKLOADS.read_text("utf-8")))
        self.run_script("persysctl apply -f web.yaml --wait")

    def substituted(self, text: str) -> str:
        """The text with all substitutions. Only whole words are replaced: 8085 is not part of 18085."""
        words = sorted(map(re.escape, self._substitutions), key=len, reverse=True)
        whole_words = rf"(?<![\w.-])(?:{'|'.join(words)})(?![\w-])"
        return re.sub(whole_words, lambda found: self._substitutions[found[0]], text)

    def run_blocks(self, blocks: list[Block], *, within: float = DEADLINE_SECONDS) -> str:
        """Run all of them in one shell. Returns '' or the error with its document and line."""
        folder = Path(tempfile.mkdtemp(dir=self.place))
        lines = ["set -euo pipefail"]
        for number, block in enumerate(blocks):
            file = folder / f"{number}.sh"
            file.write_text(self.substituted(block.script))
            if block.code:
                lines += ["set +e", f"( set -e; source {file} ) >{file}.out 2>&1", "code=$?"]
                lines += ["set -e", f'[[ $code == {block.code} ]] && echo "{number}"']
            else:
                lines.append(f"{{ source {file}; }} >{file}.out 2>&1; echo {number}")
        done = self._bash("\n".join(lines), within=within)
        ended = [int(word) for word in done.stdout.split()]
        for number, block in enumerate(blocks):
            output = folder / f"{number}.sh.out"
            printed = output.read_text("utf-8", "replace") if output.exists() else done.stderr
            if number not in ended:
                return f"{block.place} did not end as it should:\n{block.text}\n{printed}"
            for text in map(self.substituted, block.shows):
                if text not in printed:
                    return f"{block.place} does not show {text!r}:\n{block.text}\n{printed}"
        return ""

    def run_script(self, script: str) -> None:
        done = self._bash(f"set -euo pipefail\n{script}")
        assert done.returncode == 0, f"{script}: {done.stdout}{done.stderr}"

    def remove(self) -> None:
        """Remove all processes, containers, networks and volumes."""
        for pid in (int(file.read_text()) for file in self.place.rglob("*.tour-pid")):
            subprocess.run(["kill", str(pid)], capture_output=True, check=False)
        self._bash("persys down")
        for node in (self.node_id, self.second_id, self.third_id):
            label = f"label=persys.node_id={node}"
            for container in docker("ps", "-aq", "--filter", label).split():
                docker("rm", "-f", "-v", container)
            for kind in ("network", "volume"):
                for name in docker(kind, "ls", "-q", "--filter", label).split():
                    docker(kind, "rm", name)

    def _bash(
        self, script: str, *, within: float = DEADLINE_SECONDS
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", script],
            cwd=self.place / "clone",
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=within,
            check=False,
        )

    def _wrapper(self, name: str, body: str) -> None:
        path = self.place / "bin" / name
        path.write_text(f"#!/usr/bin/env bash\n{body}\n")
        path.chmod(0o755)

    @staticmethod
    def _up_ports() -> dict[str, str]:
        return {
            "ca-port": "8888",
            "scheduler-port": "8085",
            "scheduler-metrics-port": "8084",
            "agent-port": "50051",
            "agent-metrics-port": "8089",
            "gateway-port": "8551",
            "gateway-public-port": "8585",
            "demo-port": "18080",
        }


@contextmanager
def a_docs_environment() -> Iterator[DocsEnvironment]:
    with vms.vm_directory() as (directory, settings):
        place = directory / "reader"
        place.mkdir()
        environment = DocsEnvironment(place, settings)
        environment.prepare()
        try:
            environment.set()
            yield environment
        finally:
            environment.remove()
