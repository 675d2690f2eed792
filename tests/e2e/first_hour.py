"""The first hour of a new user, as steps that are typed into a terminal."""

import subprocess
from abc import ABC, abstractmethod
from pathlib import Path

from e2e.containers import container_ids, inspect
from e2e.process import free_port
from e2e.terminal import Terminal
from e2e.waiting import eventually
from git_servers import Repository
from pages import local_page

SHELL = ("bash", "--norc", "--noprofile", "--noediting", "-i")
INSTALL_SECONDS = 600
MOVE_SECONDS = 240
WEB = """\
id: web
resources: {{cpu_millicores: 50, memory_mb: 16}}
container:
  image: {image}
  init: true
  command: [sh, -c, 'mkdir -p /site && echo Hello >/site/index.html && exec httpd -f -p 80 -h /site']
  ports: ["{port}:80"]
  health_check: "http:80/"
"""
COMPOSE = """\
services:
  pages:
    image: {image}
    init: true
    command: ["sh", "-c", "mkdir -p /site && echo {text} >/site/index.html && exec httpd -f -p 80 -h /site"]
    ports: ["{port}:80"]
    restart: unless-stopped
    deploy: {{resources: {{limits: {{cpus: "0.1", memory: 32M}}}}}}
"""
GIT = """\
id: site
resources: {{cpu_millicores: 100, memory_mb: 32}}
compose:
  source_type: git
  git_repo: file://{path}
  git_ref: main
"""
MOBILE = """\
id: mobile
resources: {{cpu_millicores: 50, memory_mb: 16}}
container: {{image: "{image}", init: true, command: [sleep, "3600"]}}
"""


class User(ABC):
    """A user at a terminal, with the ports of the workloads."""

    def __init__(self, terminal: Terminal, node_id: str, image: str) -> None:
        self.terminal = terminal
        self.node_id = node_id
        self.image = image
        self.web, self.pages, self.git = free_port(), free_port(), free_port()

    @abstractmethod
    def write(self, name: str, text: str) -> None:
        """A file in the directory of the user, as an editor would save it."""

    def type(self, line: str, *, code: int = 0, within: float = 120) -> str:
        """Type a line, and compare the exit code. Returns what is shown."""
        screen = self.terminal.run(line, within=within)
        assert screen.code == code, f"exit code {screen.code} of {line}:\n{screen.text}"
        return screen.text

    def visit(self, port: int, expected: str) -> None:
        """Open a page of a workload, until it is as expected."""
        eventually(
            lambda: local_page(port) == expected, lambda: f"{expected!r}, is {local_page(port)!r}"
        )


def deploy_a_container(user: User) -> None:
    user.write("web.yaml", WEB.format(image=user.image, port=user.web))
    assert "web: Running" in user.type("persysctl apply -f web.yaml --wait")
    user.visit(user.web, "Hello")


def deploy_a_compose_file(user: User) -> None:
    text = COMPOSE.format(image=user.image, text="My notes", port=user.pages)
    user.write("notes/docker-compose.yml", text)
    shown = user.type("persysctl apply -f notes/docker-compose.yml --wait")
    assert "Compose file, applied as stack 'notes'" in shown
    assert "notes: Running" in shown
    user.visit(user.pages, "My notes")


def deploy_a_stack_from_git(user: User, place: Path) -> None:
    def compose(text: str) -> dict[str, str]:
        return {"compose.yaml": COMPOSE.format(image=user.image, text=text, port=user.git)}

    repository = Repository(place)
    first = repository.commit(compose("Commit one"))
    user.write("site.yaml", GIT.format(path=repository.path))
    assert "site: Running" in user.type("persysctl apply -f site.yaml --wait")
    user.visit(user.git, "Commit one")
    assert first in user.type("persysctl workload get site")
    repository.commit(compose("Commit two"))
    user.type("persysctl workload redeploy site --wait")
    user.visit(user.git, "Commit two")


