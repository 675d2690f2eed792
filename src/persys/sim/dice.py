"""Random numbers from one seed. Each user has its own generator, so an extra draw shifts no other."""

from random import Random


def dice(seed: int, *names: object) -> Random:
    return Random("/".join([str(seed), *map(str, names)]))  # noqa: S311  # must be repeatable
