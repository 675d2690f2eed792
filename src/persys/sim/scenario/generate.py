"""Generates a plan from a seed. Each seed enables few kinds of faults, so that rare pairs often coincide."""

from random import Random

from msgspec.structs import replace

from persys.agent.runtimes.docker.pull import registry_of
from persys.sim.actors.intruders import HOSTILE
from persys.sim.engine.trace import rng
from persys.sim.scenario.faults import FAULTS, Group, kinds_of
from persys.sim.scenario.plan import Plan, PlannedEvent, Shape, is_crowded, node_names
from persys.sim.scenario.set_requests import rollout_faults, set_requests
from persys.sim.scenario.specs import OWN_IMAGE

VARIANTS = 5
WORKLOAD_REQUESTS = {"apply": 40, "stop": 15, "start": 20, "delete": 20, "retry": 5}  # weights
CROWDED = Shape(nodes=2, workloads=600, minutes=4.0)
CROWDED_EVERY = 16  # seeds
FEDERATED_SHAPE = Shape(nodes=2, workloads=16, minutes=6.0, remote_nodes=2)
POOL_SHAPE = Shape(nodes=2, workloads=28, minutes=10.0, pool_machines=3)
SET_SHAPE = Shape(nodes=5, workloads=6, minutes=8.0, sets=4, jobs=3)
CHANGES = 3.0  # per workload and run
CROWDED_CHANGES = 0.3
MANY_SHARE = 0.2  # of seeds have three schedulers
LOSS_SHARE = 0.35  # of seeds lose their store
GROWTH_SECONDS = 45.0  # after the demand rises
SCENARIO_SHARE = 0.75  # of seeds have one of SCENARIOS in addition to their other faults
SETTLING_SECONDS = 20.0  # before the first fault, so that workloads are running


def shape_for(seed: int) -> Shape:
    """The default size of a run: every few seeds, two nodes with 300 workloads each."""
    return CROWDED if seed % CROWDED_EVERY == CROWDED_EVERY // 2 else Shape()


def draw(seed: int, shape: Shape) -> Plan:
    random = rng(seed, "plan")
    shape = _complete_shape(seed, shape)
    requests = [
        *_users(random, shape),
        *_operators(random, shape),
        *set_requests(rng(seed, "sets"), seed, shape),
    ]
    found = [*requests, *_faults(random, shape, requests)]
    found += _removals(rng(seed, "removals"), shape)
    found += _hostile_nodes(rng(seed, "hostile"), shape, found)
    found += _crowds(rng(seed, "crowds"), shape) if is_crowded(shape) else ()
    found += _scenarios(rng(seed, "scenario"), shape) if not is_crowded(shape) else ()
    found += _store_losses(rng(seed, "losses"), shape, requests)
    found += _scheduler_faults(rng(seed, "many"), shape, requests) if shape.schedulers > 1 else ()
    found += _stream_faults(rng(seed, "streams"), shape) if shape.streams else ()
    found += _rollout_faults(rng(seed, "rollouts"), shape, requests)
    if shape.remote_nodes:
        found += _federation_faults(rng(seed, "federation"), shape, requests)
        found += _remote_losses(rng(seed, "remote losses"), shape)
    if shape.pool_machines:
        found = _with_pool(rng(seed, "node pool"), shape, found)
    return Plan(seed, shape, tuple(sorted(found, key=lambda each: (each.at, each.kind))))


def _complete_shape(seed: int, shape: Shape) -> Shape:
    """Fill unset fields from the seed."""
    random = rng(seed, "shape")
    schedulers = 3 if random.random() < MANY_SHARE else 1
    streams = random.choice((0.0, 0.0, 0.5, 1.0))
    remote_schedulers = random.choice((1, 1, 3))
    return replace(
        shape,
        schedulers=shape.schedulers or schedulers,
        remote_schedulers=shape.remote_schedulers or remote_schedulers,
        streams=streams if shape.streams < 0 else shape.streams,
    )


