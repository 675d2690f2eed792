"""Sets and jobs that users apply: the name defines the policy, each variant is another template.

Some variants of a set are bad: their image is missing, their containers exit, or their health check fails.
"""

from random import Random

from persys.sim.engine.trace import rng
from persys.wire.gen.control.v1 import control_pb2

REPLICAS_MAX = 6
VARIANTS = 6
BAD_SHARE = 0.4  # of the variants after the first one
DATA_SHARE = 0.2
EVERY_NODE_SHARE = 0.2
REPLACES_SHARE = 0.3
PORT_SHARE = 0.15
STOP_AFTER_SHARE = 0.1
CANARY_SHARE = 0.3
PAUSE_SHARE = 0.3
BAD_IMAGES = ("missing/1", "refused/1", "faulty/1", "faulty/1", "faulty/12", "sick/3", "sick/3")
JOB_IMAGES = ("job/1", "job/2", "job/8", "job/25", "job/70", "faulty/1", "faulty/6", "missing/1")
CRONS = ("* * * * *", "*/2 * * * *", "*/3 * * * *", "1,2,5,8,9 * * * *")
START_WITHIN_SECONDS = (20, 60, 3600)


def is_plain_first(seed: int, name: str) -> bool:
    """Whether users apply a workload with the name of the set first, which the set replaces."""
    return not holds_data(seed, name) and rng(seed, "plain", name).random() < REPLACES_SHARE


def holds_data(seed: int, name: str) -> bool:
    return rng(seed, "data", name).random() < DATA_SHARE


def has_every_node(seed: int, name: str) -> bool:
    return rng(seed, "every", name).random() < EVERY_NODE_SHARE


def template_of(seed: int, name: str, variant: int) -> control_pb2.WorkloadSpec:
    character = rng(seed, "template", name)
    image = _image(rng(seed, "template", name, variant), variant)
    container = control_pb2.ContainerSpec(
        image=image,
        restart_policy=character.choice(("always", "unless-stopped")),
        env={"VARIANT": str(variant)},
    )
    if image.startswith(("ready/", "sick/")):
        container.health_check.CopyFrom(control_pb2.HealthCheck(type="exec", command=["check"]))
    spec = control_pb2.WorkloadSpec(
        type="container",
        resources=control_pb2.ResourceRequirements(
            cpu_millicores=character.choice((50, 100, 300)), memory_mb=128
        ),
        container=container,
    )
    if character.random() < PORT_SHARE:
        spec.container.ports.add(host_port=9000 + character.randrange(3), container_port=80)
    if character.random() < STOP_AFTER_SHARE:
        spec.stop_after_seconds = character.choice((30, 45, 90))
    if holds_data(seed, name):
        spec.container.managed_volumes.add(
            name="data",
            driver="local",
            size_gb=1,
            mount_path="/data",
            retain_policy=character.choice(("Delete", "Retain")),
        )
    return spec


def _image(mood: Random, variant: int) -> str:
    if variant and mood.random() < BAD_SHARE:
        return mood.choice(BAD_IMAGES)
    return mood.choice((f"steady/{variant}", "ready/1", "ready/4"))


def set_spec(seed: int, name: str, variant: int, replicas: int) -> control_pb2.SetSpec:
    character = rng(seed, "policy", name)
    update = control_pb2.UpdatePolicy(
        max_parallel=character.choice((1, 1, 2)),
        order=character.choice(("", "start-first", "in-place")),
        min_healthy_seconds=character.choice((3, 5, 8)),
        healthy_deadline_seconds=character.choice((30, 45, 60)),
        on_failure="pause" if character.random() < PAUSE_SHARE else "rollback",
    )
    if holds_data(seed, name):
        update.order = character.choice(("", "in-place"))
    if character.random() < CANARY_SHARE:
        update.canary = min(replicas, 1)
        update.bake_seconds = character.choice((0, 15)) if update.canary else 0
    spec = control_pb2.SetSpec(
        set_id=name, template=template_of(seed, name, variant), update=update
    )
    if has_every_node(seed, name):
        spec.every = "node"
    else:
        spec.replicas = replicas
    return spec


def job_spec(seed: int, name: str, variant: int) -> control_pb2.JobSpec:
    character = rng(seed, "job", name)
    mood = rng(seed, "job", name, variant)
    spec = control_pb2.JobSpec(
        job_id=name,
        template=control_pb2.WorkloadSpec(
            type="container",
            resources=control_pb2.ResourceRequirements(cpu_millicores=100, memory_mb=64),
            container=control_pb2.ContainerSpec(
                image=mood.choice(JOB_IMAGES),
                restart_policy=character.choice(("no", "on-failure")),
                env={"VARIANT": str(variant)},
            ),
        ),
        completions=character.choice((1, 1, 2, 4)),
        parallelism=character.choice((1, 2)),
        retries=character.choice((0, 2)),
        deadline_seconds=mood.choice((0, 0, 45)),
        keep=character.choice((1, 3)),
        fail_on=mood.choice(((), (), (1,))),
    )
    if character.random() < 0.7:
        spec.schedule.cron = character.choice(CRONS)
        spec.schedule.overlap = character.choice(("forbid", "allow", "replace"))
        spec.schedule.start_within_seconds = character.choice(START_WITHIN_SECONDS)
    return spec
