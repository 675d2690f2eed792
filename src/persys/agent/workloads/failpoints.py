"""Names of the failpoints at which tests crash the agent: after each journal write and after each step."""

from persys.core.agent.progress import Step

ACCEPTED = "agent.accepted"
LAUNCHING = "agent.launching"
SETTLED = "agent.settled"
DELETE_ACCEPTED = "agent.delete_accepted"
FORGOTTEN = "agent.forgotten"
RESTARTED = "agent.restarted"
REPAIRED = "agent.repaired"
REPLACED = "agent.replaced"
NETWORKS_CONFIGURED = "agent.networks_configured"
NETWORK_PREPARED = "agent.network_prepared"  # the devices of one network
NETWORKS_APPLIED = "agent.networks_applied"  # before devices of removed networks are deleted
STEP = "agent.step"  # before each step; the key is the workload id

AFTER_STEP = {
    Step.PULL: "agent.pulled",
    Step.PREPARE_VOLUMES: "agent.volumes_prepared",
    Step.STOP: "agent.stopped",
    Step.REMOVE: "agent.removed",
    Step.CREATE: "agent.created",
    Step.START: "agent.started",
    Step.RESTART: RESTARTED,
    Step.REPAIR: REPAIRED,
    Step.REPLACE: REPLACED,
    Step.REMOVE_VOLUMES: "agent.deleted",
}

# The failpoints that an apply, an update, a stop and a delete reach.
_OTHERS = (RESTARTED, REPAIRED, REPLACED)
ALL = (
    ACCEPTED,
    *(point for point in AFTER_STEP.values() if point not in _OTHERS),
    LAUNCHING,
    SETTLED,
    DELETE_ACCEPTED,
    FORGOTTEN,
)
