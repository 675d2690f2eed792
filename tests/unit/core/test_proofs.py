"""Proofs of assignment need the key, and each is valid for one assignment."""

from hypothesis import given
from hypothesis import strategies as st

from builders import N1, N2, WEB
from persys.core.epochs import PROOF_BYTES, is_proven, prove
from persys.model.ids import NodeId, WorkloadId

KEY = "5a" * 32
names = st.from_regex(r"[a-z][a-z0-9-]{0,20}", fullmatch=True)


@given(names, names, st.integers(1, 2**53))
def test_a_proof_holds_for_its_own_assignment(workload: str, node: str, epoch: int) -> None:
    proof = prove(KEY, WorkloadId(workload), NodeId(node), epoch)

    assert len(proof) == PROOF_BYTES
    assert is_proven(KEY, WorkloadId(workload), NodeId(node), epoch, proof)


def test_a_proof_holds_for_nothing_else() -> None:
    proof = prove(KEY, WEB, N1, 7)

    assert not is_proven(KEY, WEB, N1, 8, proof)
    assert not is_proven(KEY, WEB, N2, 7, proof)
    assert not is_proven(KEY, WorkloadId("mail"), N1, 7, proof)
    assert not is_proven("a5" * 32, WEB, N1, 7, proof)
    assert not is_proven(KEY, WEB, N1, 7, proof[:-1])
    assert not is_proven(KEY, WEB, N1, 7, b"")


@given(st.binary(max_size=64))
def test_without_a_key_nothing_is_proven(proof: bytes) -> None:
    assert prove("", WEB, N1, 7) == b""
    assert not is_proven("", WEB, N1, 7, proof)


@given(names, names)
def test_names_do_not_run_into_each_other(workload: str, node: str) -> None:
    assert prove(KEY, WorkloadId(f"{workload}-{node}"), NodeId("n"), 1) != prove(
        KEY, WorkloadId(workload), NodeId(f"{node}-n"), 1
    )
