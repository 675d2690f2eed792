"""Specs that users apply: the name defines the base of a workload, each variant is another revision."""

import json
from random import Random

from persys.sim.engine.trace import rng
from persys.sim.fakes.runtime import UNREADABLE
from persys.wire.gen.control.v1 import control_pb2

DATA_SHARE = 0.25
PORT_SHARE = 0.2
JOB_SHARE = 0.2
BROKEN_SHARE = 0.08
CHANGE_SHARE = 0.1
ALONE_SHARE = 0.25
STACK_SHARE = 0.15
VM_SHARE = 0.1
PORTS_SHARED_BELOW = 100
OWN_IMAGE_SHARE = 0.5
UNREADABLE_SHARE = 0.06
COMMON_IMAGE = "steady/1"
OWN_IMAGE = "registry.test/steady/own"
OFFLOAD_SHARE = 0.7
SECRET_SHARE = 0.4
DATABASE = "database"  # the secret that some workloads use
FILLER = "fill-"  # workloads that leave no capacity on a node
FILLER_CPU_MILLICORES = 1900


def spec_of(
    seed: int, name: str, variant: int, *, offloads: bool = False
) -> control_pb2.WorkloadSpec:
    """`offloads`: some workloads may use a federated node."""
    if name.startswith(FILLER):
        return _filler()
    spec = _spec_of(seed, name, variant)
    if offloads:
        spec.placement.MergeFrom(_offload_rules(seed, name))
        if spec.type == "container" and rng(seed, "secret", name).random() < SECRET_SHARE:
            spec.container.env["PASSWORD"] = f"secret://{DATABASE}"
    return spec


def _filler() -> control_pb2.WorkloadSpec:
    return control_pb2.WorkloadSpec(
        type="container",
        resources=control_pb2.ResourceRequirements(
            cpu_millicores=FILLER_CPU_MILLICORES, memory_mb=256
        ),
        container=control_pb2.ContainerSpec(image=COMMON_IMAGE, restart_policy="always"),
    )


def _offload_rules(seed: int, name: str) -> control_pb2.PlacementRules:
    character = rng(seed, "offload", name)
    if character.random() >= OFFLOAD_SHARE:
        return control_pb2.PlacementRules()
    rules = control_pb2.PlacementRules(
        offload=character.choice(("when-full", "when-full", "prefer")),
        offload_data=character.random() < 0.5,
    )
    if rules.offload == "when-full" and character.random() < 0.5:
        setattr(rules, "return", "when-free")
    return rules


def _spec_of(seed: int, name: str, variant: int) -> control_pb2.WorkloadSpec:
    character = rng(seed, "character", name)
    mood = rng(seed, "variant", name, variant)
    cpu = character.choice((100, 400, 900, 1800))
    if mood.random() < 0.3:
        cpu = mood.choice((100, 400, 1200, 2500))
    spec = control_pb2.WorkloadSpec(
        resources=control_pb2.ResourceRequirements(cpu_millicores=cpu, memory_mb=256),
        stop_after_seconds=_stop_after(seed, name, variant),
    )
    kind = rng(seed, "kind", name).random()
    if kind < STACK_SHARE:
        spec.type = "compose"
        spec.compose.CopyFrom(_stack(character, variant, _port(character, name)))
    elif kind < STACK_SHARE + VM_SHARE:
        spec.type = "vm"
        spec.vm.CopyFrom(control_pb2.VMSpec(vcpus=1, memory_mb=256))
        spec.vm.cloud_init.user_data = f"#cloud-config\n# {variant}\n"
        spec.resources.cpu_millicores = 1000
    else:
        spec.type = "container"
        spec.container.CopyFrom(_container(character, mood, variant, _port(character, name)))
        _individualise(spec.container, seed, name, variant)
    return spec


def _individualise(
    container: control_pb2.ContainerSpec, seed: int, name: str, variant: int
) -> None:
    """Give some containers an image of their own, and some an unreadable bind source."""
    own = rng(seed, "own", name)
    if container.image == f"steady/{variant}" and own.random() < OWN_IMAGE_SHARE:
        container.image = f"{OWN_IMAGE}-{name}-{variant}"
    if rng(seed, "binds").random() < 0.3 and own.random() < UNREADABLE_SHARE:
        container.volumes.add(host_path=f"{UNREADABLE}{name}", container_path="/bind")


def _port(character: Random, name: str) -> int:
    """Only the first workloads share ports: otherwise crowded nodes could run very few."""
    number = int(name.removeprefix("w"))
    return 8000 + number if number >= PORTS_SHARED_BELOW else character.choice((8080, 8443))


def _stack(character: Random, variant: int, port: int) -> control_pb2.ComposeSpec:
    service: dict[str, object] = {"image": f"steady/{variant}"}
    stack: dict[str, object] = {"services": {"web": service}}
    if character.random() < DATA_SHARE:
        service["volumes"] = ["data:/data"]
        stack["volumes"] = {"data": {}}
    if character.random() < PORT_SHARE:
        service["ports"] = [f"{port}:80"]
    return control_pb2.ComposeSpec(
        source_type="inline",
        inline_yaml=json.dumps(stack),
        env={"BEHAVIOUR": f"steady/{variant}"},
    )


def _container(
    character: Random, mood: Random, variant: int, port: int
) -> control_pb2.ContainerSpec:
    image, policy = f"steady/{variant}", character.choice(("unless-stopped", "always"))
    kind = character.random()
    if kind < JOB_SHARE:
        image, policy = (
            f"job/{character.choice((1, 3, 20, 90))}",
            character.choice(("no", "on-failure")),
        )
    elif kind < JOB_SHARE + BROKEN_SHARE:
        image = character.choice(("missing/1", "refused/1", "faulty/1", "faulty/15"))
        policy = character.choice(("no", "on-failure:2", "always"))
    container = control_pb2.ContainerSpec(
        image=image, restart_policy=policy, env={"VARIANT": str(variant)}
    )
    # Some revisions drop or add the volume.
    if (character.random() < DATA_SHARE) != (mood.random() < CHANGE_SHARE):
        container.managed_volumes.add(
            name="data",
            driver="local",
            size_gb=character.choice((1, 5)),
            mount_path="/data",
            retain_policy=character.choice(("Delete", "Retain")),
        )
    if character.random() < PORT_SHARE:
        container.ports.add(host_port=port, container_port=80)
    return container


def _stop_after(seed: int, name: str, variant: int) -> int:
    """Some workloads have stop_after; some revisions change it."""
    character, mood = rng(seed, "alone", name), rng(seed, "alone", name, variant)
    chosen = (character.random() < ALONE_SHARE) != (mood.random() < CHANGE_SHARE)
    return character.choice((30, 45, 90)) if chosen else 0


def revision_of(variant: int) -> str:
    return f"v{variant}"


def variant_of(revision: str) -> int:
    return int(revision.removeprefix("v"))
