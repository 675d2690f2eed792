"""Members are changed by their owner only, and ids are not shared."""

import pytest
from msgspec.structs import replace

from builders import a_workload
from persys.core.intent.ownership import Owners, check_change
from persys.errors import RefusedError
from persys.model.workload import Desired, Membership, Workload

NONE = Owners(frozenset(), frozenset(), frozenset())
WITH_SET = Owners(frozenset({"web"}), frozenset(), frozenset())
WITH_JOB = Owners(frozenset(), frozenset({"backup"}), frozenset({"backup/backup-1"}))


def a_member(name: str = "web-0", *, owner: str = "web", job_id: str = "") -> Workload:
    return replace(a_workload(name), membership=Membership(owner, 0, 0, job_id=job_id))


@pytest.mark.parametrize("desired", [Desired.STOPPED, Desired.DELETED])
def test_a_member_of_a_set_is_not_changed_by_users(desired: Desired) -> None:
    member = a_member()

    with pytest.raises(
        RefusedError, match=r"^workload web-0 is a member of set web: change the set$"
    ):
        check_change(member, replace(member, desired=desired), WITH_SET)


def test_a_member_of_a_run_is_not_changed_by_users() -> None:
    member = a_member("backup-1-0", owner="backup-1", job_id="backup")

    with pytest.raises(RefusedError, match="member of run backup-1 of job backup"):
        check_change(member, replace(member, desired=Desired.DELETED), WITH_JOB)


def test_a_retry_of_a_member_is_allowed() -> None:
    member = a_member()

    check_change(member, member, WITH_SET)


def test_a_workload_with_the_membership_of_another_id_is_not_owned() -> None:
    stray = a_member("db")

    check_change(stray, replace(stray, desired=Desired.STOPPED), WITH_SET)


def test_a_former_member_of_a_lost_set_is_changed_like_a_plain_workload() -> None:
    member = a_member()

    check_change(member, replace(member, desired=Desired.STOPPED), NONE)


def test_a_set_with_the_id_of_a_job_does_not_own_the_members_of_its_runs() -> None:
    member = a_member("web-0", owner="web", job_id="backup")

    check_change(member, replace(member, desired=Desired.STOPPED), WITH_SET)


def test_a_workload_does_not_get_the_id_of_a_set_or_a_job() -> None:
    with pytest.raises(
        RefusedError, match=r"^web is a set: use replicas in its file, or delete the set first$"
    ):
        check_change(None, a_workload("web"), WITH_SET)
    with pytest.raises(RefusedError, match=r"^backup is a job: delete the job first$"):
        check_change(None, a_workload("backup"), WITH_JOB)


def test_a_workload_that_a_set_replaces_can_be_deleted_and_not_updated() -> None:
    replaced = a_workload("web")

    check_change(replaced, replace(replaced, desired=Desired.DELETED), WITH_SET)
    with pytest.raises(RefusedError, match="web is a set"):
        check_change(replaced, replace(replaced, desired=Desired.STOPPED), WITH_SET)
