from kvcore.cards import Candidate, Replicate
from kvcore.tickets import Peer, Scope, ticket_issue, ticket_refusal
from routing.answers import replicate, ticket_body
from tests.routing.deciding import Stand, worker
from tests.routing.test_deciding import ticket_of


def test_a_ticket_survives_both_ways_of_writing_bytes():
    peer = Peer(node="b", role="giver", public_key=b"p" * 32, url="http://b:1")
    scope = Scope(decision="d", blocks=2, upto=b"u" * 32, peers=(peer,))
    ticket = ticket_issue(b"k" * 32, node="a", ns=b"n" * 32, gen=3, expires_at=100.0, scope=scope)
    packed = ticket_of(ticket_body(ticket, bytes))
    assert ticket_refusal(packed, b"k" * 32, node="a", now=90.0) is None
    text = ticket_body(ticket, bytes.hex)
    assert text["scope"]["peers"][0]["public_key"] == "70" * 32
    assert text["mac"] == ticket.mac.hex()


def test_eight_cards_the_scored_ones_first_and_unknown_figures_null():
    good = [worker(f"w{i}", load={"queue_ms": float(i)}) for i in range(6)]
    stand = Stand(*good, *(worker(f"x{i}", state="lost") for i in range(6)))
    cards = stand.route().cards
    assert [bool(c.filtered_by) for c in cards] == [False] * 6 + [True] * 2
    assert [c.total_ms for c in cards[:6]] == sorted(c.total_ms for c in cards[:6])
    assert (cards[-1].total_ms, cards[-1].terms, cards[-1].overlap_tokens) == (None, None, None)


def test_a_hint_to_replicate_names_who_should_hold_it():
    candidates = [Candidate(node="1", source="e", name="a"), Candidate(node="2", source="e", name="b")]
    assert replicate(None, candidates) is None
    assert replicate(Replicate(5, 1, 2, 1), candidates)["node"] == "b"
    assert replicate(Replicate(5, 1, 2, None), candidates)["node"] is None
