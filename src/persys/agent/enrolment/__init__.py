"""enrolment."""
