"""The first few nodes in order, and of the domains where the group is rarest: enough for nearly every choice.

Nodes stand in order of fullness, so the first that fits and has no more company than is possible is the
best. A walk that ends without such a node knows nothing, unless it has seen all there are.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

from persys.core.placement.columns import Columns
from persys.core.placement.filters import reject
from persys.core.placement.needs import Needs
from persys.core.placement.order import Domains
from persys.core.placement.row import Rank, Row
from persys.core.placement.score import company, score

STEPS_MAX = 16
DOMAINS_WALKED_MAX = 8
DOMAINS_COUNTED_MAX = 256


def walk(needs: Needs, columns: Columns) -> Row | None:
    """The best node; None: a walk cannot tell."""
    rules = needs.rules
    if not rules.group:
        return _along(columns.order.ranks, needs, columns, ()).row
    domains = [columns.order.domains(key, columns.rows.values()) for key in rules.spread_over]
    least = (*map(partial(_least, needs, columns), rules.spread_over, domains), 0)
    found = _along(columns.order.ranks, needs, columns, least)
    if found.is_best:
        return found.row
    if not domains:
        return None
    return _in_rarest(domains[0], needs, columns, least)


@dataclass(frozen=True, slots=True)
class _Found:
    row: Row | None
    is_best: bool  # no other of those that were asked about is better


def _along(ranks: Sequence[Rank], needs: Needs, columns: Columns, least: tuple[int, ...]) -> _Found:
    """The best of the first few; `least` is the least company that any node can have."""
    best: Row | None = None
    best_near: tuple[int, ...] = ()
    for _, _, node_id in islice(ranks, STEPS_MAX):
        row = columns.rows[node_id]
        near = company(row, needs, columns) if least else ()
        # Those later in the order are better only with less company.
        if (best is None or near < best_near) and reject(row, needs) is None:
            best, best_near = row, near
            if near == least:
                return _Found(row, is_best=True)
    return _Found(best, is_best=len(ranks) <= STEPS_MAX)


def _least(needs: Needs, columns: Columns, key: str, domains: Domains) -> int:
    """No domain of this label has fewer of the group."""
    if len(domains) > DOMAINS_COUNTED_MAX:
        return 0
    tally = columns.groups.tally(needs.rules.group, key)
    if not tally:
        return 0
    return min((tally.get(value, 0) for value in domains), default=0)


def _in_rarest(
    domains: Domains, needs: Needs, columns: Columns, least: tuple[int, ...]
) -> Row | None:
    tally = columns.groups.tally(needs.rules.group, needs.rules.spread_over[0])
    rarest = [ranks for value, ranks in domains.items() if tally.get(value, 0) == least[0]]
    if len(rarest) > DOMAINS_WALKED_MAX:
        return None
    walked = [_along(ranks, needs, columns, least) for ranks in rarest]
    rows = [found.row for found in walked if found.row is not None]
    if not rows or not all(found.is_best for found in walked):
        return None
    return min(rows, key=lambda row: score(row, needs, columns))