def _removals(random: Random, shape: Shape) -> list[PlannedEvent]:
    """An operator removes a node, after a drain or while it is unreachable."""
    found = []
    for _ in range(random.choice((0, 0, 1, 1, 2))):
        node = random.choice(node_names(shape))
        at = random.uniform(SETTLING_SECONDS, shape.minutes * 60)
        before = random.choice(("drain", "cordon", "power-off", "cut", ""))
        word = random.choice(("both", "from")) if before == "cut" else ""
        if before:
            away = random.uniform(80, 250) if before in ("power-off", "cut") else 0.0
            found.append(PlannedEvent(at, before, node, seconds=away, word=word))
        found.append(PlannedEvent(at + random.uniform(0, 180), "remove", node))
    return [each for each in found if each.at < shape.minutes * 60]


def _hostile_nodes(random: Random, shape: Shape, faults: list[PlannedEvent]) -> list[PlannedEvent]:
    """An operator removes the hostile node, while it is active or later."""
    found = [
        PlannedEvent(fault.at + random.uniform(30, 250), "remove", HOSTILE)
        for fault in faults
        if fault.kind == "hostile-node"
    ]
    return [each for each in found if each.at < shape.minutes * 60]


def _scenarios(random: Random, shape: Shape) -> list[PlannedEvent]:
    if random.random() >= SCENARIO_SHARE:
        return []
    end = shape.minutes * 60
    found = random.choice(SCENARIOS)(random, shape, random.uniform(SETTLING_SECONDS, end / 2))
    return [each for each in found if each.at < end]


def _false_reports(random: Random, shape: Shape, at: float) -> list[PlannedEvent]:
    """Nodes send arbitrary data in their heartbeats."""
    times = [at + random.uniform(0, 300) for _ in range(random.randint(1, 6))]
    return [_fault(random, "false-reports", time, shape) for time in times]


def _hostile_list(random: Random, _shape: Shape, at: float) -> list[PlannedEvent]:
    """A hostile node reports for long enough that its orphans are stored, and is removed."""
    seconds = random.uniform(100, 200)
    removed_at = at + seconds * random.uniform(0.9, 1.2)
    return [
        PlannedEvent(at, "hostile-node", seconds=seconds),
        PlannedEvent(removed_at, "remove", HOSTILE),
    ]


def _silent_runtime(random: Random, shape: Shape, at: float) -> list[PlannedEvent]:
    """All workloads are deployed again while the runtimes of a node do not respond."""
    node = random.choice(node_names(shape))
    outage = PlannedEvent(at, "docker-out", node, seconds=random.uniform(90, 180))
    return [outage, *_redeploy(random, shape, at + 25, pause=50)]


def _recreate(random: Random, shape: Shape, at: float) -> list[PlannedEvent]:
    """All workloads are deleted and applied again while a node is unreachable."""
    node = random.choice(node_names(shape))
    cut = PlannedEvent(at, "cut", node, seconds=random.uniform(150, 300), word="both")
    found = [cut, *_redeploy(random, shape, at + random.uniform(5, 50), pause=100)]
    # Orders from before the deletion arrive late.
    late = [at + random.uniform(20, 200) for _ in range(12)]
    return [*found, *(_fault(random, "late-order", time, shape) for time in late)]


SCENARIOS = (_false_reports, _hostile_list, _silent_runtime, _recreate)


def _redeploy(random: Random, shape: Shape, at: float, *, pause: float) -> list[PlannedEvent]:
    """Delete all workloads within 10 seconds, and apply each again at most `pause` seconds later."""
    found = []
    for number in range(shape.workloads):
        name, variant = f"w{number:02d}", random.randrange(VARIANTS)
        deleted_at = at + random.uniform(0, 10)
        applied_at = deleted_at + random.uniform(0, pause)
        found.append(PlannedEvent(deleted_at, "delete", name))
        found.append(PlannedEvent(applied_at, "apply", name, amount=variant))
    return found


def _crowds(random: Random, shape: Shape) -> list[PlannedEvent]:
    """A registry hangs during many deployments, and a node with hundreds of workloads is lost and removed."""
    node = random.choice(node_names(shape))
    lost_at = random.uniform(2 * SETTLING_SECONDS, shape.minutes * 60 - 120)
    return [
        _fault(random, "silent-registry", random.uniform(0, SETTLING_SECONDS), shape),
        PlannedEvent(
            random.uniform(0, SETTLING_SECONDS / 4),
            "silent-registry",
            seconds=random.uniform(60, 200),
            word=registry_of(OWN_IMAGE),
        ),
        PlannedEvent(lost_at, "destroy-node", node),
        PlannedEvent(lost_at + random.uniform(50, 90), "remove", node),
    ]


