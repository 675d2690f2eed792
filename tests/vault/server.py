"""A real Vault with its data on disk, so that it can be restarted, configured as in the document."""

import json
import os
import re
import subprocess
import urllib.request
from http import HTTPStatus
from pathlib import Path
from typing import Any

from e2e.process import Process, free_port, listens_on
from e2e.waiting import eventually
from persys.model.identity import Role
from root_ca import Root

PROJECT = Path(__file__).parents[2]
BINARY = PROJECT / ".cache" / "engines" / "vault"
DOCUMENT = PROJECT / "docs" / "how-to" / "vault.md"
_BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_CONFIG = """
disable_mlock = true
api_addr      = "http://127.0.0.1:{port}"
cluster_addr  = "https://127.0.0.1:{cluster_port}"
storage "raft" {{
  path    = "{data}"
  node_id = "one"
}}
listener "tcp" {{
  address     = "127.0.0.1:{port}"
  tls_disable = true
}}
listener "tcp" {{
  address       = "127.0.0.1:{tls_port}"
  tls_cert_file = "{certificate}"
  tls_key_file  = "{key}"
}}
"""


class VaultServer:
    def __init__(self, directory: Path) -> None:
        assert BINARY.exists(), "there is no Vault: run `make test-full`, which builds it"
        self._port = free_port()
        self.address = f"http://127.0.0.1:{self._port}"
        config = directory / "vault.hcl"
        data = directory / "data"
        data.mkdir()
        tls_port = free_port()
        self.tls_address = f"https://127.0.0.1:{tls_port}"
        files = Root(directory).write(Role.CA, "vault", hosts=("127.0.0.1",))
        self.roots = files.roots
        config.write_text(
            _CONFIG.format(
                data=data,
                port=self._port,
                tls_port=tls_port,
                cluster_port=free_port(),
                certificate=files.certificate,
                key=files.key,
            )
        )
        self._home = directory
        self._unseal_key = ""
        self.root_token = ""
        self._process = Process(
            [str(BINARY), "server", f"-config={config}"],
            {"HOME": str(directory)},
            log=directory / "vault.log",
            ready=lambda: listens_on(self._port),
        )

    def start(self) -> None:
        """Start it. It is sealed, except after the first start."""
        self._process.start()
        if not self._unseal_key:
            created = json.loads(
                self.run("vault operator init -key-shares=1 -key-threshold=1 -format=json")
            )
            self._unseal_key = created["unseal_keys_b64"][0]
            self.root_token = created["root_token"]
            self.unseal()

    def unseal(self) -> None:
        self.run(f"vault operator unseal {self._unseal_key}")
        eventually(self._is_active, lambda: f"Vault to be active\n{self._process.log[-2000:]}")

    def restart(self) -> None:
        self.start()
        self.unseal()

    def stop(self) -> None:
        self._process.kill()

    def close(self) -> None:
        self._process.close()

    def run(self, script: str) -> str:
        """Run a script in a shell, as root of this Vault."""
        result = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            env={
                "PATH": f"{BINARY.parent}:{os.environ['PATH']}",
                "HOME": str(self._home),
                "VAULT_ADDR": self.address,
                "VAULT_TOKEN": self.root_token,
            },
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert result.returncode == 0, f"{script}\n{result.stdout}{result.stderr}"
        return result.stdout.strip()

    def set_up(self) -> None:
        """Run every command of the document, in order."""
        self.run("vault secrets enable -path=secret -version=2 kv")
        blocks = _BLOCK.findall(DOCUMENT.read_text("utf-8"))
        assert blocks
        for block in blocks:
            self.run(block)

    def approle(self, name: str) -> dict[str, str]:
        """The variables for the login of a process."""
        role = f"auth/approle/role/{name}"
        return {
            "PERSYS_VAULT_AUTH_METHOD": "approle",
            "PERSYS_VAULT_APPROLE_ROLE_ID": self.run(f"vault read -field=role_id {role}/role-id"),
            "PERSYS_VAULT_APPROLE_SECRET_ID": self.run(
                f"vault write -f -field=secret_id {role}/secret-id"
            ),
        }

    def token(self, policy: str, *options: str) -> str:
        return self.run(f"vault token create -policy={policy} -field=token {' '.join(options)}")

    def read(self, command: str) -> dict[str, Any]:
        """The JSON output of a command."""
        response: dict[str, Any] = json.loads(self.run(f"VAULT_FORMAT=json {command}"))
        return response

    def _is_active(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.address}/v1/sys/health", timeout=10) as response:
                return bool(response.status == HTTPStatus.OK)
        except OSError:  # 429 on a standby
            return False
