"""The requirements of a Compose file, and unsupported keys with their lines."""

from textwrap import dedent

import pytest

from builders import a_workload
from persys.core.placement.requirements import holds_data, requirements_of
from persys.errors import InvalidError
from persys.model import feature
from persys.model.placement import HostPort
from persys.model.spec import Port, RestartPolicy, StackNeeds
from persys.wire.compose.compose_file import StackFile, read_inline, read_resolved
from persys.wire.control.spec_decode import workload_spec
from persys.wire.gen.control.v1 import control_pb2 as pb


def a_stack(services: str, rest: str = "", **env: str) -> StackFile:
    indented = "\n".join("  " + line for line in dedent(services).strip().splitlines())
    return read_inline(f"services:\n{indented}\n{dedent(rest)}", env)


def a_service(parts: str, **env: str) -> StackFile:
    lines = "\n".join("  " + line for line in dedent(parts).strip().splitlines())
    return a_stack(f"web:\n  image: nginx\n{lines}", **env)


@pytest.mark.parametrize(
    ("written", "ports"),
    [
        ('["80"]', ()),
        ('["8080:80"]', (Port(80, 8080),)),
        ('["127.0.0.1:8080:80/udp"]', (Port(80, 8080, "udp"),)),
        ('["[::1]:8080:80"]', (Port(80, 8080),)),
        ('["8000-8001:80-81"]', (Port(80, 8000), Port(81, 8001))),
        ('["8000-8009:80"]', ()),
        ("[{target: 80, published: 8080}]", (Port(80, 8080),)),
        ('[{target: 53, published: "53", protocol: udp}]', (Port(53, 53, "udp"),)),
        (
            '["${PORT}:80", "${OTHER:-9000}:90", "$PORT:91"]',
            (Port(80, 1), Port(90, 9000), Port(91, 1)),
        ),
    ],
)
def test_host_ports_are_found(written: str, ports: tuple[Port, ...]) -> None:
    assert a_service(f"ports: {written}", PORT="1").needs.ports == ports


@pytest.mark.parametrize(
    ("parts", "cpu", "memory"),
    [
        ("cpus: 0.5\nmem_limit: 64m", 500, 64),
        ('deploy: {resources: {limits: {cpus: "1.5", memory: 1G}}}', 1500, 1024),
        ("deploy: {replicas: 3, resources: {limits: {memory: 100M}}}", 0, 300),
        ("deploy: {resources: {reservations: {memory: 1.5gb}}}", 0, 1536),
        ("mem_limit: ${MEMORY:-1048577}", 0, 2),
        ("mem_limit: 2k", 0, 1),
    ],
)
def test_limits_are_added_up(parts: str, cpu: int, memory: int) -> None:
    needs = a_service(parts).needs
    assert (needs.cpu_millicores, needs.memory_mb) == (cpu, memory)


@pytest.mark.parametrize(
    ("volumes", "holds"),
    [
        ('["data:/data"]', True),
        ('["/srv/data:/data"]', True),
        ('["/srv/data:/data:ro"]', False),
        ("[{type: volume, source: data, target: /d}]", True),
        ("[{type: bind, source: /srv, target: /d, read_only: true}]", False),
        ("[{type: tmpfs, target: /d}]", False),
    ],
)
def test_named_volumes_and_writable_binds_are_data(volumes: str, holds: bool) -> None:
    assert a_service(f"volumes: {volumes}").needs.holds_data is holds


@pytest.mark.parametrize(
    "parts",
    [
        "privileged: true",
        "privileged: ${P:-yes}",
        "cap_add: [NET_ADMIN]",
        "devices: [/dev/sda]",
        "network_mode: host",
        "pid: host",
        "security_opt: [apparmor=unconfined]",
    ],
)
def test_keys_that_affect_the_node_need_privileges(parts: str) -> None:
    assert a_service(parts).needs.privileged


@pytest.mark.parametrize(
    "parts",
    ["privileged: false", "cap_add: []", "security_opt: [no-new-privileges:true]", "pid: ''"],
)
def test_keys_that_do_not_affect_the_node_need_no_privileges(parts: str) -> None:
    assert not a_service(parts).needs.privileged


