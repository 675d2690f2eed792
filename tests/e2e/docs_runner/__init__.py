"""Runs the commands of the documents, in order, on a real cluster."""
