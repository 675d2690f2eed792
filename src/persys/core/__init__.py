"""Decisions as pure, synchronous functions. Time and random numbers are arguments."""
