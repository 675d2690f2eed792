"""The dashboard's static files and the spec parser."""

from io import BytesIO

import pytest

from persys.gateway.dashboard.routes import ASSETS, BYTES_MAX, PATH, PREFIX, pages
from shells.gateway.running_gateway import RunningGateway, a_gateway, quiet

SPEC = "id: web\ncontainer: {image: nginx}\n---\nid: db\ndesired_state: Stopped\n"


async def test_every_file_is_served_with_its_type_and_security_headers(api: RunningGateway) -> None:
    for name, page in pages().items():
        async with api.session.get(f"{PREFIX}{name}") as response:
            assert (response.status, response.content_type) == (200, page.media_type)
            assert await response.read() == page.plain
            rules = response.headers["Content-Security-Policy"]
            assert "script-src 'self'" in rules
            assert "unsafe" not in rules
            assert response.headers["X-Content-Type-Options"] == "nosniff"
            kept = "immutable" if name.startswith(ASSETS) else "no-cache"
            assert kept in response.headers["Cache-Control"]


async def test_an_unchanged_file_is_304(api: RunningGateway) -> None:
    async with api.session.get(PREFIX) as response:
        tag = response.headers["ETag"]

    async with api.session.get(PREFIX, headers={"If-None-Match": tag}) as again:
        assert (again.status, await again.read(), again.headers["ETag"]) == (304, b"", tag)
    async with api.session.get(PREFIX, headers={"If-None-Match": '"other"'}) as changed:
        assert changed.status == 200


async def test_a_file_is_compressed_if_the_client_accepts_gzip(api: RunningGateway) -> None:
    async with api.session.get(PREFIX, headers={"Accept-Encoding": "identity"}) as plain:
        assert "Content-Encoding" not in plain.headers
    async with api.session.get(PREFIX, headers={"Accept-Encoding": "gzip"}) as compressed:
        assert compressed.headers["Content-Encoding"] == "gzip"


@pytest.mark.parametrize("path", ["/", "/ui"])
async def test_short_paths_redirect_to_the_dashboard(api: RunningGateway, path: str) -> None:
    async with api.session.get(path) as response:
        assert (response.status, response.url.path) == (200, PREFIX)


@pytest.mark.parametrize("path", ["../serving.py", "%2e%2e/serving.py", "assets/", "missing.js"])
async def test_other_paths_under_ui_are_404(api: RunningGateway, path: str) -> None:
    async with api.session.get(f"{PREFIX}{path}") as response:
        assert response.status == 404


async def test_a_spec_file_is_parsed_like_persysctl_does(api: RunningGateway) -> None:
    status, response = await api.ask("POST", PATH, data=SPEC.encode())

    assert status == 200
    assert response["workloads"] == [
        {"workload_id": "web", "spec": {"type": "container", "container": {"image": "nginx"}}},
        {"workload_id": "db", "desired_state": "Stopped"},
    ]
    assert response["lines"] == [1, 4]


@pytest.mark.parametrize(
    ("text", "line", "field"),
    [
        (b"id: a\nvm:\n  vcpu: 1\n", 3, "vm.vcpu"),
        (b"id: [", 1, "file"),
        (b"\xff\xfe", 0, "file"),
        (b"", 0, "file"),
    ],
)
async def test_an_invalid_spec_file_is_refused_with_the_line(
    api: RunningGateway, text: bytes, line: int, field: str
) -> None:
    status, problem = await api.ask("POST", PATH, data=text)

    assert (status, problem["line"], problem["field"]) == (400, line, field)


async def test_a_too_large_spec_file_is_refused(api: RunningGateway) -> None:
    status, _ = await api.ask("POST", PATH, data=BytesIO(b"#" * (BYTES_MAX + 1)))

    assert status == 413


async def test_a_spec_file_is_not_parsed_without_a_scheduler() -> None:
    async with a_gateway(quiet(scheduler_addr=("127.0.0.1:1",))) as api:
        status, _ = await api.ask("POST", PATH, data=SPEC.encode())

    assert status == 503
