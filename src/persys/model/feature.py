"""Optional features of an agent, which it reports when it registers. Used with the module name:
feature.HEALTH."""

PUSHES_STATUS = "push-status"  # reports changes at once, so polling is not needed
PRIVILEGED = "privileged"  # this node's policy allows privileged containers
CONTAINER_LIMITS = "container-limits"  # cpu and pids ceilings, pull policy, stop grace, init
COMPOSE_GIT = "compose-git"  # clones git repositories with Compose files
RUN_ONCE = "run-once"  # starts members of jobs at most once, and stops them at their deadline
STOP_AFTER = "stop-after"  # stops workloads when the scheduler has been lost for too long
CONTROL_STREAM = "control-stream"  # serves calls through the stream that it has opened
COMPOSE = "compose-policies"  # paths in repositories, credentials by name, deletion of volumes
COMPOSE_PROJECT = "compose-project-name"  # uses the project name of the spec
HEALTH = "health-checks"  # checks by http, tcp and exec, and restarts of unhealthy containers
CREDENTIALS = "credentials"  # pulls from private registries with a credential by name
MACHINE_HEALTH = "machine-health-checks"  # checks of VMs by http, tcp and their guest agent
MACHINES = "machine-policies"  # images by name or URL, logins, restarts, gateways of VMs
ORDER_BATCHES = "order-batches"  # accepts several orders in one message
FILES = "files"  # small files in containers, plain or from secrets
NETWORKS = "networks"  # creates VXLAN networks, so that workloads can join them
NETWORKS_ENCRYPTED = "networks-encrypted"  # connects them with WireGuard on request
IMAGE = "image:"  # prefix for the name of a VM image that the node has