def _store_losses(random: Random, shape: Shape, requests: list[PlannedEvent]) -> list[PlannedEvent]:
    """Snapshots, and one or two losses of all data in the store."""
    end = shape.minutes * 60
    found = []
    if random.random() >= LOSS_SHARE:
        return []
    for _ in range(random.randint(0, 3)):
        found.append(PlannedEvent(random.uniform(SETTLING_SECONDS, end), "snapshot"))
    for _ in range(random.choice((1, 1, 1, 2))):
        at = random.uniform(SETTLING_SECONDS, end)
        if random.random() < 0.5:  # near a user request
            at = max(SETTLING_SECONDS, random.choice(requests).at + random.uniform(-0.1, 0.4))
        recovery = random.choice(("rebuild", "rebuild", "restore", "accept"))
        patience = random.choice((0, 10, 60)) * random.uniform(0.5, 1.5)
        forgets = random.choice((0, 0, 1))
        found.append(
            PlannedEvent(at, "wipe-store", seconds=patience, amount=forgets, word=recovery)
        )
    return found


def _scheduler_faults(
    random: Random, shape: Shape, requests: list[PlannedEvent]
) -> list[PlannedEvent]:
    """Faults of one of several schedulers. SCHEDULER means the current leader."""
    kinds = (*kinds_of(Group.MANY_SCHEDULERS), "crash-scheduler", "crash-scheduler-at")
    found = []
    for _ in range(random.randint(3, 12)):
        at = random.uniform(SETTLING_SECONDS / 2, shape.minutes * 60)
        if random.random() < 0.6:  # near a user request
            at = max(0.0, random.choice(requests).at + random.uniform(-0.2, 0.4))
        found.append(_fault(random, random.choice(kinds), at, shape))
    return found


def _federation_faults(
    random: Random, shape: Shape, requests: list[PlannedEvent]
) -> list[PlannedEvent]:
    """Faults of the federated node and of the remote cluster, of few kinds."""
    enabled = random.sample(kinds_of(Group.FEDERATION), k=random.randint(2, 6))
    found = []
    for _ in range(random.randint(4, 16)):
        kind = random.choice(enabled)
        at = random.uniform(SETTLING_SECONDS / 2, shape.minutes * 60)
        if FAULTS[kind].timely and random.random() < 0.7:  # near a user request
            at = max(0.0, random.choice(requests).at + random.uniform(-0.2, 2))
        found.append(_fault(random, kind, at, shape))
    return found


def _rollout_faults(
    random: Random, shape: Shape, requests: list[PlannedEvent]
) -> list[PlannedEvent]:
    found = rollout_faults(random, requests, lambda kind, at: _fault(random, kind, at, shape))
    return [each for each in found if each.at < shape.minutes * 60]


def _remote_losses(random: Random, shape: Shape) -> list[PlannedEvent]:
    """The remote cluster loses its store, and is often restored from an old snapshot."""
    if random.random() >= LOSS_SHARE:
        return []
    saved_at = random.uniform(SETTLING_SECONDS, shape.minutes * 30)
    lost_at = random.uniform(saved_at, shape.minutes * 60)
    recovery = random.choice(("restore", "restore", "rebuild", "accept"))
    patience = random.choice((0, 10, 60)) * random.uniform(0.5, 1.5)
    forgets = random.choice((0, 0, 1))
    return [
        PlannedEvent(saved_at, "remote-snapshot"),
        PlannedEvent(lost_at, "remote-wipe-store", seconds=patience, amount=forgets, word=recovery),
    ]


def _with_pool(random: Random, shape: Shape, happenings: list[PlannedEvent]) -> list[PlannedEvent]:
    gaps = _demand_gaps(random)
    for gap in gaps:
        happenings = _with_demand_gap(random, shape, happenings, gap)
    found = [*happenings, *_provider_faults(random, shape, gaps)]
    return [each for each in found if each.at < shape.minutes * 60]


def _demand_gaps(random: Random) -> list[tuple[float, float]]:
    """When the demand falls and when it rises again, after the machines of the pool were idle."""
    gaps, rises_at = [], 0.0
    for _ in range(random.randint(0, 2)):
        falls_at = rises_at + random.uniform(80, 150)
        rises_at = falls_at + random.uniform(130, 200)
        gaps.append((falls_at, rises_at))
    return gaps


