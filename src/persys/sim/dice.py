"""Randomness from one seed: each user of it has dice of its own, so that one throw more shifts no other's."""

from random import Random


def dice(seed: int, *names: object) -> Random:
    return Random("/".join([str(seed), *map(str, names)]))  # noqa: S311  # it shall be repeatable
