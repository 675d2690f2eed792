"""specfile."""
