"""YAML within limits: hostile texts are refused in bounded time, at every place that reads YAML."""

import time
from base64 import b64encode
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from persys.agent.credentials import Credentials
from persys.core import bounded_yaml
from persys.core.agent.cloud_init import seed
from persys.core.bounded_yaml import YamlError, YamlLimits
from persys.errors import RefusedError
from persys.gateway.upstream.config import read_clusters
from persys.model.ids import WorkloadId
from persys.model.spec import CloudInit, VMSpec
from persys.wire.agent import messages as agent_messages
from persys.wire.compose.compose_file import read_resolved
from persys.wire.control.spec_decode import workload_spec
from persys.wire.gen.agent.v1 import agent_pb2
from persys.wire.gen.control.v1 import control_pb2
from persys.wire.specfile.parser import FILE_LIMITS, read_spec_file

CPU_SECONDS_MAX = 5.0  # refused within milliseconds; the limit leaves room for a slow machine
NAMES = "abcdefghij"


def _doubled(first: str, form: str) -> str:
    """Ten anchors, each of which names the one before ten times."""
    lines = [f"a: &a {first}"]
    for before, name in pairwise(NAMES):
        lines.append(f"{name}: &{name} " + form % ", ".join([f"*{before}"] * 10))
    return "\n".join(lines) + "\n"


HOSTILE = {
    "billion laughs": _doubled("[x, x]", "[%s]"),
    "merge keys": _doubled("{x: 1, y: 2}", "{<<: [%s]}"),
    "merge keys below keys": _doubled("{x: 1}", "{k: {<<: [%s]}}"),
    "an alias of itself": "a: &a {b: *a}",
    "a merge of itself": "a: &a {<<: *a}",
    "a deep list": "a: " + "[" * 50_000,
    "deep mappings": "a: " + "{a: " * 50_000,
    "deep block lists": "a:\n  " + "- " * 50_000,
    "deep complex keys": "? " * 50_000,
    "a duplicate key": "a: 1\na: 2\n",
    "an undefined alias": "a: *nothing",
    "a control character": "a: \x00",
    "half of a surrogate pair": "a: \ud800",
    "not closed": "a: [b, {c: d",
}
LONG_NUMBERS = {
    "decimal": "a: " + "9" * 10_000,
    "sexagesimal": "a: " + ":".join(["1"] * 50_000),
    "hexadecimal": "a: 0x" + "f" * 100_000,
}


def _compose(text: str) -> object:
    spec = control_pb2.WorkloadSpec(compose=control_pb2.ComposeSpec(inline_yaml=text))
    return workload_spec(spec)


def _vm(field: str) -> Callable[[str], object]:
    def read(text: str) -> object:
        cloud_init = control_pb2.CloudInitConfig(**{field: text})
        machine = control_pb2.VMSpec(vcpus=1, memory_mb=512, cloud_init=cloud_init)
        return workload_spec(control_pb2.WorkloadSpec(vm=machine))

    return read


def _agent_compose(text: str) -> object:
    encoded = b64encode(text.encode(errors="replace")).decode()
    compose = agent_pb2.ComposeSpec(compose_yaml=encoded, project_name="a")
    spec = agent_pb2.WorkloadSpec(compose=compose)
    return agent_messages.apply(
        agent_pb2.ApplyWorkloadRequest(
            id="a", desired_state=agent_pb2.DESIRED_STATE_RUNNING, spec=spec
        )
    )


def _seed(text: str) -> object:
    machine = VMSpec(1, 512, name="web", os_image="debian-12")
    return seed(WorkloadId("a"), replace(machine, cloud_init=CloudInit(meta_data=text)), [])


READERS: dict[str, Callable[[str], object]] = {
    "load": bounded_yaml.load,
    "load_texts": bounded_yaml.load_texts,
    "compose": bounded_yaml.compose,
    "spec file": read_spec_file,
    "Compose file at the scheduler": _compose,
    "meta_data at the scheduler": _vm("meta_data"),
    "network_config at the scheduler": _vm("network_config"),
    "Compose file at the agent": _agent_compose,
    "resolved Compose file": lambda text: read_resolved(text, project="p", inside=""),
    "cloud-init seed": _seed,
}


