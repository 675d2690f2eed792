"""Errors and gRPC status codes."""

import grpc
import pytest

from persys import errors
from persys.wire.errors import error_from, grpc_code

CODE = grpc.StatusCode


@pytest.mark.parametrize(
    ("err", "code"),
    [
        (errors.InvalidError("a", "b"), CODE.INVALID_ARGUMENT),
        (errors.NotFoundError("workload", "web"), CODE.NOT_FOUND),
        (errors.DeniedError("x"), CODE.PERMISSION_DENIED),
        (errors.SettingsError("x"), CODE.FAILED_PRECONDITION),
        (errors.RefusedError("x"), CODE.FAILED_PRECONDITION),
        (errors.ConflictError("x"), CODE.ABORTED),
        (errors.StaleEpochError("x"), CODE.FAILED_PRECONDITION),
        (errors.FencedError("x"), CODE.UNAVAILABLE),
        (errors.UnavailableError("x"), CODE.UNAVAILABLE),
        (errors.StoreUnavailableError("x"), CODE.UNAVAILABLE),
        (errors.CompactedError("x"), CODE.UNAVAILABLE),
        (errors.AgentUnreachableError("x"), CODE.UNAVAILABLE),
        (errors.RuntimeUnavailableError("x"), CODE.UNAVAILABLE),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else value.name,
)
def test_every_error_has_its_code(err: errors.PersysError, code: grpc.StatusCode) -> None:
    assert grpc_code(err) is code


@pytest.mark.parametrize(
    "err",
    [
        errors.InvalidError("spec.type", "is odd: very"),
        errors.NotFoundError("workload", "web"),
        errors.DeniedError("not you"),
        errors.RefusedError("no"),
        errors.ConflictError("late"),
        errors.UnavailableError("asleep"),
    ],
    ids=lambda err: type(err).__name__,
)
def test_a_client_raises_the_same_error_with_its_text(err: errors.PersysError) -> None:
    got = error_from(grpc_code(err), str(err))

    assert type(got) is type(err)
    assert str(got) == str(err)


def test_an_invalid_field_keeps_its_name() -> None:
    got = error_from(CODE.INVALID_ARGUMENT, "spec.type: is odd")

    assert isinstance(got, errors.InvalidError)
    assert (got.field, got.problem) == ("spec.type", "is odd")


@pytest.mark.parametrize("code", [CODE.NOT_FOUND, CODE.UNKNOWN])
def test_not_found_in_the_text_of_a_third_party_agent_is_recognised(code: grpc.StatusCode) -> None:
    got = error_from(code, "get status: Workload Not Found")

    assert isinstance(got, errors.NotFoundError)
    assert "Workload Not Found" in str(got)


@pytest.mark.parametrize("code", [CODE.UNKNOWN, CODE.DEADLINE_EXCEEDED, CODE.UNAVAILABLE])
def test_no_response_is_never_read_as_absence(code: grpc.StatusCode) -> None:
    assert type(error_from(code, "broken")) is errors.UnavailableError


def test_the_text_is_matched_only_with_the_code_unknown() -> None:
    assert type(error_from(CODE.UNAVAILABLE, "name not found")) is errors.UnavailableError


def test_an_rpc_that_a_peer_does_not_implement_is_a_refusal() -> None:
    assert type(error_from(CODE.UNIMPLEMENTED, None)) is errors.RefusedError
