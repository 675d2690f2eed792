"""GitHub webhooks on the public port: signed deliveries, each accepted once and only while it is recent.

A signature covers only the body, so a replay can use another delivery id: the signature is stored as well,
and the time of a push is part of its body. An unknown repository and a wrong signature get the same
response, so a client cannot find out which repositories are configured.
"""

import hmac
import re
from collections.abc import Iterator, Mapping, Sequence
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import TypeVar

import msgspec
import structlog
from aiohttp import web
from msgspec import Struct, field

from persys.core.intent.gitops import Push, branch_of, repository_name
from persys.errors import InvalidError, SettingsError
from persys.gateway.http.middleware import RequestContext, RequestPipeline, read_body
from persys.gateway.http.problems import ProblemError
from persys.gateway.http.rate_limit import RateLimiter
from persys.gateway.http.responses import JSON
from persys.gateway.routes.gateway import health
from persys.gateway.webhooks.push_queue import PushQueue
from persys.infra.clock import Clock

T = TypeVar("T")

log = structlog.get_logger()

PATH = "/webhooks/github"
WEBHOOK_BYTES_MAX = 5 * 1024 * 1024
MAX_AGE_SECONDS = 3600.0
PER_SECOND = 10.0
BURST = 50
_SIGNATURE = "X-Hub-Signature-256"
_DELIVERY = "X-GitHub-Delivery"
_EVENT = "X-GitHub-Event"
_TEXT_MAX = 128
_SIGNATURE_FORM = re.compile("sha256=[0-9a-f]{64}")


class RepositoryPayload(Struct):
    full_name: str
    clone_url: str = ""
    default_branch: str = ""
    pushed_at: int | str = 0  # Unix seconds in a push event


class Delivered(Struct):
    """The payload of any repository event."""

    repository: RepositoryPayload


class PushPayload(Struct):
    ref: str
    repository: RepositoryPayload
    after: str = ""
    is_deleted: bool = field(default=False, name="deleted")


class Hook(Struct, frozen=True):
    repository: str
    secret: bytes

    def __repr__(self) -> str:
        return f"Hook({self.repository})"  # keeps the secret out of tracebacks


def read_hooks(configured: Sequence[Mapping[str, str]]) -> dict[str, Hook]:
    """Hooks by repository. Raises SettingsError, also for a hook without a secret."""
    hooks: dict[str, Hook] = {}
    for one in configured:
        unknown = one.keys() - {"repository", "secret", "secret_file"}
        if unknown or not one.get("repository"):
            raise SettingsError("webhooks: expected repository, and secret or secret_file")
        name = repository_name(one["repository"])
        hooks[name] = Hook(name, _secret(one))
    return hooks


class Webhooks:
    def __init__(
        self,
        pipeline: RequestPipeline,
        hooks: Mapping[str, Hook],
        clock: Clock,
        pushes: PushQueue,
    ) -> None:
        self._pipeline = pipeline
        self._hooks = hooks
        self._clock = clock
        self._pushes = pushes
        self._rates = RateLimiter(clock, per_second=PER_SECOND, burst=BURST)

    def routes(self) -> Iterator[web.RouteDef]:
        """All routes of the public port."""
        yield web.get("/health", self._pipeline.serve(health, open_to_all=True, contract=True))
        yield web.post(PATH, self._pipeline.serve(self._deliver, open_to_all=True, contract=True))

    async def _deliver(self, context: RequestContext) -> web.StreamResponse:
        request = context.request
        self._rates.count(request.remote or "")
        delivery = _header(request, _DELIVERY)
        signature = request.headers.get(_SIGNATURE, "")
        if not delivery or not signature:
            raise InvalidError(_SIGNATURE, f"expected together with {_DELIVERY}")
        if not _SIGNATURE_FORM.fullmatch(signature):
            raise ProblemError(401, "invalid webhook signature")
        body = await read_body(request)  # not read without a well-formed signature
        repository = self._verified(body, signature)
        self._refuse_old(request, repository)
        event = _header(request, _EVENT)
        push = read_push(body, delivery) if event == "push" else None
        # Remembered for twice the accepted age: either clock may be off.
        await self._pushes.enqueue(push, (delivery, signature), 2 * MAX_AGE_SECONDS)
        log.info(
            "webhook.taken", repository=repository.full_name, event_kind=event, delivery=delivery
        )
        accepted = msgspec.json.encode({"status": "accepted"})
        return web.Response(status=202, body=accepted, content_type=JSON)

    def _verified(self, body: bytes, signature: str) -> RepositoryPayload:
        repository = read_delivery(body)
        name = repository_name(repository.clone_url or repository.full_name)
        hook = self._hooks.get(name)
        secret = hook.secret if hook is not None else b""
        expected = "sha256=" + hmac.new(secret, body, "sha256").hexdigest()
        same = hmac.compare_digest(expected.encode(), signature.encode("utf-8", "replace"))
        if hook is None or not same:
            log.warning("webhook.refused", repository=name[:_TEXT_MAX], reason="signature")
            raise ProblemError(401, "invalid webhook signature")
        return repository

    def _refuse_old(self, request: web.Request, repository: RepositoryPayload) -> None:
        """Refuse an old delivery by the signed push time and the Date header; either may be missing."""
        now = self._clock.now().timestamp()
        times = [repository.pushed_at] if isinstance(repository.pushed_at, int) else []
        if date := request.headers.get("Date"):
            try:
                times.append(round(parsedate_to_datetime(date).timestamp()))
            except ValueError as err:
                raise InvalidError("Date", f"{date[:40]!r}: expected an HTTP date") from err
        if any(at and abs(now - at) > MAX_AGE_SECONDS for at in times):
            raise ProblemError(409, "the delivery is too old: send it again")


def _header(request: web.Request, name: str) -> str:
    """The header as storable text: invalid UTF-8 is replaced."""
    return request.headers.get(name, "")[:_TEXT_MAX].encode(errors="replace").decode()


def _secret(one: Mapping[str, str]) -> bytes:
    name = one["repository"]
    if bool(one.get("secret")) == bool(one.get("secret_file")):
        raise SettingsError(f"webhooks: {name}: expected either secret or secret_file")
    if one.get("secret"):
        return one["secret"].encode()
    try:
        secret = Path(one["secret_file"]).read_bytes().strip()
    except OSError as err:
        raise SettingsError(f"webhooks: {name}: {one['secret_file']}: {err.strerror}") from err
    if not secret:
        raise SettingsError(f"webhooks: {name}: {one['secret_file']}: the file is empty")
    return secret


def read_delivery(body: bytes) -> RepositoryPayload:
    """Raises InvalidError."""
    return _read(body, Delivered).repository


def read_push(body: bytes, delivery: str) -> Push | None:
    """The push, or None for a tag or a deleted branch. Raises InvalidError."""
    payload = _read(body, PushPayload)
    branch = branch_of(payload.ref)
    if not branch or payload.is_deleted:
        return None
    repository = payload.repository
    return Push(
        repository_name(repository.clone_url or repository.full_name),
        branch,
        branch == repository.default_branch,
        payload.after,
        delivery,
    )


def _read(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as err:
        raise InvalidError("body", str(err)) from err
