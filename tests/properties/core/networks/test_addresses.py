"""Addresses are never assigned twice, whatever is assigned and released."""

from hypothesis import given
from hypothesis import strategies as st

from persys.core.networks.addresses import bridge_address, next_address

SUBNET = "10.128.0.0/22"
SLICES = st.lists(
    st.integers(0, 63).map(lambda number: f"10.128.{number // 16}.{number % 16 * 16}/28"),
    min_size=1,
    max_size=3,
    unique=True,
)
# True: assign; False: release the oldest.
STEPS = st.lists(st.booleans(), max_size=60)


@given(SLICES, STEPS)
def test_an_address_has_one_member_and_is_never_that_of_the_bridge(
    slices: list[str], steps: list[bool]
) -> None:
    taken: list[str] = []
    for assigns in steps:
        if not assigns:
            taken = taken[1:]
        elif (address := next_address(SUBNET, slices, taken)) is not None:
            assert address not in taken
            assert address != bridge_address(SUBNET, slices)
            taken.append(address)
        else:
            assert len(taken) >= 16 * len(slices) - 3
