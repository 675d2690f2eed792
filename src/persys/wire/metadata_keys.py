"""gRPC metadata keys of calls and responses: mode, data age, role and forwarding."""

MODE = "persys-mode"
DATA_AGE_MS = "persys-data-age-ms"
ROLE = "persys-role"  # standby: the response comes from the memory of a standby
FORWARDED = "persys-passed-on"  # a standby has forwarded this call to the leader it knows
NOT_LEADER = "persys-not-leading"  # the receiver is not the leader: nothing was done
HOME = "persys-home"  # the calling cluster, if there is no authentication; else its token names it
REVISION = (
    "persys-revision"  # store revision after a forwarded call; the standby catches up with it
)