def _with_demand_gap(
    random: Random, shape: Shape, happenings: list[PlannedEvent], gap: tuple[float, float]
) -> list[PlannedEvent]:
    """All workloads are deleted, and applied again at the end of the gap. Faults stay."""
    falls_at, rises_at = gap
    found = [
        each
        for each in happenings
        if each.kind not in WORKLOAD_REQUESTS or not falls_at <= each.at < rises_at
    ]
    for number in range(shape.workloads):
        name, variant = f"w{number:02d}", random.randrange(VARIANTS)
        found.append(PlannedEvent(falls_at + random.uniform(0, 10), "delete", name))
        applied_at = rises_at + random.uniform(0, 15)
        found.append(PlannedEvent(applied_at, "apply", name, amount=variant))
    return found


def _provider_faults(
    random: Random, shape: Shape, gaps: list[tuple[float, float]]
) -> list[PlannedEvent]:
    """Few kinds, mostly while the pool grows."""
    enabled = random.sample(kinds_of(Group.NODE_POOL), k=random.randint(2, 5))
    rises = [0.0, *(rises_at for _, rises_at in gaps)]
    times = [
        (kind, rises_at + random.uniform(0, GROWTH_SECONDS))
        for rises_at in rises
        for kind in enabled
        if random.random() < 0.75
    ]
    times += [
        (random.choice(enabled), random.uniform(0, shape.minutes * 60))
        for _ in range(random.randint(0, 4))
    ]
    return [_fault(random, kind, at, shape) for kind, at in times]


def _stream_faults(random: Random, shape: Shape) -> list[PlannedEvent]:
    kinds = kinds_of(Group.STREAMS)
    return [
        _fault(
            random,
            random.choice(kinds),
            random.uniform(SETTLING_SECONDS / 2, shape.minutes * 60),
            shape,
        )
        for _ in range(random.randint(0, 8))
    ]


def _users(random: Random, shape: Shape) -> list[PlannedEvent]:
    end = shape.minutes * 60
    changes = CROWDED_CHANGES if is_crowded(shape) else CHANGES
    found = []
    for number in range(shape.workloads):
        name = f"w{number:02d}"
        variant = random.randrange(VARIANTS)
        at = (
            random.uniform(1, SETTLING_SECONDS) if random.random() < 0.7 else random.uniform(1, end)
        )
        found.append(PlannedEvent(at, "apply", name, amount=variant))
        while (at := at + random.expovariate(changes / end)) < end:
            found.append(_user_request(random, at, name))
            if random.random() < 0.25:  # a second request right after the first
                found.append(_user_request(random, at + random.uniform(0, 3), name))
    return [each for each in found if each.at < end]


def _user_request(random: Random, at: float, name: str) -> PlannedEvent:
    kind = random.choices(list(WORKLOAD_REQUESTS), weights=list(WORKLOAD_REQUESTS.values()))[0]
    return PlannedEvent(at, kind, name, amount=random.randrange(VARIANTS) if kind == "apply" else 0)


def _operators(random: Random, shape: Shape) -> list[PlannedEvent]:
    end = shape.minutes * 60
    found = []
    for _ in range(random.choice((0, 0, 1, 2, 4))):
        name = random.choice(node_names(shape))
        at = random.uniform(SETTLING_SECONDS, end)
        found.append(PlannedEvent(at, random.choice(("cordon", "drain", "drain")), name))
        found.append(PlannedEvent(at + random.expovariate(1 / 120), "uncordon", name))
    return [each for each in found if each.at < end]


def _faults(random: Random, shape: Shape, requests: list[PlannedEvent]) -> list[PlannedEvent]:
    enabled = random.sample(kinds_of(Group.ANY), k=random.randint(2, 8))
    end = shape.minutes * 60
    found: list[PlannedEvent] = []
    for _ in range(random.randint(4, 30)):
        kind = random.choice(enabled)
        at = random.uniform(SETTLING_SECONDS / 2, end)
        if FAULTS[kind].timely and random.random() < 0.7:  # near a user request
            at = max(0.0, random.choice(requests).at - random.uniform(0, 0.5))
        found.append(_fault(random, kind, at, shape))
    return found


def _fault(random: Random, kind: str, at: float, shape: Shape) -> PlannedEvent:
    return replace(FAULTS[kind].draw(random, shape), at=at, kind=kind)
