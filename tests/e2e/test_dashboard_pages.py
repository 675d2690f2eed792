"""Lists, deploy and nodes in the dashboard, with real Docker, and what each role is offered.

One browser and one cluster for all tests; the tests of roles have a scheduler with TLS and without nodes.
"""

import json
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import grpc
import pytest

import compose_binaries
from builders import a_workload
from e2e.browser import DESKTOP, PHONE, Browser, a_browser
from e2e.cluster import Cluster, a_container
from e2e.gateways import Gateway, a_guarded_gateway
from persys.client import SchedulerClient
from persys.model.placement import Resources
from persys.model.spec import ContainerSpec
from persys.wire.agent.messages import apply_message
from persys.wire.gen.agent.v1.agent_pb2_grpc import AgentServiceStub
from persys.wire.gen.control.v1 import control_pb2 as pb

Persysctl = Callable[..., subprocess.CompletedProcess[str]]

HOSTILE = "<img src=x onerror=\"document.title='hacked'\">"
LISTS = (
    "services",
    "nodepools",
    "federation",
    "volumes",
    "images",
    "secrets",
    "drifts",
    "orphans",
    "suggestions",
    "tokens",
    "audit",
)
SOURCES = ("container", "vm", "compose", "git", "template")
PAGES = ("more", *LISTS, *(f"deploy?from={source}" for source in SOURCES))
SERVICE = """\
kind: service
id: {name}
ports: [{{name: http, port: 80, protocol: http}}]
members: [{{labels: {{app: {name}}}}}]
"""
POOL = """\
kind: nodepool
pool_id: {name}
provider: exec
sizes: [{{name: small, cpu_millicores: 1000, memory_mb: 512, disk_gb: 1, hour_price: 0.05}}]
max: 2
spend_per_hour_max: 0.1
options: {{programs: lab}}
"""


@pytest.fixture(scope="module")
def cluster_settings() -> dict[str, dict[str, str]]:
    return {
        "scheduler": {
            "SCHEDULER_HEARTBEAT_INTERVAL": "1s",
            "SCHEDULER_MISSING_GRACE_PERIOD": "1s",
        },
        "agent": {
            "PERSYS_STOP_GRACE": "1s",
            "PERSYS_COMPOSE_ENABLED": "true",
            "PERSYS_COMPOSE_BINARY": compose_binaries.V2,
        },
    }


@pytest.fixture(scope="module")
def gateway(cluster: Cluster, module_directory: Path) -> Iterator[Gateway]:
    created = Gateway(module_directory, {"main": cluster.target})
    created.process.set("PERSYS_GATEWAY_USAGE_INTERVAL", "1s")
    try:
        created.process.start()
        yield created
    finally:
        created.process.close()


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    with a_browser(arguments=("--ignore-certificate-errors",)) as created:
        yield created


@pytest.fixture
def browser(window: Browser, gateway: Gateway) -> Iterator[Browser]:
    window.address = gateway.address
    with window.used() as created:
        yield created


@pytest.fixture
def name(names: Callable[[int], list[str]]) -> str:
    return names(1)[0]


def run(persysctl: Persysctl, *words: str) -> None:
    done = persysctl(*words)
    assert done.returncode == 0, done.stdout + done.stderr


# Lists.


def test_a_secret_is_put_and_deleted_and_its_value_is_not_shown(
    browser: Browser, name: str
) -> None:
    browser.open("secrets")
    browser.press("Put a secret …")
    browser.fill("#secret-name", name)
    browser.fill("#secret-value", "hunter2")
    browser.press("Put", "dialog")
    browser.until_text(name, "table")
    assert "hunter2" not in browser.driver.page_source

    browser.fill("[data-filter]", name)
    browser.until_text("1 ", "#found")
    browser.press("Delete", "table")
    browser.press("Delete", "dialog")

    browser.until_text(f"{name} is deleted.", ".notice")
    browser.until_no_text(name, "table")


