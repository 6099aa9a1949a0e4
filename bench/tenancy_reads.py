"""Tenancy with 10^5 tenants and 10^6 tokens: lists and gets over HTTP, at one connection.

Each address is asked by staff of the fleet and, where it may, by the tenant itself; the figure is the worst p99 of all.
`web` on a machine that has nothing else to do: `nice -n -5 python -m bench tenancy_reads`.
"""

from collections.abc import Iterator
from typing import Any

from bench.http_client import Connection
from bench.tenancy_site import TENANT, Figure, Site, a_site, figure, ms, timed

LIST_MS = 25.0
SAMPLES, WARM = 1000, 20
"""Calls of each address by each caller; the first ones do not count."""


def run(quick: bool) -> Iterator[Figure]:
    """p99 of lists and gets. `quick` has a tenth of the rows and of the calls."""
    with a_site(quick) as site:
        callers = {
            "fleet": site.connection(site.token("viewer", "operator", "auditor")),
            "tenant": site.connection(site.token("tenant-admin", "tenant-member", tenant=site.tenant)),
        }
        count = SAMPLES // 10 if quick else SAMPLES
        yield _worst("list", site, callers, {who: _lists(c, who) for who, c in callers.items()}, count)
        yield _worst("get", site, callers, {who: _gets(c, who, site) for who, c in callers.items()}, count)


def _lists(connection: Connection, who: str) -> list[str]:
    """First pages, pages in the depth of a list, and pages backwards."""
    first = ["/models", f"/tenants/{TENANT}/tokens", f"/people?tenant={TENANT}", "/adapters", "/share-groups"]
    found = ["/tenants?limit=50", *[f"{path}{'&' if '?' in path else '?'}limit=50" for path in first]]
    found += ["/nodes?limit=50", "/approvals?limit=50"] if who == "fleet" else []
    deep = [f"/tenants/{TENANT}/tokens", "/adapters", *(["/tenants", "/models"] if who == "fleet" else [])]
    for path in deep:
        found += [f"{path}?limit=50&cursor={cursor}" for cursor in _depth(connection, path)]
    return found


def _depth(connection: Connection, path: str) -> tuple[str, str]:
    """Cursors of a page far in the list: onwards and back."""
    cursor, back = "", ""
    for _ in range(100):
        page = connection.get(f"/api/v1{path}?limit=500" + (f"&cursor={cursor}" if cursor else ""))
        if page["next"] is None:
            break
        cursor, back = page["next"], page["prev"] or back
    return cursor, back or cursor


def _gets(connection: Connection, who: str, site: Site) -> list[str]:
    connection.again()  # the lists took a while
    person = connection.get(f"/api/v1/people?tenant={TENANT}&limit=1")["items"][0]["id"]
    group = connection.get("/api/v1/share-groups?limit=1")["items"][0]["id"]
    a, b = site.namespaces
    return [
        f"/explain-reuse?a={a}&b={b}",
        f"/tenants/{TENANT}", f"/tenants/{TENANT}/quotas", f"/tenants/{TENANT}/classes", f"/tenants/{TENANT}/usage",
        f"/people/{person}", f"/share-groups/{group}", "/models/ref-64", "/me",
        *(["/models/ref-64/rollout"] if who == "fleet" else []),
    ]  # fmt: skip


def _worst(kind: str, site: Site, callers: dict[str, Connection], paths: dict[str, list[str]], count: int) -> Figure:
    """The figure of the slowest address, with all of them."""
    details: dict[str, Any] = {}
    every: list[float] = []
    for who, connection in callers.items():
        for path in paths[who]:
            connection.again()
            timed(lambda c=connection, p=path: c.get(f"/api/v1{p}"), WARM)
            before = site.web_cpu()
            times = timed(lambda c=connection, p=path: c.get(f"/api/v1{p}"), count)
            cpu = round((site.web_cpu() - before) / count * 1000, 1)
            details[f"{who} {_short(path, details)}"] = [ms(times, 0.5), ms(times, 0.99), cpu]
            every += times
    worst = max(p99 for _, p99, _ in details.values())
    peer = {**site.told, "calls": len(every), "p50_of_all_ms": ms(every, 0.5), "p99_of_all_ms": ms(every, 0.99)}
    return figure(f"{kind}_p99", worst, "ms", f"<= {LIST_MS:.0f}, 1 connection", worst <= LIST_MS,
                  {**peer, "median_p99_webcpu_ms": details})  # fmt: skip


def _short(path: str, known: dict[str, Any]) -> str:
    head, _, cursor = path.partition("&cursor=")
    return (
        f"{head} {'onwards' if not any(k.endswith(f'{head} onwards') for k in known) else 'back'}" if cursor else head
    )
