"""Decisions: pure and synchronous. Time and entropy are arguments."""
