"""Reads pages of servers that may not respond yet, or may stop while they respond."""

import ssl
import urllib.request
from http.client import HTTPException


def page(url: str, *, timeout: float = 10) -> str:
    """The body at `url` without surrounding white space; empty without a complete response."""
    context = ssl._create_unverified_context() if url.startswith("https:") else None
    try:
        with urllib.request.urlopen(url, timeout=timeout, context=context) as response:
            return str(response.read().decode()).strip()
    except (OSError, HTTPException):
        return ""


def local_page(port: int) -> str:
    """The page of a server on a port of this host."""
    return page(f"http://127.0.0.1:{port}/")
