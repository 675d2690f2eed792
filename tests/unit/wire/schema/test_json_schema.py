"""The schema of spec files agrees with the parser: same fields, same limits, and valid examples."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from persys.core.nodepools.checks import check_pool
from persys.errors import InvalidError
from persys.wire.control.nodepools import pool_of
from persys.wire.gen.control.v1 import control_pb2
from persys.wire.schema import json_schema, service_descriptions
from persys.wire.schema import set_job_descriptions as of_sets_and_jobs
from persys.wire.schema.descriptions import POOL, SIZE, SOFTWARE, WORKLOAD, Field
from persys.wire.schema.sections import SECTIONS, Section
from persys.wire.specfile import job_file, parser, pool_file, service_file, set_file
from persys.wire.specfile.parser import read_documents
from persys.wire.specfile.spec_documents import PoolDocument

ROOT = Path(__file__).parents[4]
SCHEMA = json_schema.document()
VALIDATOR = jsonschema.Draft7Validator(SCHEMA)
SPECS = [
    *sorted((ROOT / "examples").rglob("*.yaml")),
    *sorted((ROOT / "src" / "persys" / "examples").glob("*.yaml")),
]

# The fields that a mapping needs beside the one under test.
NEEDED: dict[str, dict[str, Any]] = {
    "ContainerSpec": {"image": "nginx"},
    "ComposeSpec": {},
    "VMSpec": {"vcpus": 1, "memory_mb": 256},
    "Port": {"container_port": 80},
    "VolumeMount": {"host_path": "/a", "container_path": "/b"},
    "ManagedVolumeSpec": {"name": "data", "mount_path": "/data"},
    "FileMount": {"path": "/etc/a"},
}
BESIDE: dict[tuple[str, str], dict[str, Any]] = {
    ("ComposeSpec", "git_ref"): {"git_repo": "https://git.example.com/a.git"},
    ("ComposeSpec", "git_path"): {"git_repo": "https://git.example.com/a.git"},
    ("ComposeSpec", "git_credential"): {"git_repo": "https://git.example.com/a.git"},
    ("ComposeSpec", "source_type"): {"git_repo": "https://git.example.com/a.git"},
    ("HealthCheck", "type"): {"port": 80},
    ("HealthCheck", "path"): {"port": 80},
    ("NetworkConfig", "gateway"): {"static_ip": "192.168.122.50"},
    ("PlacementRules", "anti_affinity"): {"group": "shop"},
    ("PlacementRules", "spread_over"): {"group": "shop"},
    ("PlacementRules", "offload_data"): {"offload": "when-full"},
    ("PlacementRules", "return"): {"offload": "when-full"},
    ("VMLogin", "user"): {"password_hash": "$6$salt$abcdefgh"},
}
A_STACK = {"inline_yaml": "services: {web: {image: nginx}}"}
A_POOL = {
    "kind": "nodepool",
    "pool_id": "burst",
    "provider": "ec2",
    "sizes": [{"name": "s", "cpu_millicores": 1000, "memory_mb": 1000, "hour_price": 0.1}],
    "max": 10,
    "spend_per_hour_max": 1.0,
}


A_SET = {
    "id": "web",
    "container": {"image": "nginx"},
    "kind": "set",
    "resources": {"cpu_millicores": 100, "memory_mb": 64},
}
A_JOB = {"id": "backup", "container": {"image": "nginx"}, "kind": "job"}
A_SERVICE = {
    "kind": "service",
    "id": "web",
    "ports": [{"port": 80, "protocol": "http"}],
    "members": [{"set": "web"}],
}
PROMETHEUS = {"url": "http://p", "query": "up", "target": 1}


def own_documents(name: str, value: Any) -> dict[str, Any]:
    """A set or job with one field of a mapping, by the name of the mapping and the field."""
    mapping, _, field = name.partition(".")
    match mapping:
        case "set":
            return {**A_SET, field: value}
        case "update":
            beside = {"canary": 1} if field == "bake" else {}
            return {**A_SET, "update": {**beside, field: value}}
        case "scale":
            replicas = {"replicas": value} if field == "min" and 0 < value <= 10_000 else {}
            scale = {"min": 1, "max": 10_000, "cpu": "70%", field: value}
            return {**A_SET, **replicas, "scale": scale}
        case "prometheus":
            return {**A_SET, "scale": {"max": 3, "prometheus": {**PROMETHEUS, field: value}}}
        case "job":
            return {**A_JOB, field: value}
        case "service":
            others = {
                key: one for key, one in A_SERVICE.items() if (key, field) != ("ports", "port")
            }
            return {**others, field: value}
        case "options":
            return {**A_JOB, "job": {field: value}}
        case _:
            return {**A_JOB, "schedule": {"cron": "0 3 * * *", field: value}}


OWN: dict[str, Mapping[str, Field]] = {
    "set": of_sets_and_jobs.SET,
    "update": of_sets_and_jobs.UPDATE,
    "scale": of_sets_and_jobs.SCALE,
    "prometheus": of_sets_and_jobs.PROMETHEUS,
    "job": of_sets_and_jobs.JOB,
    "options": of_sets_and_jobs.JOB_OPTIONS,
    "service": service_descriptions.SERVICE,
    "schedule": of_sets_and_jobs.SCHEDULE,
}
OWN_FIELDS = {
    f"{mapping}.{name}": field for mapping, fields in OWN.items() for name, field in fields.items()
}


def placed(section: Section, content: dict[str, Any]) -> dict[str, Any]:
    """A workload with this mapping at the place of the section."""
    if section.message == "ServicePort":
        return {**A_SERVICE, "ports": [{"port": 80, **content}]}
    if section.message == "ServiceSelector":
        beside = {} if {"set", "labels"} & content.keys() else {"set": "web"}
        return {**A_SERVICE, "members": [{**beside, **content}]}
    place = section.place.partition(",")[0]
    document: dict[str, Any] = {"id": "web"}
    at = document
    *parents, last = place.split(".")
    for parent in parents:
        message = {"container": "ContainerSpec", "vm": "VMSpec"}[parent]
        at[parent] = at = dict(NEEDED[message])
    at[last.removesuffix("[]")] = [content] if last.endswith("[]") else content
    if not document.keys() & {"container", "compose", "vm"}:
        document["container"] = {"image": "nginx"}
    return document


def filled(section: Section, name: str, value: Any) -> dict[str, Any]:
    message = section.message
    beside = BESIDE.get((message, name), {})
    if message == "ComposeSpec" and name != "git_repo" and "git_repo" not in beside:
        beside = A_STACK
    return placed(section, {**NEEDED.get(message, {}), **beside, name: value})


def accepted(document: Any) -> bool:
    """Whether the parser accepts it."""
    try:
        for found in read_documents(json.dumps(document)):
            if isinstance(found, PoolDocument):
                check_pool(pool_of(found.pool), "cluster")
    except InvalidError:
        return False
    return True


def of_workloads() -> list[Section]:
    return [one for one in SECTIONS if one.message and one.message != "MachineSize"]


EXAMPLES = [
    *(
        pytest.param(filled(section, name, field.example), id=f"{section.message}.{name}")
        for section in of_workloads()
        for name, field in section.fields.items()
    ),
    *(
        pytest.param({"id": "web", "container": {"image": "nginx"}, name: field.example}, id=name)
        for name, field in WORKLOAD.items()
        if name not in ("compose", "vm")
    ),
    pytest.param({"id": "web", "compose": WORKLOAD["compose"].example}, id="compose"),
    pytest.param(
        {"id": "web", "container": {"image": "nginx"}, "status": {"status": "Running"}}, id="status"
    ),
    pytest.param({**A_POOL, "status": {"paused": True}}, id="nodepool.status"),
    pytest.param({"id": "web", "vm": WORKLOAD["vm"].example}, id="vm"),
    *(
        pytest.param({**A_POOL, name: field.example}, id=f"nodepool.{name}")
        for name, field in POOL.items()
    ),
    *(
        pytest.param(own_documents(name, field.example), id=name)
        for name, field in OWN_FIELDS.items()
    ),
    pytest.param({**A_SET, "status": {"phase": "Steady"}}, id="set.status"),
]


@pytest.mark.parametrize("document", EXAMPLES)
def test_every_example_of_a_field_is_valid(document: dict[str, Any]) -> None:
    VALIDATOR.validate(document)

    assert accepted(document)


def bounds() -> Iterator[Any]:
    for section in of_workloads():
        for name in section.fields:
            schema = json_schema.field_schema(section.message, name)
            if schema.get("type") == "integer":
                for value in (schema["minimum"], schema["maximum"]):
                    yield pytest.param(section, name, value, id=f"{section.message}.{name}={value}")


@pytest.mark.parametrize(("section", "name", "value"), list(bounds()))
def test_numbers_are_accepted_up_to_the_limits_of_the_schema(
    section: Section, name: str, value: int
) -> None:
    outside = value - 1 if value in (0, 1) else value + 1

    assert accepted(filled(section, name, value))
    not_set = (("HealthCheck", "port", 0), ("ServiceSelector", "weight", 0))
    if (section.message, name, outside) not in not_set:
        assert not accepted(filled(section, name, outside))
    assert list(VALIDATOR.iter_errors(filled(section, name, outside)))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param(name, value, id=f"{name}={value}")
        for name, field in OWN_FIELDS.items()
        if isinstance(field.example, int)
        for value in (field.least, field.most)
    ],
)
def test_numbers_of_sets_and_jobs_are_accepted_up_to_their_limits(name: str, value: int) -> None:
    outside = value - 1 if value in (0, 1) else value + 1

    assert accepted(own_documents(name, value))
    assert not accepted(own_documents(name, outside))
    assert list(VALIDATOR.iter_errors(own_documents(name, outside)))


@pytest.mark.parametrize(
    "document",
    [
        {**A_SET, "revision_id": "r1"},
        {**A_JOB, "desired_state": "Stopped"},
        {**A_SET, "job": {}},
        {**A_SET, "scale": {"max": 3, "cpu": "a lot"}},
        {**A_SET, "update": {"order": "random"}},
        {**A_JOB, "schedule": {"timezone": "UTC"}},
        {**A_JOB, "job": {"fail_on": [0]}},
        {"container": {"image": "nginx"}},
        {"id": "web", "container": {"image": "nginx"}, "vm": {"vcpus": 1, "memory_mb": 1}},
        {"id": "web", "container": {"imge": "nginx"}},
        {"id": "web", "container": {}},
        {"id": "Web", "container": {"image": "nginx"}},
        {"id": "web", "container": {"image": "nginx", "ports": ["80:http"]}},
        {"id": "web", "container": {"image": "nginx", "volumes": ["data:/data"]}},
        {"id": "web", "container": {"image": "nginx", "health_check": "ftp:21"}},
        {"id": "web", "container": {"image": "nginx", "restart_policy": "sometimes"}},
        {"id": "web", "container": {"image": "nginx"}, "stop_after": "soon"},
        {**A_POOL, "max": 1001},
        {**A_POOL, "color": "red"},
    ],
)
def test_what_the_parser_refuses_is_invalid(document: dict[str, Any]) -> None:
    assert not accepted(document)
    assert list(VALIDATOR.iter_errors(document))


@pytest.mark.parametrize("path", SPECS, ids=[path.name for path in SPECS])
def test_the_example_files_are_valid(path: Path) -> None:
    for document in yaml.safe_load_all(path.read_text("utf-8")):
        if document is not None and "services" not in document:  # not a Compose file
            VALIDATOR.validate(document)


def test_every_field_of_the_contract_has_a_description() -> None:
    known = control_pb2.DESCRIPTOR.message_types_by_name
    for section in SECTIONS:
        if section.message:
            assert section.fields.keys() == set(known[section.message].fields_by_name)

    assert WORKLOAD.keys() == set(parser._FLAT)
    assert POOL.keys() == pool_file._FIELDS.keys() | {"kind"}
    assert SIZE.keys() == pool_file._SIZE_FIELDS.keys()
    assert SOFTWARE.keys() == {"url", "sha256"}


def test_every_key_of_services_has_a_description() -> None:
    assert set(service_descriptions.SERVICE) == {*service_file.KEYS, "kind"}


def test_every_key_of_sets_and_jobs_has_a_description() -> None:
    assert OWN["set"].keys() == set_file.KEYS.keys() | {"kind"}
    assert OWN["update"].keys() == set_file.UPDATE.keys()
    assert OWN["scale"].keys() == set_file.SCALE.keys()
    assert OWN["prometheus"].keys() == set_file.PROMETHEUS.keys()
    assert OWN["job"].keys() == job_file.KEYS.keys() | {"kind"}
    assert OWN["options"].keys() == job_file.JOB.keys()
    assert OWN["schedule"].keys() == job_file.SCHEDULE.keys()


def test_the_schema_itself_is_valid() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)
