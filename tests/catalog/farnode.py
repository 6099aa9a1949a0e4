"""The far side of an order: a small agent that can misbehave, and the real signer, both on free ports."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from kvcore.messages import PROTOCOL, Command, Receipt, Sent, open_command, receipt_hash, seal
from tests.architecture.tree import CLONE


class FarNode:
    """Answers `POST /v1/commands` as an agent does; `mood` makes it do something else."""

    def __init__(self, mood="well"):
        self.key, self.mood, self.node, self.console_key = Ed25519PrivateKey.generate(), mood, "", None
        self.prev, self.seen, self.beside = "", [], {}
        far = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                far.seen.append((self.path, dict(self.headers)))
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    sent = msgspec.json.decode(body, type=Sent)
                    far.beside |= sent.keys
                    far.answer(self, sent)

            def log_message(self, *args):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join(5)

    @property
    def public(self):
        return self.key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)

    def answer(self, http, envelope):
        if self.mood == "redirect":
            http.send_response(302)
            http.send_header("Location", self.url + "/v1/elsewhere")
            http.end_headers()
            return
        if self.mood == "refuses":
            return self._send(http, 403, b'{"code": "command-signature"}')
        if self.mood == "huge":
            return self._send(http, 200, b"x" * 200_000)
        if self.mood == "slow":
            http.send_response(200)
            http.end_headers()
            for _ in range(40):
                http.wfile.write(b" ")
                http.wfile.flush()
                time.sleep(0.2)
            return
        if self.mood == "nonsense":
            return self._send(http, 200, b"[1]")
        if self.mood == "nested":
            return self._send(http, 200, b'{"signature":"00","key":"","body":{"x":' + b"[" * 9000 + b"]" * 9000 + b"}}")
        if self.mood == "nested-refusal":
            return self._send(http, 400, b"[" * 9000)
        command = open_command(envelope, self._verify, node=self.node, now=time.time())
        assert isinstance(command, Command), command
        changed = {"other-step": {"step": "x"}, "other-node": {"node": "x"}, "other-kind": {"kind": "purge"}}
        fields = {"step": command.step, "kind": command.kind, "node": self.node} | changed.get(self.mood, {})
        outcome = {"cannot": "failed", "will-not": "refused"}.get(self.mood, "done")
        receipt = Receipt(v=PROTOCOL, outcome=outcome, at=time.time(), prev=self.prev, **fields)
        key = Ed25519PrivateKey.generate() if self.mood == "other-key" else self.key
        self.prev = receipt_hash(receipt)
        self._send(http, 200, msgspec.json.encode(seal("receipt", receipt, key.sign, self.public)))

    def _verify(self, signature, message):
        self.console_key.verify(signature, message)
        return True

    @staticmethod
    def _send(http, status, body):
        http.send_response(status)
        http.send_header("Content-Length", str(len(body)))
        http.end_headers()
        http.wfile.write(body)


class RunningSigner:
    """`manage.py signer` as a process over what is in a directory, without any database setting."""

    token, log_token = "t" * 40, "g" * 40

    def __init__(self, directory, *, env=None):
        """`env`: instead of an environment of its own, with port and tokens."""
        self.key_file = directory / "command.key"
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.process = subprocess.Popen(
            [sys.executable, "manage.py", "signer", "--port", str(self.port)], cwd=CLONE,
            env=env or self.env(directory), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            try:
                assert json.load(urllib.request.urlopen(f"{self.url}/healthz", timeout=2)) == {"ok": True}
                return
            except OSError:
                if self.process.poll() is not None:
                    raise AssertionError(self.process.communicate()[0].decode()) from None
                time.sleep(0.05)
        raise AssertionError("the signer did not answer")

    @classmethod
    def env(cls, directory):
        return {
            "PATH": os.environ["PATH"], "KVC_ENV": "test", "KVC_SIGNER_TOKEN": cls.token,
            "KVC_SIGNER_LOG_TOKEN": cls.log_token, "KVC_COMMAND_KEY_FILE": str(directory / "command.key"),
            "KVC_LOG_KEY_FILE": str(directory / "log.key"), "KVC_EXPORT_KEY_FILE": str(directory / "export.key"),
            "KVC_SIGNER_STATE": str(directory / "signer.json"),
        }  # fmt: skip

    def ask(self, path, body=None, token=None):
        """Status and body of one request; GET where there is no body."""
        headers = {"Authorization": f"Bearer {self.token if token is None else token}"}
        raw = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        try:
            with urllib.request.urlopen(urllib.request.Request(self.url + path, raw, headers), timeout=5) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as e:
            with e:
                return e.code, json.load(e)

    def head(self, asked):
        """The answer to the keeper of the log."""
        return self.ask("/v1/checkpoint", asked, self.log_token)

    def close(self, *, kill=False):
        (self.process.kill if kill else self.process.terminate)()
        self.process.communicate(timeout=10)