def test_a_volume_of_a_stopped_workload_is_listed_and_deleted(
    browser: Browser, cluster: Cluster, demo_image: str, name: str
) -> None:
    spec = a_container(demo_image, "sleep", "3600")
    volume = pb.ManagedVolumeSpec(name="data", mount_path="/data", retain_policy="Retain")
    spec.container.managed_volumes.append(volume)
    cluster.apply(name, spec)
    cluster.wait_for(name, "Running")
    browser.open(f"volumes?q={name}")
    browser.until_text("data", "table")
    cluster.client.delete(name)
    cluster.wait_until_gone([name])

    browser.press("Delete", "table")
    browser.press("Delete", "dialog")

    browser.until_text("Nothing matches.")


def test_a_service_shows_its_endpoints_and_the_members_left_out(
    browser: Browser,
    cluster: Cluster,
    persysctl: Persysctl,
    sleeper: pb.WorkloadSpec,
    name: str,
    tmp_path: Path,
) -> None:
    file = tmp_path / "service.yaml"
    file.write_text(SERVICE.format(name=name))
    run(persysctl, "apply", "-f", str(file))
    spec = pb.WorkloadSpec()
    spec.CopyFrom(sleeper)
    spec.metadata["app"] = name
    cluster.apply(name, spec)
    cluster.wait_for(name, "Running")
    browser.open(f"services?q={name}")
    browser.until_text("80/http", "table")

    browser.open(f"services/{name}")
    browser.until_text("Members that get no requests")
    browser.until(lambda: bool(browser.find_all(f"table a[href='#/workloads/{name}']")), name)
    browser.press("Delete")
    browser.press("Delete", "dialog")

    browser.until_text("The service does not exist")
    cluster.client.delete(name)


def test_a_node_pool_shows_its_plan_and_is_paused_resumed_and_deleted(
    browser: Browser, persysctl: Persysctl, name: str, tmp_path: Path
) -> None:
    file = tmp_path / "pool.yaml"
    file.write_text(POOL.format(name=name))
    run(persysctl, "nodepool", "create", "-f", str(file))
    browser.open("nodepools")
    browser.until_text("exec", "table")
    browser.open(f"nodepools/{name}")
    browser.until_text("No machines.")

    browser.press("Pause")
    browser.until_text("Paused", "main > p .status")
    browser.press("Resume")
    browser.until_no_text("Paused", "main > p .status")
    assert browser.axe_problems() == []
    browser.press("Delete")
    browser.press("Delete", "dialog")

    browser.until_text("The node pool does not exist")


def test_an_orphan_shows_its_spec_before_it_is_adopted(
    browser: Browser, cluster: Cluster, demo_image: str, name: str
) -> None:
    spec = ContainerSpec(demo_image, command=("sleep", "3600"), init=True, env={"TEXT": HOSTILE})
    workload = a_workload(name, spec=spec, resources=Resources(30, 16))
    with grpc.insecure_channel(f"127.0.0.1:{cluster.agent_port}") as channel:
        AgentServiceStub(channel).ApplyWorkload(apply_message(workload, 7), timeout=30)
    browser.open(f"orphans?q={name}")
    browser.until_text("1 ", "#found")

    browser.press("Adopt", "table")
    browser.until_text(HOSTILE, "dialog pre")
    assert browser.axe_problems() == []
    browser.press("Adopt", "dialog")

    browser.until_text("Nothing matches.")
    cluster.wait_for(name, "Running")
    cluster.client.delete(name)


# Deploy.


def test_a_container_is_deployed_from_the_form(
    browser: Browser, cluster: Cluster, demo_image: str, name: str
) -> None:
    browser.open("deploy")
    browser.fill("#field-env", "BROKEN")
    browser.until_text("invalid variable 'BROKEN': expected NAME=VALUE")
    browser.fill("#field-env", f"TEXT={HOSTILE}")
    browser.fill("#field-id", name)
    browser.fill("#field-image", demo_image)
    browser.fill("#field-command", "sleep\n3600")
    browser.fill("#field-memory", "16")
    browser.press("Preview")
    browser.until_text("1 create. Nothing was written.")
    assert not cluster.knows(name)
    browser.press("Apply 1 workload")

    browser.until_text("Running", "main li .status")
    found = cluster.client.get_workload(name).spec
    assert found.container.env["TEXT"] == HOSTILE
    assert browser.script("return document.title") == "Deploy · Persys"
    cluster.client.delete(name)


