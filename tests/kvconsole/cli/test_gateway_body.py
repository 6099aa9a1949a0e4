"""What of a client's body reaches an engine: our salt and no other, however theirs is written."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvconsole.cli import gateway_body as gb

THEIRS = "salt-of-somebody-else"
SPELLINGS = ["cache_salt", "cache-salt", "cacheSalt", "CACHE_SALT", "Cache Salt", "extra_key", "cache_namespace"]
WRAPPERS = ["extra_body", "vllm_xargs", "sampling_params", "extra_args", "nvext", "anything", "metadata"]


def through(body):
    return gb.salted(gb.cleaned(gb.read(json.dumps(body).encode()))[0], "ours")


@pytest.mark.parametrize("name", SPELLINGS)
@pytest.mark.parametrize("wrapper", ["", *WRAPPERS])
def test_a_clients_salt_reaches_no_engine(name, wrapper):
    inner = {name: THEIRS, "top_k": 3}
    body = {"model": "m", "prompt": "x"} | ({wrapper: [{"deeper": inner}]} if wrapper else inner)
    sent = through(body)
    assert THEIRS.encode() not in sent
    assert json.loads(sent)["cache_salt"] == "ours"
    assert b'"top_k":3' in sent


def test_a_key_that_comes_twice_has_one_value_and_it_is_ours():
    raw = b'{"model":"m","cache_salt":"a","prompt":"x","cache_salt":"b","c\\u0061che_salt":"c"}'
    sent = gb.salted(gb.cleaned(gb.read(raw))[0], "ours")
    assert sent.count(b"cache_salt") == 1
    assert json.loads(sent) == {"model": "m", "prompt": "x", "cache_salt": "ours"}


@pytest.mark.parametrize(
    "field", ["kv_transfer_params", "kv_hints", "bootstrap_room", "data_parallel_rank", "lora_path", "priority"]
)
def test_nobody_names_blocks_workers_or_files_of_others(field):
    body, dropped = gb.cleaned({"model": "m", field: {"remote_block_ids": [1]}, "extra_body": {field: 1}})
    assert (field in json.dumps(body), dropped) == (False, 2)


def test_words_and_schemas_of_the_client_stay_as_they_are():
    said = {
        "model": "m",
        "messages": [{"role": "user", "content": "what is cache_salt?", "cache_salt": 1}],
        "tools": [{"function": {"name": "f", "parameters": {"properties": {"cache_salt": {"type": "string"}}}}}],
        "response_format": {"json_schema": {"schema": {"properties": {"priority": {}}}}},
    }
    assert gb.cleaned(said) == (said, 0)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from([*SPELLINGS, *WRAPPERS, "prompt", "n"]), JSON, max_size=5), st.text(max_size=20))
def test_whatever_is_sent_the_engine_sees_one_salt(fields, salt):
    body = json.loads(through({**fields, "model": "m"}))
    assert body["cache_salt"] == "ours"
    assert all(name in ("cache_salt",) or name not in SPELLINGS for name in body)


@pytest.mark.parametrize(
    "raw",
    [b"", b"[]", b"null", b"{", b'{"model":1}', b'{"model":""}', b'{"prompt":"x"}', b'{"model":"\xff"}',
     b'{"model":"m","x":NaN}', b'{"model":"m","prompt":"\\ud800"}', b"[" * 100_000,
     b'{"model":"m","x":' + b'{"a":' * 40 + b"1" + b"}" * 41],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_without_its_words(raw):
    with pytest.raises(gb.Unreadable) as refused:
        gb.cleaned(gb.read(raw))
    assert refused.value.detail in {
        "The body is no JSON that can be read.", "The body is no object with a model.",
        "The body is nested too deeply.",
    }  # fmt: skip


def test_token_ids_are_taken_where_there_is_one_prompt_of_them():
    assert gb.given_tokens({"prompt": [1, 2]}) == [1, 2]
    assert gb.given_tokens({"prompt": [[1, 2]]}) == [1, 2]
    for prompt in ("x", ["x"], [], [[1], [2]], [1, -2], [1, 2**32], [True], None):
        assert gb.given_tokens({"prompt": prompt}) is None


def test_a_prompt_is_tokenized_as_the_engine_would_read_it():
    chat = {"model": "m", "messages": [{"role": "user", "content": "a"}], "tools": [1], "temperature": 0}
    assert gb.tokenizable(chat) == {"model": "m", "messages": chat["messages"], "tools": [1]}
    assert gb.tokenizable({"model": "m", "prompt": ["a"]}) == {"model": "m", "prompt": "a"}
    assert gb.tokenizable({"model": "m", "prompt": ["a", "b"]}) is None
    assert gb.estimated({"prompt": [1, 2, 3]}, 1000) == 3
    assert gb.estimated({"prompt": "x"}, 1000) == 250
    assert gb.estimated({}, 0) == 1


STREAM = [
    b'data: {"choices":[{"text":" a"}]}\n\n', b'data: {"choices":[{"te', b'xt":" b"}]}\n\n',
    b'data: {"choices":[],"usage":{"prompt_tokens":168,"completion_tokens":2,'
    b'"prompt_tokens_details":{"cached_tokens":128}}}\n\n', b"data: [DONE]\n\n",
]  # fmt: skip


def test_what_an_answer_says_of_itself_is_read_while_it_passes():
    seen = gb.Answer(streamed=True)
    assert [seen.pass_(chunk) for chunk in [b": ping\n\n", *STREAM]] == [False, True, False, False, False, False]
    assert seen.usage() == (168, 128)
    silent = gb.Answer(streamed=True)
    for chunk in STREAM[:3]:
        silent.pass_(chunk)
    assert silent.usage() == (None, None)


@pytest.mark.parametrize(
    ("raw", "usage"),
    [(b'{"usage":{"prompt_tokens":5,"prompt_tokens_details":null}}', (5, None)),
     (b'{"usage":{"prompt_tokens":-5,"prompt_tokens_details":{"cached_tokens":true}}}', (None, None)),
     (b'{"usage":null}', (None, None)), (b"[1]", (None, None)), (b"{", (None, None))],
)  # fmt: skip
def test_what_an_engine_does_not_say_is_unknown(raw, usage):
    seen = gb.Answer(streamed=False)
    assert seen.pass_(raw)
    assert seen.usage() == usage


def test_no_more_than_the_end_of_an_answer_is_kept():
    seen = gb.Answer(streamed=True)
    for _ in range(100):
        seen.pass_(b"data: " + b"x" * 10_000 + b"\n\n")
    assert len(seen._tail) <= gb.Answer.TAIL
