"""A set of the model, encoded as a message, is decoded to the same policies and template."""

from hypothesis import given
from hypothesis import strategies as st

from persys.model.sets import (
    OnFailure,
    ScalePolicy,
    SetId,
    UpdateOrder,
    UpdatePolicy,
    WorkloadSet,
)
from persys.wire.control.sets import (
    every_node_of,
    scale_policy_of,
    set_message,
    template_of,
    update_policy_of,
)
from persys.wire.control.spec_decode import parse_spec
from persys.wire.control.spec_encode import spec_message
from properties.wire.test_round_trips import NOW, containers, maps, resources

numbers = st.integers(1, 10_000)
updates = st.builds(
    UpdatePolicy,
    numbers,
    st.one_of(st.none(), st.sampled_from(UpdateOrder)),
    st.integers(0, 3600),
    numbers,
    st.sampled_from(OnFailure),
    st.integers(0, 100),
    st.integers(0, 100),
)
scales = st.builds(
    ScalePolicy,
    numbers,
    numbers,
    cpu_percent=st.integers(0, 1000),
    memory_percent=st.integers(0, 1000),
    prometheus_url=st.sampled_from(["", "http://prometheus:9090"]),
    prometheus_query=st.text(max_size=9),
    prometheus_target=st.floats(0, 1e9),
    cooldown_seconds=numbers,
)


@given(updates, st.one_of(st.none(), scales), st.booleans(), containers(), resources, maps)
def test_a_set_is_decoded_from_its_message(
    update: UpdatePolicy,
    scale: ScalePolicy | None,
    every_node: bool,
    container: object,
    amounts: object,
    metadata: object,
) -> None:
    template = template_of(parse_spec(spec_message(container, amounts, metadata)))  # type: ignore[arg-type]
    record = WorkloadSet(
        SetId("web"), 0, 1, NOW, NOW, every_node=every_node, update=update, scale=scale
    )

    message = set_message(record, template)

    assert update_policy_of(message.update) == update
    assert (scale_policy_of(message.scale) if message.HasField("scale") else None) == scale
    assert every_node_of(message) is every_node
    assert template_of(parse_spec(message.template)) == template
    assert message.HasField("replicas") is not every_node
