"""The first few nodes in order, or those of the domains where the group is rarest: mostly that is enough.

Nodes stand in order of fullness, so the first that fits and has no more company than is possible is the
best. A walk that ends without such a node knows nothing, unless it has seen all there are.
"""

from itertools import islice

from persys.core.placement.columns import Columns
from persys.core.placement.filters import crowded
from persys.core.placement.groups import Tally
from persys.core.placement.needs import Needs
from persys.core.placement.order import Domains
from persys.core.placement.row import Rank, Row
from persys.core.placement.score import Company
from persys.core.placement.search import eligible

STEPS_MAX = 16  # nodes that are judged
LOOKS_MAX = 128  # nodes that are passed, most because they could not take it if they were empty
DOMAINS_WALKED_MAX = 4
DOMAINS_COUNTED_MAX = 256


def walk(needs: Needs, columns: Columns) -> Row | None:
    """The best node; None: a walk cannot tell."""
    if not needs.rules.group:
        return _first(needs, columns)
    least, rarest = _bounds(needs, columns)
    return _best_of(rarest or [columns.order.ranks], needs, columns, least)


def _first(needs: Needs, columns: Columns) -> Row | None:
    rows, could = columns.rows, eligible(needs, columns).each
    steps = 0
    for _, _, node_id in islice(columns.order.ranks, LOOKS_MAX):
        row = rows[node_id]
        if could[row.position]:
            if crowded(row, needs) is None:
                return row
            steps += 1
            if steps == STEPS_MAX:
                break
    return None


def _bounds(needs: Needs, columns: Columns) -> tuple[tuple[int, ...], list[list[Rank]] | None]:
    """The least company that any node can have, and the few domains that have it (None: they are many)."""
    rules = needs.rules
    least, rarest = [], None
    for key in rules.spread_over:
        domains = columns.order.domains(key, columns.rows.values())
        tally = columns.groups.tally(rules.group, key)
        least.append(_least(tally, domains))
        if len(least) == 1:
            rarest = _rarest(tally, domains, least[0])
    return (*least, 0), rarest


def _least(tally: Tally, domains: Domains) -> int:
    """No domain has fewer of the group."""
    if len(tally) < len(domains) or len(domains) > DOMAINS_COUNTED_MAX:
        return 0
    return min((tally.get(value, 0) for value in domains), default=0)


def _rarest(tally: Tally, domains: Domains, least: int) -> list[list[Rank]] | None:
    # Where few have any of the group, many have none.
    if len(domains) > DOMAINS_COUNTED_MAX or len(domains) - len(tally) > DOMAINS_WALKED_MAX:
        return None
    rarest = [ranks for value, ranks in domains.items() if tally.get(value, 0) == least]
    return rarest if 0 < len(rarest) <= DOMAINS_WALKED_MAX else None


def _best_of(
    parts: list[list[Rank]], needs: Needs, columns: Columns, least: tuple[int, ...]
) -> Row | None:
    """The best in all of these parts of the order, if a walk can tell."""
    rows, could = columns.rows, eligible(needs, columns).each
    near_to = Company(needs, columns).of
    best: Row | None = None
    best_near: tuple[int, ...] = ()
    for ranks in parts:
        steps = 0
        for rank in islice(ranks, LOOKS_MAX):
            row = rows[rank[2]]
            if not could[row.position]:
                continue
            near = near_to(row)
            better = best is None or near < best_near or (near == best_near and rank < best.rank)
            if better and crowded(row, needs) is None:
                best, best_near = row, near
            if best_near == least and best is not None and best.rank <= rank:
                break  # the rest of this part is fuller and has no less company
            steps += 1
            if steps == STEPS_MAX:
                return None
        else:
            if len(ranks) > LOOKS_MAX:
                return None
    return best
