"""Decides how `kvc` reaches a console: address, token, one request, and the exit code of what went wrong.

Exit codes: 0 done, 1 refused, 2 wrong usage, 3 not reachable, 4 the console failed, 5 not known (no good token).
"""

import json
import os
import sys
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx

REFUSED, USAGE, UNREACHABLE, FAILED, UNKNOWN = 1, 2, 3, 4, 5
DEFAULT_URL = "http://127.0.0.1:8000"
SECONDS = 30.0


class Failure(Exception):
    """What the person is told, and the exit code."""

    def __init__(self, code: int, text: str, problem: Mapping[str, Any] | None = None) -> None:
        super().__init__(text)
        self.code, self.text, self.problem = code, text, problem


def saved_path() -> Path:
    """Where `kvc login` keeps address and token, for this user alone."""
    base = os.environ.get("KVC_CONFIG_HOME") or os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "kvc" / "login.json"


def saved() -> dict[str, str]:
    """What `kvc login` kept, empty if nothing.

    Raises:
        Failure: others can read it.
    """
    path = saved_path()
    try:
        if path.stat().st_mode & 0o077:
            raise Failure(USAGE, f"{path} can be read by others: chmod 600 it, or log in again.")
        found = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except OSError as e:
        raise Failure(USAGE, f"{path}: {e.strerror}.") from None
    except ValueError:
        raise Failure(USAGE, f"{path} is damaged: log in again.") from None
    if not isinstance(found, dict):
        raise Failure(USAGE, f"{path} is damaged: log in again.")
    return {str(k): str(v) for k, v in found.items()}


def save(url: str, token: str) -> Path:
    """Address and token are kept, readable by this user alone.

    Raises:
        Failure: there is no place where they can be.
    """
    path = saved_path()
    part = path.with_suffix(".new")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        part.unlink(missing_ok=True)
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            json.dump({"url": url, "token": token}, file)
        part.replace(path)
    except OSError as e:
        raise Failure(USAGE, f"{path}: {e.strerror}; nothing was kept.") from None
    return path


class Client:
    """One console, as one caller."""

    def __init__(self, url: str, token: str) -> None:
        self.url, self.token = url.rstrip("/"), token
        try:
            parsed = httpx.URL(self.url)
        except httpx.InvalidURL:
            raise Failure(USAGE, f"{url!r} is no address of a console.") from None
        if parsed.scheme not in ("http", "https") or not parsed.host or not 0 < (parsed.port or 80) < 65_536:
            raise Failure(USAGE, f"{url!r} is no address of a console.")
        if token and parsed.scheme == "http" and parsed.host not in ("127.0.0.1", "localhost", "::1"):
            raise Failure(USAGE, "A token is sent over https only, except to this machine itself.")

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        params: Mapping[str, Any] | None = None,
        match: str = "",
        key: str = "",
    ) -> httpx.Response:
        """The good answer.

        Args:
            method: of HTTP.
            path: below `/api/v1`.
            body: JSON.
            params: of the query; None values are left out.
            match: the ETag for If-Match.
            key: Idempotency-Key; a new one for each POST if not given, so that its repetition does nothing twice.

        Raises:
            Failure: refused, failed, or not reachable.
        """
        headers = {"Accept": "application/json", "X-Request-ID": f"kvc-{uuid.uuid4()}"}
        headers |= {"Authorization": f"Bearer {self.token}"} if self.token else {}
        headers |= {"If-Match": match} if match else {}
        headers |= {"Idempotency-Key": key or f"kvc-{uuid.uuid4()}"} if method == "POST" else {}
        query = {k: v for k, v in (params or {}).items() if v is not None}
        try:
            answer = httpx.request(
                method, f"{self.url}/api/v1{path}", json=body, params=query, headers=headers, timeout=SECONDS,
                follow_redirects=False,
            ) if body is not None else httpx.request(
                method, f"{self.url}/api/v1{path}", params=query, headers=headers, timeout=SECONDS,
                follow_redirects=False,
            )  # fmt: skip
        except httpx.HTTPError as e:
            raise Failure(UNREACHABLE, f"{self.url} does not answer: {type(e).__name__}.") from None
        if answer.status_code >= 300:
            raise refusal(answer)
        if answer.content and "json" not in answer.headers.get("Content-Type", ""):
            raise Failure(FAILED, f"What answers at {self.url} is no KV Console.")
        return answer

    def pages(self, path: str, *, limit: int, params: Mapping[str, Any] | None = None) -> Iterator[dict[str, Any]]:
        """The items of a list, page after page, at most `limit`."""
        cursor, left = None, limit
        while left > 0:
            page = self.call("GET", path, params={**(params or {}), "limit": min(left, 500), "cursor": cursor}).json()
            yield from page["items"]
            left, cursor = left - len(page["items"]), page["next"]
            if cursor is None:
                return


def refusal(answer: httpx.Response) -> Failure:
    """What an answer of 300 or more means."""
    try:
        problem = answer.json()
        text = f"{problem['code']}: {problem['detail']}"
        text += "".join(f"\n  {e['pointer']}: {e['detail']}" for e in problem.get("errors", []))
    except (ValueError, KeyError, TypeError):
        problem, text = None, f"HTTP {answer.status_code}"
    if answer.status_code >= 500:
        return Failure(UNREACHABLE if answer.status_code in (502, 503, 504) else FAILED, text, problem)
    if answer.status_code == 401:
        return Failure(UNKNOWN, text, problem)
    return Failure(REFUSED, text, problem)


def given_token(option: str) -> str:
    """The token: read from standard input for `-`, else KVC_TOKEN, else "" (what `kvc login` kept is the caller's).

    Raises:
        Failure: a token stood on the command line, where every user of the machine can read it.
    """
    if option == "-":
        return sys.stdin.readline().strip()
    if option:
        raise Failure(USAGE, "A token does not belong on the command line: give `--token -` and type or pipe it.")
    return os.environ.get("KVC_TOKEN", "")
