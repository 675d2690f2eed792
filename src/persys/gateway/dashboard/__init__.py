"""The web dashboard: static files that use the public REST API.

    routes.py    serves the files of static/ under /ui/, and parses spec files
    static/      what `scripts/dashboard` builds from the folder dashboard/ of the repository

Registered by `app.py`.
"""
