"""Conversion between the model and protobuf, JSON, spec files and stored bytes."""