def _refused_quickly(read: Callable[[str], object], text: str) -> RefusedError:
    started_at = time.process_time()
    with pytest.raises(RefusedError) as refused:
        read(text)
    assert time.process_time() - started_at < CPU_SECONDS_MAX
    return refused.value


@pytest.mark.parametrize("read", READERS.values(), ids=READERS.keys())
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_every_reader_refuses_hostile_yaml_quickly(
    text: str, read: Callable[[str], object]
) -> None:
    try:
        _refused_quickly(read, text)
    except UnicodeEncodeError:  # protobuf carries no such text
        assert "\ud800" in text


@pytest.mark.parametrize("suffix", [".yaml", ".json"])
def test_a_hostile_credential_file_is_refused(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"registry{suffix}"
    path.write_text(HOSTILE["merge keys"])
    path.chmod(0o600)

    _refused_quickly(Credentials(tmp_path).get, "registry")


def test_a_hostile_cluster_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "clusters.yaml"
    path.write_text(HOSTILE["billion laughs"])

    _refused_quickly(lambda text: read_clusters(Path(text)), str(path))


@pytest.mark.parametrize("text", LONG_NUMBERS.values(), ids=LONG_NUMBERS.keys())
def test_a_number_that_is_too_long_is_refused_unread(text: str) -> None:
    assert "at most 64 characters" in str(_refused_quickly(bounded_yaml.load, text))


def test_a_text_over_the_limit_of_bytes_is_refused() -> None:
    err = _refused_quickly(bounded_yaml.load, "a: '" + "x" * (1024 * 1024) + "'")

    assert "larger than 1048576 bytes" in str(err)


def test_the_limit_of_values_counts_expanded_aliases() -> None:
    text = "a: &a [1, 2]\nb: [*a, *a]\n"  # 1 + 1 + 3 + 1 + 1 + 3 + 3

    bounded_yaml.check(text, YamlLimits(nodes_max=13))
    with pytest.raises(YamlError, match="more than 12 values"):
        bounded_yaml.check(text, YamlLimits(nodes_max=12))


def test_an_error_names_the_path_and_the_line() -> None:
    with pytest.raises(YamlError) as refused:
        bounded_yaml.load("a:\n  - b: 1\n    b: 2\n")

    assert (refused.value.field, refused.value.line) == ("a[0].b", 3)
    assert str(refused.value) == "line 3: a[0].b: given twice"


def test_more_documents_than_allowed_are_refused() -> None:
    with pytest.raises(YamlError, match="more than one YAML document"):
        bounded_yaml.load("a: 1\n---\nb: 2\n")


def test_ordinary_anchors_and_merge_keys_are_followed() -> None:
    text = "base: &base {image: nginx, restart: always}\nweb: {<<: *base, image: caddy}\n"

    assert bounded_yaml.load(text) == {
        "base": {"image": "nginx", "restart": "always"},
        "web": {"image": "caddy", "restart": "always"},
    }


def test_a_spec_file_may_hold_thousands_of_workloads() -> None:
    text = "".join(
        f"---\nid: w{number}\ncontainer: {{image: nginx}}\nresources: {{memory_mb: 64}}\n"
        for number in range(2_000)
    )

    assert len(read_spec_file(text, FILE_LIMITS)) == 2_000


text = st.text(st.characters(min_codepoint=32, max_codepoint=126) | st.sampled_from("äß€\n"))
plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64) | text,
    lambda inner: st.lists(inner) | st.dictionaries(text, inner),
    max_leaves=20,
)


@given(st.dictionaries(text, plain))
def test_dumped_yaml_loads_again(value: dict[str, object]) -> None:
    assert bounded_yaml.load(bounded_yaml.dump(value)) == value
