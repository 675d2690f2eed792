"""The web dashboard: static files that use the public REST API.

    routes.py    serves the files of static/ under /ui/, and parses spec files
    static/      HTML, CSS and JavaScript; no build step

Registered by `app.py`.
"""