@pytest.mark.parametrize(
    ("parts", "named"),
    [
        ("build: .", "services.web.build"),
        ("container_name: web", "services.web.container_name"),
        ("extends: {service: base}", "services.web.extends"),
        ("env_file: [more.env]", "services.web.env_file"),
        ("network_mode: container:db", "services.web.network_mode"),
        ("volumes_from: ['container:db']", "services.web.volumes_from"),
        ("external_links: [db]", "services.web.external_links"),
        ("volumes: ['./here:/there']", "services.web.volumes"),
        ("volumes: [{type: npipe, source: a, target: b}]", "services.web.volumes"),
        ("labels: {persys.managed: 'no'}", "services.web.labels"),
        ("labels: ['persys.managed=no']", "services.web.labels"),
        ("deploy: {placement: {constraints: [a]}}", "services.web.deploy.placement"),
        ("deploy: {mode: global}", "services.web.deploy.mode"),
        ("mem_limit: much", "services.web.mem_limit"),
        ("ports: ['80:http']", "services.web.ports"),
        ("ports: ['99999:80']", "services.web.ports"),
        ("mem_limit: ${X:?must be said}", "must be said"),
        ("mem_limit: ${X", "services.web.mem_limit"),
    ],
)
def test_an_unsupported_key_is_refused_with_its_name_and_line(parts: str, named: str) -> None:
    with pytest.raises(InvalidError) as error:
        a_service(parts)
    assert named in str(error.value)
    assert "line 4" in str(error.value)


@pytest.mark.parametrize(
    ("rest", "named"),
    [
        ("volumes: {data: {external: true}}", "volumes.data.external"),
        ("networks: {front: {external: {name: x}}}", "networks.front.external"),
        ("volumes: {data: {name: shared}}", "volumes.data.name"),
        ("secrets: {key: {file: ./key}}", "secrets.key.file"),
        ("name: mine", "name"),
        ("include: [other.yaml]", "include"),
    ],
)
def test_external_objects_are_refused(rest: str, named: str) -> None:
    with pytest.raises(InvalidError) as error:
        a_stack("web: {image: nginx}", rest)
    assert error.value.field == named
    assert "line 3" in str(error.value)


LONG = "9" * 5000


@pytest.mark.parametrize(
    ("parts", "field"),
    [
        (f"cpus: '{LONG[:400]}'", "cpus"),
        (f"mem_limit: {LONG[:400]}g", "mem_limit"),
        ("mem_limit: 9999999999g", "mem_limit"),
        (f"restart: on-failure:{LONG}", "restart"),
        ("restart: on-failure:²", "restart"),
        (f"scale: '{LONG}'", "scale"),
        ("scale: ²", "scale"),
        (f"ports: ['{LONG}:80']", "ports"),
    ],
    ids=lambda text: text[:30],
)
def test_an_invalid_number_is_refused_with_its_field(parts: str, field: str) -> None:
    with pytest.raises(InvalidError, match=rf"services\.web\.{field}"):
        a_service(parts)


def test_a_score_that_is_too_large_needs_privileges() -> None:
    assert a_service(f"oom_score_adj: '{LONG}'").needs.privileged


def test_the_env_file_of_the_spec_is_allowed() -> None:
    assert a_service("env_file: .env").services[0].image == "nginx"


def test_a_service_counts_only_if_its_profile_is_active() -> None:
    services = "web: {image: nginx}\nextra: {image: nginx, mem_limit: 1g, profiles: [more]}"
    assert a_stack(services).needs.memory_mb == 0
    assert a_stack(services, COMPOSE_PROFILES="other,more").needs.memory_mb == 1024


def test_anchors_and_merges_are_followed() -> None:
    found = read_inline(
        dedent("""
            x-all: &all {image: nginx, mem_limit: 10m}
            services:
              one: {<<: *all}
              two: {<<: *all, mem_limit: 20m}
            """),
        {},
    )
    assert found.needs.memory_mb == 30


@pytest.mark.parametrize(
    "text",
    [
        "a: &a {b: 1}\nservices: {web: &w {<<: *w, image: x}}",
        "x: &x ["
        + "1," * 400
        + "]\nservices:\n"
        + "".join(f"  s{n}: {{image: i, ports: *x}}\n" for n in range(400)),
    ],
)
def test_a_file_that_expands_beyond_the_budget_is_refused(text: str) -> None:
    with pytest.raises(InvalidError):
        read_inline(text, {})


