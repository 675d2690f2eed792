"""The web dashboard: static files that use the public REST API.

    assets.py    serves the files of static/ under /ui/
    specs.py     POST /api/v1/specs/parse: YAML spec files to apply requests
    static/      HTML, CSS and JavaScript; no build step

Registered by `app.py`.
"""
