"""What an agent may be able to do beyond the fixed contract, as it says when it registers."""

PUSHES_STATUS = "push-status"  # changes are sent at once, so nobody has to poll
PRIVILEGED = "privileged"  # this node's policy allows privileged containers
CONTAINER_LIMITS = "container-limits"  # cpu and pids ceilings, pull policy, stop grace, init
COMPOSE_GIT = "compose-git"  # fetches Compose files from git by itself
STOP_AFTER = "stop-after"  # stops by itself what has been too long without the scheduler
CONTROL_STREAM = "control-stream"  # takes calls through the stream that it has opened
COMPOSE = "compose-policies"  # paths in repositories, credentials by name, what becomes of volumes
COMPOSE_PROJECT = "compose-project-name"  # names the project of a stack as its spec says
HEALTH = "health-checks"  # checks by http, tcp and exec, and restarts of what is unhealthy
CREDENTIALS = "credentials"  # pulls from private registries with a credential by name
MACHINES = "machine-policies"  # images by name or address, logins, restarts, gateways of machines
FILES = "files"  # small files, plain or from secrets, that containers find at their paths
IMAGE = "image:"  # before the name of an image for machines that the node has
