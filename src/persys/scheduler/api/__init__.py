"""The AgentControl service, one module per concern."""
