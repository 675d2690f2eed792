"""What the removal of a node means for certificates of that node, and how long that must be remembered."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from persys.core.enrolment import SERVICE_LIFE_MOST
from persys.model.removal import Removal

# By then every certificate from before has ended, also where the clocks do not quite agree.
REMEMBERED = SERVICE_LIFE_MOST + timedelta(days=1)


def is_void(removal: Removal | None, enrolled_at: datetime) -> bool:
    """Whether a certificate of the node is from before its removal; renewals do not make it younger."""
    return removal is not None and enrolled_at <= removal.removed_at


def outdated(removals: Iterable[Removal], now: datetime) -> list[Removal]:
    return [one for one in removals if now - one.removed_at > REMEMBERED]
