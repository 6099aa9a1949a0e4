import time

import msgspec
import pytest

from kvcore.keys import chain_keys
from kvcore.tickets import Peer, Scope, Ticket, readable_blocks, ticket_refusal
from routing.codes import Refusal
from routing.foreign import Chosen, Told
from routing.packing import again, pack, unpack
from routing.recorder import Kept
from tests.routing.deciding import Stand, worker

IDLE = {"queue_ms": 0.0}


def ticket_of(body):
    scope = body["scope"]
    peers = tuple(Peer(**p) for p in scope["peers"]) if scope else ()
    return Ticket(**{**body, "scope": scope and Scope(**{**scope, "peers": peers})})


def inputs(stand):
    (item,) = [i for i in stand.recorder._queue if isinstance(i, Kept)][-1:]
    made = item.made
    return made, unpack(pack_of(made))


def pack_of(made):
    from routing.packing import FORM, Inputs

    return pack(Inputs(FORM, made.ask, tuple(made.candidates), tuple(made.held), made.edges, made.policy, made.learned,
                       made.choice))  # fmt: skip


def test_who_holds_the_prompt_gets_it_while_its_queue_is_short_and_an_idle_one_when_it_is_long():
    stand = Stand(worker("a", load={"queue_ms": 5.0}), worker("b", load=IDLE), blocks=400)
    stand.holds("a", 400)
    assert stand.route().prefill.node == "a"
    stand.take(worker("a", load={"queue_ms": 5000.0}), worker("b", load=IDLE))
    assert stand.route().prefill.node == "b"


def test_the_answer_explains_itself():
    stand = Stand(worker("a", load=IDLE), worker("b", load=IDLE), worker("gone", load=IDLE, state="lost"))
    stand.holds("a", 40)
    answer = stand.route()
    assert answer.overlap_tokens == 640
    assert next((p.from_block, p.to_block, p.source, p.tier) for p in answer.plan) == (0, 40, "local", "hbm")
    assert answer.plan[-1].source == "compute"
    assert answer.predicted.ttft_ms == answer.predicted.terms.total_ms
    assert {c.node: c.filtered_by for c in answer.cards} == {"a": "", "b": "", "gone": "health"}
    assert answer.index.mode == "live"


def test_a_ticket_is_for_one_node_one_generation_and_the_range_that_is_read():
    stand = Stand(worker("a", load=IDLE), worker("b", load={"queue_ms": 900.0}))
    stand.holds("a", 25)
    answer = stand.route()
    ticket, node = ticket_of(answer.ticket), stand.standing.fleet.candidates[0].node
    key = stand.standing.tickets[node]
    assert ticket_refusal(ticket, key, node=node, now=time.time()) is None
    assert ticket_refusal(ticket, key, node="other", now=time.time()) == "ticket-invalid"
    assert ticket_refusal(ticket, key, node=node, now=time.time() + 31) == "ticket-expired"
    assert (ticket.ns, ticket.gen, ticket.scope.blocks) == (stand.digest, 1, 40)  # it may have more than is known here
    assert readable_blocks(ticket.scope, stand.keys) == 40
    assert readable_blocks(ticket.scope, stand.keys[32:]) is None


def test_where_another_node_decodes_both_have_a_ticket_that_names_the_other():
    stand = Stand(worker("p", load=IDLE, role="prefill"), worker("d", load=IDLE, role="decode"))
    answer = stand.route()
    assert (answer.prefill.node, answer.decode.node) == ("p", "d")
    first, second = ticket_of(answer.ticket), ticket_of(answer.decode_ticket)
    assert [(p.node, p.role) for p in first.scope.peers] == [(second.node, "taker")]
    assert [(p.node, p.role, p.url) for p in second.scope.peers] == [(first.node, "giver", "http://p:1")]
    assert second.scope.blocks == 40


def test_keys_that_are_not_whole_give_a_ticket_without_a_range():
    stand = Stand(worker("a", load=IDLE))
    stand.holds("a", 40)
    answer = stand.route(block_keys=stand.prints, key_bytes=8)
    assert answer.overlap_tokens == 640
    assert answer.ticket["scope"] is None


def test_only_gateways_get_a_salt():
    stand = Stand(worker("a", load=IDLE))
    assert stand.route().cache_salt == "s" * 43
    assert stand.route(gateway=False).cache_salt is None


def test_token_ids_find_what_their_keys_find_and_are_in_no_record():
    stand = Stand(worker("a", load=IDLE))
    tokens = b"".join(n.to_bytes(4, "little") for n in range(643))
    keys = b"".join(chain_keys(tokens, block_tokens=16, blk=stand.place.blk))
    stand.prints = b"".join(keys[i : i + 8] for i in range(0, len(keys), 32))
    stand.holds("a", 40)
    answer = stand.route(token_ids=tokens, block_keys=None, prompt_tokens=None)
    assert answer.overlap_tokens == 640
    made, _ = inputs(stand)
    kept = msgspec.msgpack.encode(made)
    assert tokens[:64] not in kept
    assert all(keys[i : i + 8] not in kept for i in range(0, len(keys), 32))
    with pytest.raises(Refusal) as e:
        stand.route(token_ids=(5000).to_bytes(4, "little") * 16, block_keys=None, prompt_tokens=None)
    assert e.value.code == "token-beyond-vocabulary"


