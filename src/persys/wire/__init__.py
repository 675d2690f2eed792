"""Model to and from protobuf, JSON and stored bytes. The only place that knows both sides' words."""
