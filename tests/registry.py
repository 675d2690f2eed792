"""A private registry on loopback, which Docker trusts without TLS; optionally slow."""

import json
import shutil
import socket
import subprocess
import threading
import time
from base64 import b64encode
from contextlib import suppress
from pathlib import Path

USER, PASSWORD = "ann", "s3cret"
# bcrypt of the password above, as htpasswd -B writes it.
HTPASSWD = "ann:$2y$05$q6GIvppFgMqGrD6YWkHeE.yfmRyAYZlPanV1h6Dpk3Qx1Vvm3yUQC\n"
CHUNK_BYTES = 64 * 1024


class Registry:
    def __init__(self, directory: Path, *, private: bool = True) -> None:
        self.address = f"127.0.0.1:{_free_port()}"
        self.credentials = directory / "credentials"  # one, named registry
        self.credentials.mkdir()
        self.keep_credential()
        self._directory = directory
        self.login_folder = directory  # for `docker --config`
        (directory / "htpasswd").write_text(HTPASSWD)
        config: dict[str, object] = {
            "version": 0.1,
            "log": {"level": "error"},
            "storage": {"filesystem": {"rootdirectory": str(directory / "data")}},
            "http": {"addr": self.address, "secret": "of a test"},
        }
        if private:
            path = str(directory / "htpasswd")
            config["auth"] = {"htpasswd": {"realm": "test", "path": path}}
        (directory / "config.yml").write_text(json.dumps(config))
        (directory / "config.json").write_text(json.dumps({"auths": {self.address: _login()}}))
        command = shutil.which("docker-registry")
        assert command is not None, "the tests need docker-registry"
        with (directory / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [command, "serve", str(directory / "config.yml")], stdout=log, stderr=log
            )
        self._wait()

    def keep_credential(self, *more_hosts: str) -> None:
        """Store the credential for this registry and for other addresses of it."""
        path = self.credentials / "registry.json"
        hosts = [self.address, *more_hosts]
        path.write_text(json.dumps({"hosts": hosts, "username": USER, "password": PASSWORD}))
        path.chmod(0o600)

    def push(self, image: str, name: str) -> str:
        """Push an image of Docker to the registry, and remove its new name from Docker."""
        there = f"{self.address}/{name}"
        self._docker("tag", image, there)
        self._docker("--config", str(self._directory), "push", "--quiet", there)
        self._docker("rmi", there)
        return there

    def close(self) -> None:
        self._process.kill()
        self._process.wait(10)

    def _wait(self) -> None:
        host, _, port = self.address.partition(":")
        deadline = time.monotonic() + 20
        while True:
            with suppress(OSError), socket.create_connection((host, int(port)), timeout=1):
                return
            assert time.monotonic() < deadline, (self._directory / "log").read_text()
            time.sleep(0.05)

    @staticmethod
    def _docker(*arguments: str) -> None:
        subprocess.run(["docker", *arguments], capture_output=True, timeout=120, check=True)


class SlowProxy:
    """Forwards to an address, with a limited rate of response bytes per connection."""

    def __init__(self, towards: str, *, bytes_per_second: int) -> None:
        host, _, port = towards.partition(":")
        self._towards = host, int(port)
        self._pause = CHUNK_BYTES / bytes_per_second
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._ends: list[socket.socket] = [self._listener]
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def close(self) -> None:
        for end in self._ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)
        for end in self._ends:
            end.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(self._towards)
                self._ends += (near, far)
                for source, sink, pause in ((near, far, 0.0), (far, near, self._pause)):
                    thread = threading.Thread(
                        target=self._carry, args=(source, sink, pause), daemon=True
                    )
                    thread.start()
                    self._threads.append(thread)

    @staticmethod
    def _carry(source: socket.socket, sink: socket.socket, pause: float) -> None:
        with suppress(OSError):
            while data := source.recv(CHUNK_BYTES):
                sink.sendall(data)
                time.sleep(pause * len(data) / CHUNK_BYTES)
            sink.shutdown(socket.SHUT_WR)


def _free_port() -> int:
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        port: int = trial.getsockname()[1]
    return port


def _login() -> dict[str, str]:
    return {"auth": b64encode(f"{USER}:{PASSWORD}".encode()).decode()}