def break_and_find_out_why(user: User) -> None:
    """A typing error in the command: httpdd. The container exits, and every command leads to the cause."""
    user.type("sed 's/exec httpd/exec httpdd/' web.yaml >broken.yaml")
    user.type("persysctl plan -f broken.yaml", code=1)
    shown = user.type("persysctl apply -f broken.yaml --wait", code=1)
    assert "httpdd" in shown
    assert "persysctl" in shown.partition("httpdd")[2], "it names the next command"
    assert "httpdd: not found" in user.type("persysctl workload get web")
    assert "httpdd: not found" in user.type("persysctl logs web")
    assert "WorkloadFailed" in user.type("persysctl events --workload web")
    user.type("persysctl explain web")
    assert "persysctl logs web" in user.type("persysctl doctor", code=1)


def roll_back(user: User) -> None:
    assert "web: Running" in user.type("persysctl apply -f web.yaml --wait")
    user.visit(user.web, "Hello")


def start_another_node(user: User, other_id: str, *, directory: str, scheduler: str) -> None:
    """An agent as a background job of the shell, as another server would run it."""
    variables = {
        "PERSYS_NODE_ID": other_id,
        "PERSYS_GRPC_PORT": str(free_port()),
        "PERSYS_METRICS_PORT": str(free_port()),
        "PERSYS_STATE_PATH": f"{directory}/agent.db",
        "PERSYS_STORAGE_LOCAL_ROOT": f"{directory}/volumes",
        "PERSYS_TLS_CA": f"{directory}/ca.crt",
        "PERSYS_TLS_CERT": f"{directory}/agent.crt",
        "PERSYS_TLS_KEY": f"{directory}/agent.key",
    }
    agent = " ".join(f"{name}={value}" for name, value in variables.items()) + " persys-agent"
    user.type(f"mkdir {directory}")
    user.type(f"token=$(persysctl token create --role agent --node {other_id} --ttl 10m)")
    user.type(f"{agent} join --config {directory}/agent.yaml {scheduler} $token")
    user.type(f"{agent} --config {directory}/agent.yaml >{directory}/agent.log 2>&1 &")
    ready = f"persysctl node list -o name --status Ready | grep -qx {other_id}"
    user.type(f"until {ready}; do sleep 1; done", within=MOVE_SECONDS)


def lose_a_node(user: User, other_id: str) -> None:
    """A workload on a node whose agent is killed runs on the other node within minutes."""
    user.type(f"persysctl node cordon {user.node_id}")
    user.write("mobile.yaml", MOBILE.format(image=user.image))
    user.type("persysctl apply -f mobile.yaml --wait")
    assert other_id in user.type("persysctl workload list")
    user.type(f"persysctl node uncordon {user.node_id}")

    user.type("kill -9 %1")
    moved = f"persysctl workload list | grep mobile | grep Running | grep -qE '{user.node_id}( |$)'"
    user.type(f"until {moved}; do sleep 1; done", within=MOVE_SECONDS)
    assert "NotReady" in user.type(f"persysctl node get {other_id}")
    assert "NodeNotReady" in user.type(f"persysctl events --node {other_id}")
    user.visit(user.web, "Hello")


def upgrade(user: User, *commands: str, old: str, new: str) -> None:
    """No container is restarted, and each request during the upgrade is answered."""
    assert old in user.type("persysctl version")
    before = sorted(inspect(container_ids(user.node_id)))
    requests = subprocess.Popen(
        [
            "sh",
            "-c",
            f"while curl -sf --max-time 20 http://127.0.0.1:{user.web}/; do sleep 0.2; done",
        ],
        stdout=subprocess.DEVNULL,
    )
    try:
        for command in commands:
            user.type(command, within=INSTALL_SECONDS)
        ready = (
            f"persysctl node list -o wide | grep {user.node_id} | grep -w Ready | grep -qF '{new}'"
        )
        user.type(f"until {ready}; do sleep 1; done", within=MOVE_SECONDS)
        assert requests.poll() is None, "a request got no answer"
    finally:
        requests.kill()
        requests.wait(60)
    assert new in user.type("persysctl version")
    assert sorted(inspect(container_ids(user.node_id))) == before
