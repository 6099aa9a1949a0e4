"""What machines ask the `web` process: does it live, is it ready, how much of what; and whether it may start at all.

`/readyz` answers 503 with one entry per part that is not well. `/metrics` has no tenant in a label and no label whose
values grow with use. Neither says anything about a tenant.
"""

import contextlib
import hmac
import os
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import prometheus_client
import redis
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError, connection
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.utils.deprecation import MiddlewareMixin

from audit import tree
from kvconsole.infra import sql
from kvconsole.infra.addresses import within
from kvconsole.infra.keystore import keystore

INGEST_LAG_SECONDS = 10.0
"""Nodes are heard twice a second; a writer that committed nothing for longer is asked whether it still is one."""
DEMO_DOMAIN = "@demo.invalid"
"""Accounts that `seed_demo` makes have an address in it."""

REQUESTS = prometheus_client.Counter(
    "kvc_http_requests", "Answered HTTP requests of the web process", ["method", "route", "status"]
)
SECONDS = prometheus_client.Histogram("kvc_http_request_seconds", "Time to the first byte of the answer", ["route"])
NODES = prometheus_client.Gauge("kvc_nodes", "Nodes by state", ["state"])
SOURCES = prometheus_client.Gauge("kvc_sources", "Event sources by state", ["state"])
INGEST_LAG = prometheus_client.Gauge(
    "kvc_ingest_lag_seconds", "Since the last commit of the slowest writer; NaN: never"
)
LOG_SIZE = prometheus_client.Gauge("kvc_log_leaves", "Events sealed in the audit log; NaN: not known")
LOG_UNSIGNED = prometheus_client.Gauge("kvc_log_unsigned_leaves", "Of these, those under no signed head")
LOG_PENDING = prometheus_client.Gauge("kvc_log_pending", "Audit events that wait to be sealed, at most 100000")
LOG_AGE = prometheus_client.Gauge("kvc_log_pending_seconds", "For how long the first of them has waited")
LOG_FINDINGS = prometheus_client.Gauge("kvc_log_findings", "Open findings of gap finder, scrubber and signer")
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


class Plumbing(MiddlewareMixin):
    """Answers the plumbing before sessions, rights and host names are looked at; counts and measures the rest by route.

    A probe has no account and may come by address; a scraper's bearer is not one of our tokens.
    """

    def process_request(self, request: HttpRequest) -> HttpResponse | None:
        """The answer to a machine, or None."""
        request.META["kvc.started"] = time.perf_counter()
        if not within(str(request.META.get("REMOTE_ADDR", "")), settings.TRUSTED_PROXIES):
            request.META.pop("HTTP_X_FORWARDED_PROTO", None)  # who calls directly does not say that it was encrypted
        view = VIEWS.get(request.path)
        if view is None:
            return None
        allowed = request.method in ("GET", "HEAD")
        return view(request) if allowed else HttpResponse(status=405, headers={"Allow": "GET, HEAD"})

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        """Counted under the pattern of the route, never under the address."""
        if request.path not in VIEWS:
            route = request.resolver_match.route if request.resolver_match else "none"
            method = request.method if request.method in METHODS else "other"
            REQUESTS.labels(method, route, str(response.status_code)).inc()
            SECONDS.labels(route).observe(time.perf_counter() - request.META["kvc.started"])
        return response


def healthz(request: HttpRequest) -> HttpResponse:
    """The process lives and takes requests; nothing else is looked at."""
    return HttpResponse("ok\n", content_type="text/plain")


def readyz(request: HttpRequest) -> JsonResponse:
    """Each part this process depends on, and 503 while one of them is not well."""
    parts = {name: _measured(probe) for name, probe in PARTS.items()}
    ready = all(part["ok"] for part in parts.values())
    return JsonResponse({"ready": ready, "parts": parts}, status=200 if ready else 503)


def metrics(request: HttpRequest) -> HttpResponse:
    """Prometheus text; asks for the bearer of KVC_METRICS_TOKEN where one is set."""
    given = request.headers.get("Authorization", "").removeprefix("Bearer ")
    if settings.METRICS_TOKEN and not hmac.compare_digest(given.encode(), settings.METRICS_TOKEN.encode()):
        return HttpResponse(status=401, headers={"WWW-Authenticate": "Bearer"})
    _measure_fleet()
    _measure_log()
    return HttpResponse(prometheus_client.generate_latest(), content_type=prometheus_client.CONTENT_TYPE_LATEST)


