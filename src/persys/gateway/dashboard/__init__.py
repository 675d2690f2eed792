"""The web dashboard: static files that use the public REST API."""
