"""Decides what of a client's body reaches an engine, and what is read from the engine's answer.

Whatever could name another tenant's cache is taken out wherever it may be put: the engine must see our salt and no
other. What a prompt says is looked at only to count or tokenize it, and nothing of it is kept. Called by `kvc gateway`.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

SALT = "cache_salt"
DROPPED = frozenset(
    {
        "cachesalt", "extrakey", "cachenamespace",  # what engines mix into the hash of a prefix
        "kvtransferparams", "kvhints", "kvcachereportmode",  # name blocks of others, or make the engine tell of them
        "bootstraphost", "bootstrapport", "bootstraproom", "disaggregatedparams",
        "dataparallelrank", "routeddprank", "priority", "sessionid", "lorapath", "loraid",
    }
)  # fmt: skip
"""Fields of bodies that choose caches, blocks, workers or files; without `_` and `-`, in lower case.

Source: fields of vLLM 0.33 (`cache_salt`, `kv_transfer_params`, `vllm_xargs`), SGLang 0.5.23 (`extra_key`,
`bootstrap_*`, `data_parallel_rank`, `lora_path`), Dynamo 1.6 (`cache_namespace`)."""
SPOKEN = frozenset(
    {
        "messages", "prompt", "suffix", "tools", "functions", "tool_choice", "response_format", "stop", "documents",
        "guided_json", "structured_outputs", "chat_template", "logit_bias",
    }
)  # fmt: skip
"""What is the client's own matter: words, schemas and names in it are not the engine's fields."""
DEEPEST = 32
BYTES_PER_TOKEN = 4
"""Of a prompt that nobody tokenized; the number is an estimate and is told as nothing else."""
_WORD = re.compile(r"[_\-\s]")
_decode = msgspec.json.Decoder().decode


class Unreadable(Exception):
    """The body is no object of JSON, or nothing that an engine takes; `detail` tells nothing of it."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


def read(raw: bytes) -> dict[str, Any]:
    """The fields of a body.

    Raises:
        Unreadable: it is no object, too deep, or names no model.
    """
    try:
        body = _decode(raw)
    except (msgspec.DecodeError, RecursionError, ValueError):
        raise Unreadable("The body is no JSON that can be read.") from None
    if not isinstance(body, dict) or not isinstance(body.get("model"), str) or not body["model"]:
        raise Unreadable("The body is no object with a model.")
    return body


def cleaned(body: Mapping[str, Any]) -> tuple[dict[str, Any], int]:
    """The body without what is not the client's to choose, and how many such fields there were.

    A field is known by its name however it is written; within `extra_body`, `vllm_xargs` and any other wrapper too.

    Raises:
        Unreadable: wrappers are nested too deeply to be looked through.
    """
    found = {"dropped": 0}
    return _cleaned(body, found, 0), found["dropped"]


def _cleaned(fields: Mapping[str, Any], found: dict[str, int], depth: int) -> dict[str, Any]:
    if depth > DEEPEST:
        raise Unreadable("The body is nested too deeply.")
    kept: dict[str, Any] = {}
    for name, value in fields.items():
        if _WORD.sub("", name).casefold() in DROPPED:
            found["dropped"] += 1
        elif depth == 0 and name in SPOKEN:
            kept[name] = value
        else:
            kept[name] = _within(value, found, depth + 1)
    return kept


def _within(value: Any, found: dict[str, int], depth: int) -> Any:
    if depth > DEEPEST:
        raise Unreadable("The body is nested too deeply.")
    if isinstance(value, dict):
        return _cleaned(value, found, depth)
    if isinstance(value, list):
        return [_within(one, found, depth + 1) for one in value]
    return value


def salted(body: dict[str, Any], salt: str) -> bytes:
    """The body with our salt, as the engine gets it."""
    return msgspec.json.encode({**body, SALT: salt})


def given_tokens(body: Mapping[str, Any]) -> list[int] | None:
    """Token ids where the client sent one prompt of them."""
    prompt = body.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], list):
        (prompt,) = prompt
    whole = isinstance(prompt, list) and bool(prompt) and all(type(x) is int and 0 <= x < 2**32 for x in prompt)
    return prompt if whole else None


def tokenizable(body: Mapping[str, Any]) -> dict[str, Any] | None:
    """The body of POST /tokenize for this prompt; None where it is several prompts, or none that it takes."""
    if isinstance(body.get("messages"), list):
        taken = (
            "model",
            "messages",
            "tools",
            "add_generation_prompt",
            "continue_final_message",
            "chat_template_kwargs",
        )
        return {name: body[name] for name in taken if name in body}
    prompt = body.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1:
        (prompt,) = prompt
    return {"model": body["model"], "prompt": prompt} if isinstance(prompt, str) else None


def estimated(body: Mapping[str, Any], size: int) -> int:
    """How many tokens the prompt has at a guess; at least one.

    Args:
        body: of the request.
        size: its bytes.
    """
    tokens = given_tokens(body)
    return len(tokens) if tokens else max(1, size // BYTES_PER_TOKEN)


class Answer:
    """What an answer says of itself while it passes: when it began, and how much of the prompt was cached.

    Only the end of it is looked at, at most `TAIL` bytes; the bytes themselves pass untouched.
    """

    TAIL = 64 * 1024

    def __init__(self, *, streamed: bool) -> None:
        self.streamed, self.begun = streamed, False
        self._tail = b""

    def pass_(self, chunk: bytes) -> bool:
        """One more piece went by; True at the first that holds something of an answer."""
        self._tail = (self._tail + chunk)[-self.TAIL :]
        if self.begun or (self.streamed and b"data:" not in self._tail):
            return False
        self.begun = True
        return True

    def usage(self) -> tuple[int | None, int | None]:
        """Prompt tokens and cached ones as the engine counted them; None = it did not say."""
        for said in self._said():
            usage = said.get("usage") if isinstance(said, dict) else None
            if isinstance(usage, dict):
                details = usage.get("prompt_tokens_details")
                cached = details.get("cached_tokens") if isinstance(details, dict) else None
                return _count(usage.get("prompt_tokens")), _count(cached)
        return None, None

    def _said(self) -> Iterator[Any]:
        if not self.streamed:
            yield _quiet(self._tail)
            return
        for line in reversed(self._tail.splitlines()):
            if line.startswith(b"data:") and b'"usage"' in line:
                yield _quiet(line[5:])


def _quiet(raw: bytes) -> Any:
    try:
        return _decode(raw)
    except (msgspec.DecodeError, RecursionError, ValueError):
        return None


def _count(value: Any) -> int | None:
    return value if type(value) is int and value >= 0 else None