def test_a_failed_deployment_shows_the_reason(
    browser: Browser, cluster: Cluster, name: str
) -> None:
    browser.open("deploy")
    browser.fill("#field-id", name)
    browser.fill("#field-image", "missing.invalid/none:1")
    browser.press("Preview")
    browser.press("Apply 1 workload")

    browser.until_text("Failed", "main li .status")
    browser.until_text("missing.invalid", "main li .message")
    cluster.client.delete(name)


def test_a_compose_file_becomes_a_stack(
    browser: Browser, cluster: Cluster, demo_image: str, name: str, tmp_path: Path
) -> None:
    file = tmp_path / f"{name}.yaml"
    file.write_text(
        f"services:\n  web:\n    image: {demo_image}\n    command: sleep 3600\n    init: true\n"
    )
    browser.open("deploy?from=compose")
    browser.until(lambda: bool(browser.find_all("#compose-file")), "a field for the file")
    browser.find("#compose-file").send_keys(str(file))
    browser.press("Preview")
    browser.press("Apply 1 workload")

    browser.until_text("Running", "main li .status")
    assert cluster.client.get_workload(name).type == "compose"
    cluster.client.delete(name)


def test_a_repository_becomes_a_spec_and_a_template_fills_it(browser: Browser, name: str) -> None:
    spec = "return document.querySelector('#spec').value"
    browser.open("deploy?from=git")
    browser.fill("#field-id", name)
    browser.fill("#field-repository", "https://git.example.com/a.git")
    browser.until(lambda: "git_repo: https://git.example.com/a.git" in browser.script(spec), "spec")
    browser.press("Preview")
    browser.until_text("1 create")

    browser.open("deploy?from=template")
    browser.press("Use container")
    browser.until(lambda: "image: nginx" in browser.script(spec), "the template")
    browser.press("Preview")
    browser.until_text("1 create")


# Nodes.


def test_a_node_shows_its_history_and_data_and_its_taints_are_changed(
    browser: Browser, cluster: Cluster
) -> None:
    browser.open(f"nodes/{cluster.node_id}")
    browser.until_text("Usage of the last 24 hours")
    browser.until(lambda: len(browser.find_all(".chart .uplot")) == 5, "curves")
    browser.until_text("No images.")

    browser.press("Taints …")
    browser.fill("#taints", "gpu=yes:NoSchedule")
    browser.press("Save", "dialog")
    browser.until_text("gpu=yes", "main .tag")
    browser.press("Taints …")
    browser.fill("#taints", "")
    browser.press("Save", "dialog")

    browser.until_no_text("gpu=yes", ".grid")
    assert browser.axe_problems() == []


def test_a_drain_that_is_blocked_names_the_workload_and_is_cancelled(
    browser: Browser, cluster: Cluster, demo_image: str, name: str
) -> None:
    cluster.apply(name, a_container(demo_image, "sleep", "3600"))
    cluster.wait_for(name, "Running")
    browser.open(f"nodes/{cluster.node_id}")
    browser.press("Drain …")
    browser.press("Drain", "dialog")
    browser.until_text("1 workload remaining")
    browser.until_text(name, "section[aria-live]")

    browser.press("Cancel drain")

    browser.until_text("Ready", "main > p .status")
    assert cluster.status(name) == "Running"
    cluster.client.delete(name)


# Every page.


def test_every_page_meets_wcag_and_fits_a_phone(browser: Browser) -> None:
    for page in (*PAGES, "", "nodes", "events", "apply", "access"):
        for scheme in ("light", "dark"):
            browser.prefer(scheme)
            browser.resize(DESKTOP)
            browser.open(page)
            browser.until_text("Live", "#freshness")
            browser.until_no_text("Loading …")
            assert browser.axe_problems() == [], (page, scheme)
        assert browser.accessibility_problems() == [], page
        browser.resize(PHONE)
        wide = browser.script("return document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0, page


# Roles.


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Gateway, SchedulerClient]]:
    with a_guarded_gateway(tmp_path_factory.mktemp("guarded")) as created:
        yield created