def test_a_fenced_generation_and_a_lease_that_is_over_give_no_hit_but_an_answer():
    stand = Stand(worker("a", load=IDLE))
    stand.holds("a", 40)
    stand.replica.leased_until = 0.0
    over = stand.route()
    assert (over.overlap_tokens, over.index.mode) == (0, "recompute")
    stand.replica.leased_until = time.monotonic() + 60
    stand.standing.whole = False
    assert stand.route().index.mode == "recompute"
    stand.standing.whole = True
    assert stand.route().overlap_tokens == 640
    stand.view.fence(stand.digest, 2)
    assert stand.router.fenced(stand.place)
    assert stand.route().overlap_tokens == 0


def test_reasons_come_with_the_namespace_and_rule_out_the_best():
    stand = Stand(worker("a", load=IDLE), worker("b", load=IDLE))
    stand.holds("a", 40)
    stand.place.refused = {stand.standing.fleet.candidates[0].node: "residency"}
    answer = stand.route()
    assert answer.prefill.node == "b"
    assert {c.node: c.filtered_by for c in answer.cards}["a"] == "residency"
    stand.place.refused = {c.node: "rights" for c in stand.standing.fleet.candidates}
    with pytest.raises(Refusal) as e:
        stand.route()
    assert (e.value.code, e.value.detail) == ("no-candidates", "2 × rights.")
    assert stand.recorder.tallies.refused == 1


def test_named_candidates_alone_are_thought_of_and_unknown_or_foreign_ones_refused_alike():
    import uuid

    alone = worker("mine", load=IDLE, dedicated_to=uuid.uuid4())
    stand = Stand(worker("a", load={"queue_ms": 90.0}), worker("b", load=IDLE), alone)
    stand.holds("b", 40)
    answer = stand.route(candidates=["a"])
    assert [c.node for c in answer.cards] == ["a"]
    told = []
    for name in ("nobody", "mine"):
        with pytest.raises(Refusal) as e:
            stand.route(candidates=["a", name])
        told.append((e.value.code, e.value.detail, e.value.pointer))
    assert told == [("unknown-candidate", "The fleet has no such worker.", "/candidates/1")] * 2


def test_a_burst_spreads_because_what_was_sent_counts():
    stand = Stand(*(worker(n, load=IDLE) for n in "abcd"), blocks=400)
    picked = []
    for _ in range(12):
        picked.append(stand.route().prefill.node)
        time.sleep(0.006)
    assert max(picked.count(n) for n in "abcd") <= 5


def test_a_sessions_next_turn_goes_where_the_last_one_was_written():
    stand = Stand(worker("a", load=IDLE), worker("b", load=IDLE))
    first = stand.route(session="s1").prefill.node
    made, _ = inputs(stand)
    assert made.ask.session_node is None
    stand.holds(first, 40)
    stand.route(session="s1")
    made, _ = inputs(stand)
    assert made.ask.session_node == str(stand.standing.fleet.candidates["ab".index(first)].node)
    assert made.ask.session_floor_blocks == 40


def test_what_was_recorded_gives_the_same_answer_again():
    stand = Stand(worker("a", load={"queue_ms": 3.0}), worker("b", load=None), worker("c", load=IDLE, state="silent"))
    stand.holds("a", 10)
    stand.holds("a", 30, "dram")
    stand.holds("b", 40, "ssd")
    for _ in range(5):
        stand.route()
    for item in list(stand.recorder._queue):
        kept = unpack(pack_of(item.made))
        assert again(kept) == kept.choice


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"prompt_tokens": 100}, "prompt-mismatch"),
        ({"block_keys": None, "prompt_tokens": None}, "validation-failed"),
    ],
)
def test_prompts_that_do_not_fit_are_refused(fields, code):
    with pytest.raises(Refusal) as e:
        Stand(worker("a", load=IDLE)).route(**fields)
    assert e.value.code == code


def test_a_place_without_a_namespace_gets_a_worker_no_ticket_and_a_salt_of_its_own():
    stand = Stand(worker("a", load=IDLE))
    stand.holds("a", 40)
    nowhere = msgspec.structs.replace(stand.place, digest=b"", salt="")
    one, two = stand.route(place=nowhere), stand.route(place=nowhere)
    assert (one.ticket, one.overlap_tokens, one.index.mode) == (None, 0, "recompute")
    assert one.cache_salt != two.cache_salt
    assert len(one.cache_salt) >= 43


def test_a_foreign_decision_is_scored_in_hindsight():
    stand = Stand(worker("a", load=IDLE), worker("b", load={"queue_ms": 70.0}))
    stand.holds("a", 40)
    told = stand.router.hindsight(Told("dynamo", Chosen("b")), stand.ask(gateway=False), stand.place, "g1")
    assert told.ours.node == "a"
    assert told.chosen.node == "b"
    assert told.regret_ms == pytest.approx(told.chosen.total_ms - told.ours_ms)
    assert told.regret_ms > 70
    with pytest.raises(Refusal) as e:
        stand.router.hindsight(Told("dynamo", Chosen("zz")), stand.ask(gateway=False), stand.place, "g1")
    assert e.value.code == "unknown-candidate"
