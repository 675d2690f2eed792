"""A real CoreDNS with the shipped Corefile, queried with dig."""

import subprocess
from pathlib import Path

from e2e.process import Process, free_port

ROOT = Path(__file__).parents[2]
COREFILE = ROOT / "deploy" / "coredns" / "Corefile"
PROGRAM = ROOT / ".cache" / "engines" / "coredns"


class CoreDns(Process):
    def __init__(self, directory: Path, etcd: str) -> None:
        assert PROGRAM.exists(), "there is no CoreDNS to test with: run `make engines`"
        self.port = free_port()
        self.server = f"127.0.0.1:{self.port}"
        super().__init__(
            [str(PROGRAM), "-conf", str(COREFILE), "-dns.port", str(self.port)],
            {"COREDNS_ETCD": f"http://{etcd}"},
            log=directory / "coredns.log",
            # An empty answer counts too: CoreDNS runs and has queried etcd.
            ready=lambda: "status: " in self._dig("+tcp", "SRV", "_persys-scheduler.persys.local"),
        )

    def ask(self, kind: str, name: str) -> list[str]:
        """The answers of `dig +short`, sorted."""
        return sorted(self._dig("+short", kind, name).split("\n"))[1:]

    def _dig(self, *words: str) -> str:
        result = subprocess.run(
            ["dig", "@127.0.0.1", "-p", str(self.port), "+tries=1", "+time=5", *words],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        return result.stdout if result.returncode == 0 else ""
