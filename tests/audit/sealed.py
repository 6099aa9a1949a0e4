"""The log of the test database, sealed and signed by a real signer that answers over HTTP."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import psycopg
import uvicorn

from audit import signing
from audit.sequencer import Sequencer
from audit.tree import node_reader, tree_now
from kvconsole.infra import sql
from kvcore.proofs import consistency
from tests.audit.signer.making import TOKENS, a_signer


@contextlib.contextmanager
def serving(app, port: int = 0) -> Iterator[str]:
    """An ASGI application on a free port of loopback; its address."""
    listener = socket.create_server(("127.0.0.1", port))
    config = uvicorn.Config(app, log_level="error", lifespan="off", ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    deadline = time.monotonic() + 10
    while not server.started and time.monotonic() < deadline:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10)
        listener.close()


class Sealed:
    """What the sequencer's process does, when a test says so."""

    def __init__(self) -> None:
        self.size = 0

    def __call__(self) -> int:
        """All events that wait are in the log, and its head is signed and kept; its size."""
        sequencer = Sequencer(sql.dsn("seq"))
        try:
            assert sequencer.lead()
            while sequencer.waiting():
                sequencer.seal()
        finally:
            sequencer.close()
        with psycopg.connect(sql.dsn("seq"), autocommit=True) as c:
            self.size = sign(c, self.size)
        return self.size


def sign(c: psycopg.Connection, old: int) -> int:
    """The head of the log is signed by the signer that settings name, and kept."""

    def ask(statement, parameters):
        return c.execute(statement, parameters or None).fetchall()

    tree = tree_now(ask)
    if tree.size == old:
        return old
    proof = consistency(old, tree.size, node_reader(ask))
    note = signing.checkpoint(old_size=old, new_size=tree.size, new_root=tree.root, proof=proof)
    assert isinstance(note, str), note
    values = (tree.size, tree.root, note)
    c.execute("UPDATE audit_signing SET size = %s, root = %s, note = %s, signed_at = now(), signer = 'ok'", values)
    c.execute("INSERT INTO audit_checkpoint (size, root, note, signed_at) VALUES (%s, %s, %s, now())", values)
    return tree.size


@contextlib.contextmanager
def a_signer_at(directory, settings) -> Iterator[Sealed]:
    """Settings name a signer over this directory, which answers while the block lasts."""
    signer = a_signer(directory, clock=time.time)
    with serving(signer) as url:
        settings.SIGNER_URL, settings.SIGNER_TOKEN, settings.SIGNER_LOG_TOKEN = url, TOKENS.console, TOKENS.log
        try:
            yield Sealed()
        finally:
            signer.held.close()


def nobody(name: str, *arguments: str) -> None:
    """In the place of the broker: nobody is woken, as when it is away."""
