"""The dashboard: pages for people, made of the same REST calls that everybody else has."""
