"""A web and a worker process in an attacker's hands: what these two know, and how they would use it."""

import json
import os
import time
import urllib.error
import urllib.request
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import psycopg

from audit.asked import Evidence
from audit.tree import node_reader
from kvconsole.infra.sql import PLATFORM
from kvcore.leaf import body_hash
from kvcore.messages import PROTOCOL
from kvcore.proofs import inclusion
from tests.audit.beside import ROW, TARGET
from tests.audit.beside import values as beside
from tests.audit.loglab import INSERT
from tests.running import Console

NODE = "019a0000-0000-7000-8000-00000000000a"
ORDER = 0x0501
LEAF = "SELECT idx, data FROM audit_leaf WHERE event = (SELECT id FROM audit_event WHERE event_id = %s)"


class Intruder:
    """Reads the environment of the running processes, and the files that it names; asks as they can ask."""

    def __init__(self, console: Console, *taken: str) -> None:
        self.env: dict[str, str] = {}
        for name in taken:
            path = Path(f"/proc/{console.processes[name].pid}/environ")
            raw = path.read_bytes().decode() if path.exists() else ""
            found = dict(one.partition("=")[::2] for one in raw.split("\0") if one) or console.site.env(name)
            self.env |= {key: value for key, value in found.items() if key.startswith("KVC_")}
        self.others = {one for name in ("ingest", "beat") for one in console.site.env(name).values()}
        passwords = [key for key in self.env if key.startswith("KVC_DB_") and key.endswith("_PASSWORD")]
        self.roles = sorted(key[7:-9].lower() for key in passwords)
        self.refused: Counter[str] = Counter()
        self.signed: list[dict[str, Any]] = []

    def loot(self) -> set[str]:
        """Everything that could be a secret: settings, and small files in the directories that settings name."""
        found = set(self.env.values()) | self.others | {""}
        for value in self.env.values():
            if os.path.isdir(value):
                for path in Path(value).rglob("*"):
                    if path.is_file() and path.stat().st_size < 1024:
                        found |= {path.read_bytes().hex(), path.read_bytes().decode(errors="replace")}
        return {one for one in found if one.isascii() and one.isprintable()}

    def connect(self, role: str) -> psycopg.Connection:
        """The database, as one of the roles whose password is known."""
        password = self.env[f"KVC_DB_{role.upper()}_PASSWORD"]
        place = {"host": self.env["KVC_DB_HOST"], "port": self.env["KVC_DB_PORT"], "dbname": self.env["KVC_DB_NAME"]}
        return psycopg.connect(**place, user=f"kv_{role}", password=password, autocommit=True)

    def ask(self, path: str, body: Any = None, token: str | None = None) -> tuple[int, dict[str, Any]]:
        """Status and answer of the signer."""
        given = self.env["KVC_SIGNER_TOKEN"] if token is None else token
        raw = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(self.env["KVC_SIGNER_URL"] + path, raw, {"Authorization": f"Bearer {given}"})
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as e:
            with e:
                return e.code, json.load(e)

    def wants(self, body: Any, token: str | None = None) -> str:
        """Asks for a signature: the code of the refusal, "" where there is one."""
        status, answer = self.ask("/v1/sign", body, token)
        if status == 200:
            self.signed.append(answer)
            return ""
        self.refused[answer["code"]] += 1
        return str(answer["code"])

    # --- with the log -----------------------------------------------------------------------

    def size(self) -> int:
        """Of the head that the signer signed last."""
        return int(self.ask("/v1/public-keys")[1]["size"])

    def evidence(self, event: str, size: int) -> dict[str, Any] | None:
        """An event of the log with the proof that it is there, as anybody can make it who reads the database."""
        with self.connect("operator") as c:
            row = c.execute(LEAF, (event,)).fetchone()
            if row is None or row[0] >= size:
                return None
            node = node_reader(lambda query, values: c.execute(query, values or None).fetchall())
            path = inclusion(row[0], size, node)
            ((body,),) = c.execute("SELECT body FROM audit_event WHERE event_id = %s", (event,)).fetchall()
        proved = Evidence(leaf=row[1].hex(), index=row[0], proof=[one.hex() for one in path], body=body.decode())
        return dict(msgspec.to_builtins(proved))

    def request(self, order: str, approval: str | None = None, **fields: Any) -> dict[str, Any]:
        """What to send for these events of the log; `fields` change the command."""
        size = self.size()
        found = self.evidence(order, size)
        assert found is not None, "the order is not under the head yet"
        asked = {"command": command(found["leaf"][168:232]) | fields, "order": found, "size": size}
        return asked | ({"approval": self.evidence(approval, size)} if approval else {})

    def follow(self, order: str, approval: str | None = None, **fields: Any) -> str:
        """Asks for a command by an order of the log; again where the log grew in between."""
        while (code := self.wants(self.request(order, approval, **fields))) == "stale-size":
            pass
        return code

    def plant(
        self, body: bytes, *, event_type: int, role: str = "operator", actor: bytes = bytes(16), row: bool = True,
        **more: Any,
    ) -> str:  # fmt: skip
        """An event written past all services: its id. `more`: further columns. An order with the row that it needs."""
        event, told = str(uuid.uuid4()), json.loads(body)["object"]
        columns = "".join(f", {name}" for name in more)
        values = (event, event_type, PLATFORM, bytes(16), actor, 1, 0, body, body_hash(body), bytes(32), told["kind"],
                  told["id"], "", *more.values())  # fmt: skip
        with self.connect(role) as c, c.transaction():
            if event_type == ORDER and role == "operator" and row:
                self.beside(c, json.loads(body)["data"])
            c.execute(f"{INSERT[:-1]}{columns}) VALUES ({', '.join(['%s'] * len(values))})", values)
        return event

    def beside(self, c: psycopg.Connection, data: dict[str, Any]) -> None:
        """The operation of an order, and what it reaches, as who has the console's login can write them."""
        plan = bytes.fromhex(data["plan_hash"])
        c.execute(ROW, beside(data["operation"], risk=data["risk"], approval=data["approval"], plan=plan))
        for _ in range(data.get("targets") or 0):
            c.execute(TARGET, (PLATFORM, data["operation"]))


def command(order_hash: str) -> dict[str, Any]:
    """A command that destroys."""
    now = time.time()
    return {
        "v": PROTOCOL, "step": str(uuid.uuid4()), "kind": "purge", "node": NODE, "order_hash": order_hash,
        "issued_at": now, "expires_at": now + 60,
    }  # fmt: skip
