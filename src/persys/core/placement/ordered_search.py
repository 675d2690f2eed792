"""Ordered search: checks the first few nodes in order, or those of the domains with the fewest group members.

The first node in order that fits, with the smallest possible number of group members near it, is the best. A
search that would take too long raises TooFarError, without a result.
"""

from collections.abc import Callable, Collection
from itertools import islice

from persys.core.placement.anti_affinity import Tally
from persys.core.placement.arrays import Codes
from persys.core.placement.chunked_order import Entry, Runs, TooFarError
from persys.core.placement.filters import crowded
from persys.core.placement.node_index import Columns
from persys.core.placement.node_slot import Row
from persys.core.placement.ranking import Arrangement, Domain, Ranking
from persys.core.placement.requirements import Needs
from persys.core.placement.score import Company, strategy_of
from persys.core.placement.vector_search import eligible
from persys.model.placement import Strategy

Level = tuple[int, ...]  # number of group members nearby, per label and then on the node
Near = Callable[[Row], Level]

STEPS_MAX = 16  # eligible nodes that are checked
LOOKS_MAX = 128  # nodes in total, including ineligible ones
DOMAINS_WALKED_MAX = 16
DOMAINS_COUNTED_MAX = 256


def walk(needs: Needs, columns: Columns) -> Row | None:
    """The best node; None: no node fits. TooFarError: not found within the limits."""
    rules, packs = needs.rules, strategy_of(needs, columns) is Strategy.BINPACK
    if not rules.group:
        return _first(needs, columns, Arrangement(packs))
    company = Company(needs, columns)
    by_company = Arrangement(packs, rules.spread_over, rules.group)
    ranking = columns.rankings.kept(needs, by_company)
    if ranking is None:
        try:
            return _with_least_company(needs, columns, company, packs=packs)
        except TooFarError:
            ranking = columns.rankings.earned(needs, by_company, eligible(needs, columns).each)
            if ranking is None:
                raise
    return _in_company(needs, columns, ranking, company)


def _first(needs: Needs, columns: Columns, by: Arrangement) -> Row | None:
    ranking = columns.rankings.kept(needs, by)
    if ranking is None:
        try:
            return _first_in_order(needs, columns)
        except TooFarError:
            ranking = columns.rankings.earned(needs, by, eligible(needs, columns).each)
            if ranking is None:
                raise
    if not ranking.domains():
        return None
    entry = ranking.part(()).first(needs.resources, lambda row: crowded(row, needs) is None)
    return columns.rows[entry[3]] if entry is not None else None


def _first_in_order(
    needs: Needs,
    columns: Columns,
    near_to: Near = lambda _: (),
    least: Level = (),
) -> Row:
    """The first node that fits and has the smallest possible number of group members near it."""
    if strategy_of(needs, columns) is Strategy.BINPACK:
        raise TooFarError  # the nodes with the highest utilisation have no capacity
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
    raise TooFarError


def _in_company(needs: Needs, columns: Columns, ranking: Ranking, company: Company) -> Row | None:
    """With a ranking for the group: the first node of a domain is the best there."""

    def fits(row: Row) -> bool:
        return crowded(row, needs) is None

    def pick(part: Runs, _: Level) -> Entry | None:
        return part.first(needs.resources, fits)

    return _rarest_first(ranking, pick, columns, company)


def _with_least_company(
    needs: Needs, columns: Columns, company: Company, *, packs: bool
) -> Row | None:
    """With rankings without the group: if few nodes have members, the first nodes have none."""
    if not company.tallies:
        return _first_in_order(needs, columns, company.of, (0,))
    key, tally = company.tallies[0]
    could = eligible(needs, columns).each
    ranking = columns.rankings.earned(needs, Arrangement(packs, (key,)), could)
    if ranking is None:
        raise TooFarError
    lowest, alike = _lowest(tally, ranking.domains())
    beyond: Level = (0,)
    for label, counts in reversed(company.tallies[1:]):
        beyond = (_least(counts, columns.labelled(label)), *beyond)
    if alike > 1:
        # The nodes with the lowest utilisation are likely to be in one of several domains.
        try:
            return _first_in_order(needs, columns, company.of, (lowest, *beyond))
        except TooFarError:
            if alike > DOMAINS_WALKED_MAX:
                raise

    def pick(part: Runs, level: Level) -> Entry | None:
        return _first_alone(part, needs, company, level + beyond)

    return _rarest_first(ranking, pick, columns, company)


def _first_alone(part: Runs, needs: Needs, company: Company, least: Level) -> Entry | None:
    """The first node with the fewest group members nearby; TooFarError if only other nodes fit."""
    others = False

    def alone(row: Row) -> bool:
        nonlocal others
        if crowded(row, needs) is not None:
            return False
        others = True
        return company.of(row) == least

    found = part.first(needs.resources, alone)
    if found is None and others:
        raise TooFarError
    return found


def _rarest_first(
    ranking: Ranking,
    pick: Callable[[Runs, Level], Entry | None],
    columns: Columns,
    company: Company,
) -> Row | None:
    """The best node of the domains with the fewest group members that have a fitting node."""
    domains = ranking.domains()
    if len(domains) > DOMAINS_COUNTED_MAX:
        raise TooFarError
    for level, alike in company.rarest(domains):
        if len(alike) > DOMAINS_WALKED_MAX:
            raise TooFarError
        found = [one for domain in alike if (one := pick(ranking.part(domain), level)) is not None]
        if found:
            return columns.rows[min(found)[3]]
    return None


def _lowest(tally: Tally, domains: Collection[Domain]) -> tuple[int, int]:
    """The lowest number of group members in a domain, and at least how many domains have it."""
    without = len(domains) - len(tally)
    if without > DOMAINS_WALKED_MAX:
        return 0, without
    counts = [tally.get(domain[0], 0) for domain in domains]
    lowest = min(counts, default=0)
    return lowest, counts.count(lowest)


def _least(tally: Tally, values: Codes[str | None]) -> int:
    """A lower bound for the number of group members in a domain."""
    return min(tally.values()) if tally and len(tally) >= len(values) else 0
