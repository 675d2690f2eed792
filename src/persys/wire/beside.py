"""What schedulers say beside their calls and answers, as metadata: how far an answer can be trusted."""

MODE = "persys-mode"
DATA_AGE_MS = "persys-data-age-ms"
ROLE = "persys-role"  # standby: the answer is of its own memory
PASSED_ON = "persys-passed-on"  # a standby has passed this call on to whom it believes to lead
NOT_LEADING = "persys-not-leading"  # it was passed on to one that does not lead: nothing was done
REVISION = (
    "persys-revision"  # of the store, after what was passed on: who passed it on catches up with it
)