@pytest.fixture
def signed_in(
    window: Browser, guarded: tuple[Gateway, SchedulerClient]
) -> Iterator[Callable[[str], Browser]]:
    """Signs in with a token of a role."""
    gateway, admin = guarded
    window.address = gateway.address
    with window.used() as browser:

        def sign_in(role: str) -> Browser:
            secret = admin.create_token(HOSTILE[:40], role).secret
            browser.open("access")
            browser.fill("#token", secret)
            browser.press("Sign in")
            browser.until_text("Live", "#freshness")
            return browser

        yield sign_in


def buttons(browser: Browser) -> set[str]:
    return {str(one.text) for one in browser.find_all("main button")}


@pytest.mark.parametrize(
    ("role", "offered"),
    [
        ("viewer", {"secrets": False, "tokens": False, "deploy": False}),
        ("operator", {"secrets": True, "tokens": False, "deploy": True}),
        ("admin", {"secrets": True, "tokens": True, "deploy": True}),
    ],
)
def test_a_role_is_offered_what_it_may_do(
    signed_in: Callable[[str], Browser], role: str, offered: dict[str, bool]
) -> None:
    browser = signed_in(role)

    browser.open("more")
    browser.until_text("Secrets")
    assert bool(browser.find_all("main a[href='#/tokens']")) is offered["tokens"]
    assert bool(browser.find_all("main a[href='#/audit']")) is offered["tokens"]
    browser.open("secrets")
    browser.until_no_text("Loading …")
    assert ("Put a secret …" in buttons(browser)) is offered["secrets"]
    browser.open("tokens")
    browser.until_no_text("Loading …")
    assert ("lacks the permission" in browser.text()) is not offered["tokens"]
    browser.open("nodes")
    browser.until_text("No node has joined yet.")
    assert ("Add a node" in browser.text()) is offered["tokens"]
    browser.open("deploy")
    browser.fill("#field-id", "web")
    browser.fill("#field-image", "nginx")
    browser.press("Preview")
    browser.until_text("1 create")
    assert ("Apply 1 workload" in buttons(browser)) is offered["deploy"]


def test_a_token_is_created_shown_once_and_revoked(
    signed_in: Callable[[str], Browser],
) -> None:
    browser = signed_in("admin")
    browser.open("tokens")
    browser.until_text(HOSTILE[:40], "table")
    assert browser.find_all("table img") == []

    browser.press("Create a token …")
    browser.fill("#token-name", "bob")
    browser.choose("#token-role", "operator")
    browser.press("Create", "dialog")
    browser.until_text("psk_", "#new-token")
    secret = browser.text("#new-token code")
    browser.press("Hide")
    browser.until(lambda: secret not in browser.driver.page_source, "no secret")
    browser.fill("[data-filter]", "bob")
    browser.until_text("1 of ", "#found")
    browser.press("Revoke", "table")
    browser.press("Revoke", "dialog")

    browser.until_text("Nothing matches.")
    browser.open("audit")
    browser.until_text("RevokeToken", "table")


def test_a_suggestion_is_rejected_by_an_operator_and_its_markup_is_text(
    signed_in: Callable[[str], Browser], guarded: tuple[Gateway, SchedulerClient], name: str
) -> None:
    gateway, admin = guarded
    admin.apply(pb.ApplyWorkloadRequest(workload_id=name, spec=a_container("any")))
    secret = admin.create_token("policy", "operator", deeds=["suggest"]).secret
    suggestion = {
        "suggestion_id": f"s-{name}",
        "policy_id": "p",
        "target_workload": name,
        "action_type": "AUTOMATION_ACTION_DELETE_WORKLOAD",
        "reason": HOSTILE,
    }
    request = urllib.request.Request(
        f"{gateway.address}/api/v1/suggestions",
        json.dumps({"suggestion": suggestion}).encode(),
        {"Authorization": f"Bearer {secret}", "Content-Type": "application/json"},
    )
    with (
        suppress(urllib.error.HTTPError),  # the decision is a refusal for now
        urllib.request.urlopen(request, context=ssl._create_unverified_context(), timeout=30),
    ):
        pass
    browser = signed_in("operator")
    browser.open(f"suggestions?q={name}")
    browser.until_text(HOSTILE, "table")
    assert browser.find_all("table img") == []

    browser.press("Reject", "table")

    browser.until_text("rejected", "table")
    browser.until_no_text("Reject", "td:last-child")
    assert admin.get_workload(name).desired_state == "Running"
