"""The AgentControl service: one module per group of RPCs."""
