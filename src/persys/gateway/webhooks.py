"""What GitHub tells the public port: signed deliveries, each taken once and while it is young.

A signature covers only the body, so a replay may come under another id: what is remembered is the signature
too, and a push says itself when it was. What would surprise: a repository that is not known and a signature
that is wrong are answered alike, so nobody learns which repositories there are.
"""

import hmac
import re
from collections.abc import Iterator, Mapping, Sequence
from email.utils import parsedate_to_datetime
from pathlib import Path

import msgspec
import structlog
from aiohttp import web
from msgspec import Struct

from persys.core.gitops import repository_name
from persys.errors import InvalidError, SettingsError
from persys.gateway.answering import JSON
from persys.gateway.door import Ask, Door, read_body
from persys.gateway.limits import Rates
from persys.gateway.overview import health
from persys.gateway.problems import ProblemError
from persys.gateway.pushes import Pushes
from persys.infra.clock import Clock
from persys.wire.github import RepositoryPayload, read_delivery, read_push

log = structlog.get_logger()

PATH = "/webhooks/github"
WEBHOOK_BYTES_MAX = 5 * 1024 * 1024
YOUNG_SECONDS = 3600.0
PER_SECOND = 10.0
BURST = 50
_SIGNATURE = "X-Hub-Signature-256"
_DELIVERY = "X-GitHub-Delivery"
_EVENT = "X-GitHub-Event"
_TEXT_MAX = 128
_SIGNATURE_FORM = re.compile("sha256=[0-9a-f]{64}")


class Hook(Struct, frozen=True):
    repository: str
    secret: bytes

    def __repr__(self) -> str:
        return f"Hook({self.repository})"  # a traceback must not tell the secret


def read_hooks(told: Sequence[Mapping[str, str]]) -> dict[str, Hook]:
    """By repository. Raises SettingsError: one without a secret would let in anybody."""
    hooks: dict[str, Hook] = {}
    for one in told:
        unknown = one.keys() - {"repository", "secret", "secret_file"}
        if unknown or not one.get("repository"):
            raise SettingsError("webhooks: expected repository, and secret or secret_file")
        name = repository_name(one["repository"])
        hooks[name] = Hook(name, _secret(one))
    return hooks


class Webhooks:
    def __init__(
        self,
        door: Door,
        hooks: Mapping[str, Hook],
        clock: Clock,
        pushes: Pushes,
    ) -> None:
        self._door = door
        self._hooks = hooks
        self._clock = clock
        self._pushes = pushes
        self._rates = Rates(clock, per_second=PER_SECOND, burst=BURST)

    def routes(self) -> Iterator[web.RouteDef]:
        """All that can be reached there."""
        yield web.get("/health", self._door.behind(health, open_to_all=True, contract=True))
        yield web.post(PATH, self._door.behind(self._deliver, open_to_all=True, contract=True))

    async def _deliver(self, ask: Ask) -> web.StreamResponse:
        request = ask.request
        self._rates.take(request.remote or "")
        delivery = _header(request, _DELIVERY)
        signature = request.headers.get(_SIGNATURE, "")
        if not delivery or not signature:
            raise InvalidError(_SIGNATURE, f"expected, beside {_DELIVERY}")
        if not _SIGNATURE_FORM.fullmatch(signature):
            raise ProblemError(401, "the signature is not right")
        body = await read_body(request)  # only now: without a signature nothing is read
        repository = self._verified(body, signature)
        self._refuse_old(request, repository)
        event = _header(request, _EVENT)
        push = read_push(body, delivery) if event == "push" else None
        # For twice as long as it is young: either side's clock may be off.
        await self._pushes.take(push, (delivery, signature), 2 * YOUNG_SECONDS)
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
            raise ProblemError(401, "the signature is not right")
        return repository

    def _refuse_old(self, request: web.Request, repository: RepositoryPayload) -> None:
        """By what is signed, and by what the sender says; either may be missing."""
        now = self._clock.now().timestamp()
        times = [repository.pushed_at] if isinstance(repository.pushed_at, int) else []
        if date := request.headers.get("Date"):
            try:
                times.append(round(parsedate_to_datetime(date).timestamp()))
            except ValueError as err:
                raise InvalidError("Date", "is none") from err
        if any(at and abs(now - at) > YOUNG_SECONDS for at in times):
            raise ProblemError(409, "the delivery is too old")


def _header(request: web.Request, name: str) -> str:
    """Text that can be stored: bytes that are not UTF-8 are replaced."""
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
