"""The far side of a gateway: an engine that speaks vLLM's HTTP, with a prefix cache in blocks of 16 under its salt.

Shapes of answers: captures of vLLM 0.32 on CPU (completion, chat, their streams, /tokenize, /v1/models).
"""

import contextlib
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

BLOCK = 16


class Engine:
    """An engine over HTTP; `url` says where."""

    def __init__(self, *, name="tiny", key=""):
        self.name, self.key = name, key
        self.asked, self.heads, self.cancelled, self.cached = [], [], 0, set()
        self.pause, self.silent = 0.0, 0.0
        self.lock = threading.Lock()
        engine = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 20

            def log_message(self, *_):
                pass

            def do_GET(self):
                engine.get(self)

            def do_POST(self):
                engine.post(self)

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_):
                pass  # a caller that hangs up

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def salts(self):
        return [body.get("cache_salt") for path, body in self.asked if path.startswith("/v1/")]

    def tokens(self, body):
        prompt = body.get("prompt")
        if isinstance(prompt, list):
            return prompt
        text = prompt if prompt is not None else "".join(f"<{m['role']}>{m['content']}" for m in body["messages"])
        return [ord(c) % 512 for c in text]

    def get(self, handler):
        if handler.path == "/v1/models":
            said = {"object": "list", "data": [{"id": self.name, "object": "model", "owned_by": "vllm", "root": "/m"}]}
            return self.answer(handler, 200, said)
        return self.answer(handler, 404, {"detail": "Not Found"})

    def post(self, handler):
        raw = handler.rfile.read(int(handler.headers["Content-Length"]))
        body = json.loads(raw)
        with self.lock:
            self.asked.append((handler.path, body))
            self.heads.append(dict(handler.headers))
        if handler.path == "/tokenize":
            tokens = self.tokens(body)
            said = {"count": len(tokens), "max_model_len": 4096, "tokens": tokens, "token_strs": None}
            return self.answer(handler, 200, said)
        if self.key and handler.headers.get("Authorization") != f"Bearer {self.key}":
            return self.answer(handler, 401, {"error": "Unauthorized"})
        if body["model"] != self.name:
            error = {"message": "The model does not exist.", "type": "NotFoundError", "param": "model", "code": 404}
            return self.answer(handler, 404, {"error": error})
        time.sleep(self.silent)
        return self.generate(handler, body, chat="chat" in handler.path)

    def usage(self, body):
        """Tokens of the prompt, and how many of its whole blocks were cached under this salt; now all of them are."""
        tokens, salt = self.tokens(body), body.get("cache_salt", "")
        with self.lock:
            hit = 0
            for end in range(BLOCK, len(tokens) + 1, BLOCK):
                place = (salt, tuple(tokens[:end]))
                hit = end if place in self.cached and hit == end - BLOCK else hit
                self.cached.add(place)
        return {
            "prompt_tokens": len(tokens), "total_tokens": len(tokens) + 3, "completion_tokens": 3,
            "prompt_tokens_details": {"cached_tokens": hit},
        }  # fmt: skip

    def generate(self, handler, body, chat):
        usage, kind = self.usage(body), "chat.completion" if chat else "text_completion"
        head = {"id": "cmpl-1", "object": kind, "created": 1, "model": self.name}
        if not body.get("stream"):
            choice = {"message": {"role": "assistant", "content": " a b c"}} if chat else {"text": " a b c"}
            said = {**head, "choices": [{"index": 0, **choice, "finish_reason": "length"}], "usage": usage}
            return self.answer(handler, 200, said)
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream; charset=utf-8")
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        try:
            for word in (" a", " b", " c"):
                choice = {"delta": {"content": word}} if chat else {"text": word}
                self.event(handler, {**head, "choices": [{"index": 0, **choice, "finish_reason": None}]})
                time.sleep(self.pause)
            if (body.get("stream_options") or {}).get("include_usage"):
                self.event(handler, {**head, "choices": [], "usage": usage})
            self.chunk(handler, b"data: [DONE]\n\n")
            self.chunk(handler, b"")
        except OSError:
            with self.lock:
                self.cancelled += 1
            handler.close_connection = True
        return None

    def event(self, handler, said):
        self.chunk(handler, b"data: " + json.dumps(said).encode() + b"\n\n")

    def chunk(self, handler, data):
        handler.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        handler.wfile.flush()

    def answer(self, handler, status, said):
        raw = json.dumps(said).encode()
        with contextlib.suppress(OSError):
            handler.send_response(status)
            handler.send_header("Content-Type", "application/json")
            handler.send_header("Content-Length", str(len(raw)))
            handler.end_headers()
            handler.wfile.write(raw)