VIEWS: dict[str, Callable[[HttpRequest], HttpResponse]] = {
    "/healthz": healthz,
    "/readyz": readyz,
    "/metrics": metrics,
}


# --- parts ---------------------------------------------------------------


class NotWell(Exception):
    """A part answered, and the answer is bad news."""


def _measured(probe: Callable[[], str]) -> dict[str, object]:
    began = time.perf_counter()
    try:
        detail, ok = probe(), True
    except (NotWell, DatabaseError, redis.RedisError, OSError) as e:
        # The message of a driver may hold an address or a role; its class is enough here, the log has the rest.
        detail, ok = str(e) if isinstance(e, NotWell) else type(e).__name__, False
    return {"ok": ok, "detail": detail, "ms": round((time.perf_counter() - began) * 1000, 1)}


def _database() -> str:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    return "answers"


def _broker() -> str:
    with redis.Redis.from_url(settings.VALKEY_URL, socket_timeout=1, socket_connect_timeout=1) as client:
        client.ping()
    return "answers"


def _key_store() -> str:
    path = Path(settings.KEYSTORE_DIR or "/nonexistent")
    if not path.is_dir():
        raise NotWell("KVC_KEYSTORE_DIR is no directory")
    if path.stat().st_mode & 0o077:
        raise NotWell("others than its owner may enter KVC_KEYSTORE_DIR")
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        raise NotWell("KVC_KEYSTORE_DIR cannot be written")
    if problems := keystore().problems():
        raise NotWell(problems[0])
    return "writable"


def _ingest() -> str:
    """The writer committed lately; where nothing happens it commits nothing, so then it is asked."""
    lag = _ingest_lag()
    if lag is not None and lag <= INGEST_LAG_SECONDS:
        return f"committed {lag:.1f} s ago"
    if any(_answers(url) for url in settings.INGEST_URLS):
        return "a writer is ready and idle"
    raise NotWell("no writer has been heard yet" if lag is None else f"the last commit was {lag:.0f} s ago")


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz", timeout=1, follow_redirects=False, trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False


PARTS: dict[str, Callable[[], str]] = {
    "database": _database,
    "broker": _broker,
    "key_store": _key_store,
    "ingest": _ingest,
}


def _ingest_lag() -> float | None:
    with connection.cursor() as cursor:
        cursor.execute(sql.named("kvconsole")["ingest_lag"])
        row = cursor.fetchone()
    return None if row is None or row[0] is None else float(row[0])


def _measure_fleet() -> None:
    """Gauges are as the catalog is now; where it cannot be read they say so (NaN) instead of an old number."""
    NODES.clear()
    SOURCES.clear()
    try:
        lag = _ingest_lag()
        with connection.cursor() as cursor:
            for gauge, name in ((NODES, "nodes_by_state"), (SOURCES, "sources_by_state")):
                cursor.execute(sql.named("kvconsole")[name])
                for state, count in cursor.fetchall():
                    gauge.labels(state).set(count)
    except DatabaseError:
        lag = None
    INGEST_LAG.set(float("nan") if lag is None else lag)


def _measure_log() -> None:
    """A log that is behind is no reason to serve nothing: it is a number here, and no part of `/readyz`."""
    values: list[float] = [float("nan")] * 5
    with contextlib.suppress(DatabaseError):
        s = tree.log_state()
        values = [s.size, s.size - s.signed_size, s.pending, s.oldest_pending_seconds, s.findings]
    for gauge, value in zip((LOG_SIZE, LOG_UNSIGNED, LOG_PENDING, LOG_AGE, LOG_FINDINGS), values, strict=True):
        gauge.set(value)


# --- start ---------------------------------------------------------------


def refuse_bad_start() -> None:
    """`web` may start. Where it may not, one error names every reason; nothing was served.

    Looks with a connection of its own, because an ASGI server imports the application inside its event loop.
    """
    if settings.DEMO:
        return
    needed = {"KVC_KEYSTORE_DIR": settings.KEYSTORE_DIR, "KVC_METRICS_TOKEN": settings.METRICS_TOKEN}
    if missing := [name for name, value in needed.items() if not value]:
        raise ImproperlyConfigured("\n".join(f"{name} (or {name}_FILE) is not set" for name in missing))
    with sql.connect("operator") as c:
        row = c.execute(sql.named("kvconsole")["demo_accounts"], (f"%{DEMO_DOMAIN}",)).fetchone()
    if row and row[0]:
        raise ImproperlyConfigured(f"{row[0]} demonstration accounts exist; delete them before this console serves")
