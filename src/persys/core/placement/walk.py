"""The first few nodes in order, or those of the domains where the group is rarest: mostly that is enough.

Nodes stand in order of fullness, so the first that fits and has no more company than is possible is the
best. A walk that ends without such a node knows nothing, unless it has seen all there are.
"""

from collections.abc import Callable
from itertools import islice

from persys.core.placement.columns import Columns
from persys.core.placement.filters import crowded
from persys.core.placement.groups import Tally
from persys.core.placement.needs import Needs
from persys.core.placement.order import Domains
from persys.core.placement.row import Rank, Row
from persys.core.placement.score import Company
from persys.core.placement.search import eligible

Near = Callable[[Row], tuple[int, ...]]

STEPS_MAX = 16  # nodes that are judged
LOOKS_MAX = 128  # nodes that are passed, most because they could not take it if they were empty
DOMAINS_WALKED_MAX = 4
DOMAINS_COUNTED_MAX = 256


def walk(needs: Needs, columns: Columns) -> Row | None:
    """The best node; None: a walk cannot tell."""
    if not needs.rules.group:
        return _first(needs, columns)
    company = Company(needs, columns)
    near_to = company.of
    least, rarest = _bounds(company, columns)
    if rarest is None:
        return _best_of([columns.order.ranks], needs, columns, near_to, least)
    # Where several are the rarest, the emptiest nodes of all are likely to be in one of them.
    if len(rarest) > 1 and (found := _first(needs, columns, near_to, least)) is not None:
        return found
    return _best_of(rarest, needs, columns, near_to, least)


def _first(
    needs: Needs,
    columns: Columns,
    near_to: Near = lambda _: (),
    least: tuple[int, ...] = (),
) -> Row | None:
    """The first that fits and has the least company that any node can have: there is none better."""
    rows, could = columns.rows, eligible(needs, columns).each
    steps = 0
    for _, _, node_id in islice(columns.order.ranks, LOOKS_MAX):
        row = rows[node_id]
        if could[row.position]:
            if (not least or near_to(row) == least) and crowded(row, needs) is None:
                return row
            steps += 1
            if steps == STEPS_MAX:
                break
    return None


def _bounds(company: Company, columns: Columns) -> tuple[tuple[int, ...], list[list[Rank]] | None]:
    """The least company that any node can have, and the few domains that have it (None: they are many)."""
    least: list[int] = []
    rarest: list[list[Rank]] | None = None
    for key, tally in company.tallies:
        domains = columns.order.domains(key, columns.rows.values())
        if rarest is None and not least and len(domains) <= DOMAINS_COUNTED_MAX:
            low, rarest = _rarest(tally, domains)
        else:
            low = _least(tally, domains)
        least.append(low)
    least.append(0)
    few = rarest if rarest is not None and len(rarest) <= DOMAINS_WALKED_MAX else None
    return tuple(least), few


def _rarest(tally: Tally, domains: Domains) -> tuple[int, list[list[Rank]] | None]:
    if len(domains) - len(tally) > DOMAINS_WALKED_MAX:
        return 0, None  # that many, at least, have none
    low = 0
    rarest: list[list[Rank]] = []
    for value, ranks in domains.items():
        count = tally.get(value, 0)
        if count < low or not rarest:
            low, rarest = count, [ranks]
        elif count == low:
            rarest.append(ranks)
    return low, rarest or None


def _least(tally: Tally, domains: Domains) -> int:
    """No domain has fewer of the group."""
    if len(tally) < len(domains) or len(domains) > DOMAINS_COUNTED_MAX:
        return 0
    return min((tally.get(value, 0) for value in domains), default=0)


def _best_of(
    parts: list[list[Rank]],
    needs: Needs,
    columns: Columns,
    near_to: Near,
    least: tuple[int, ...],
) -> Row | None:
    """The best in all of these parts of the order, if a walk can tell."""
    rows, could = columns.rows, eligible(needs, columns).each
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
