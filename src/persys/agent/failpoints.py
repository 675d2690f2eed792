"""The places where a test lets the agent die: after each write to the journal and after each step."""

from persys.core.convergence import Step

ACCEPTED = "agent.accepted"
LAUNCHING = "agent.launching"
SETTLED = "agent.settled"
DELETE_ACCEPTED = "agent.delete_accepted"
FORGOTTEN = "agent.forgotten"

AFTER_STEP = {
    Step.PULL: "agent.pulled",
    Step.PREPARE_VOLUMES: "agent.volumes_prepared",
    Step.STOP: "agent.stopped",
    Step.REMOVE: "agent.removed",
    Step.CREATE: "agent.created",
    Step.START: "agent.started",
    Step.RESTART: "agent.restarted",
    Step.REMOVE_VOLUMES: "agent.deleted",
}

ALL = (ACCEPTED, *AFTER_STEP.values(), LAUNCHING, SETTLED, DELETE_ACCEPTED, FORGOTTEN)