def test_a_file_of_a_repository_may_build_from_it_and_bind_it() -> None:
    text = """
        name: p
        services:
          web:
            build: {context: /co/web, dockerfile: Dockerfile}
            volumes: [{type: bind, source: /co/conf, target: /etc/web, read_only: true}]
            restart: on-failure:3
        volumes: {data: {name: p_data}}
        networks: {default: {name: p_default}}
        """
    found = read_resolved(dedent(text), project="p", inside="/co")
    assert found.services[0].is_built
    assert found.services[0].restart == RestartPolicy("on-failure", 3)
    assert [bind.path for bind in found.binds] == ["/co/conf"]
    assert found.volumes == ("data",)
    with pytest.raises(InvalidError, match="outside the repository"):
        read_resolved(dedent(text), project="p", inside="/co/we")


def test_a_volume_of_a_host_directory_counts_as_a_bind() -> None:
    rest = "volumes: {data: {driver_opts: {type: none, o: bind, device: /etc}}}"
    assert [bind.path for bind in a_stack("web: {image: nginx}", rest).binds] == ["/etc"]


def test_the_needs_of_a_stack_are_used_for_placement() -> None:
    text = "services: {web: {image: i, ports: ['8080:80'], mem_limit: 64m, cpus: 0.2, privileged: true}}"
    compose = pb.ComposeSpec(inline_yaml=text, volume_policy="Delete")
    spec, resources, _ = workload_spec(pb.WorkloadSpec(compose=compose))
    workload = a_workload(spec=spec, resources=resources)

    needs = requirements_of(workload)

    assert needs.host_ports == {HostPort(8080, "tcp")}
    assert (needs.resources.cpu_millicores, needs.resources.memory_mb) == (200, 64)
    assert f"feature:{feature.PRIVILEGED}" in needs.traits
    assert f"feature:{feature.COMPOSE}" in needs.traits
    assert not holds_data(workload)


def test_stated_resources_replace_those_of_the_file() -> None:
    compose = pb.ComposeSpec(inline_yaml="services: {web: {image: i, mem_limit: 64m}}")
    requirements = pb.ResourceRequirements(memory_mb=512)
    _, resources, _ = workload_spec(pb.WorkloadSpec(compose=compose, resources=requirements))
    assert resources.memory_mb == 512


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("git_repo", "http://example.org/a.git"),
        ("git_repo", "ext::sh -c x"),
        ("git_repo", "/srv/a.git"),
        ("git_repo", "https://me:s3cret@example.org/a.git"),
        ("git_ref", "--upload-pack=x"),
        ("git_path", "../up"),
        ("git_path", "/etc"),
        ("git_path", ".git/config"),
        ("git_credential", "../x"),
        ("volume_policy", "Burn"),
    ],
)
def test_values_that_are_unsafe_for_git_are_refused(field: str, value: str) -> None:
    compose = pb.ComposeSpec(git_repo="https://example.org/a.git")
    setattr(compose, field, value)
    with pytest.raises(InvalidError) as error:
        workload_spec(pb.WorkloadSpec(compose=compose))
    assert error.value.field == f"spec.compose.{field}"
    assert "s3cret" not in str(error.value)


@pytest.mark.parametrize(
    "repository",
    ["https://example.org/a.git", "ssh://git@example.org:22/a.git", "git@example.org:a/b.git",
     "file:///srv/a.git"],
)  # fmt: skip
def test_repositories_over_https_ssh_and_files_are_accepted(repository: str) -> None:
    workload_spec(pb.WorkloadSpec(compose=pb.ComposeSpec(git_repo=repository)))


@pytest.mark.parametrize("name", ["DOCKER_HOST", "COMPOSE_FILE", "1ST", "A-B"])
def test_variables_that_configure_compose_are_refused(name: str) -> None:
    compose = pb.ComposeSpec(inline_yaml="services: {web: {image: i}}", env={name: "x"})
    with pytest.raises(InvalidError):
        workload_spec(pb.WorkloadSpec(compose=compose))


def test_a_file_without_requirements_has_no_needs() -> None:
    assert a_stack("web: {image: nginx}").needs == StackNeeds()
