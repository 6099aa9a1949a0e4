"""Decides where one request goes: namespace and rights first, then the index, then the scorer, then leave to do it.

In memory, in the event loop: nothing here waits for anybody. What was decided goes to the recorder with all it was
decided from. When the index may not be used the answer is `recompute`: a worker, and no hit. Called by `hot`.
"""

import asyncio
import hashlib
import secrets
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple
from uuid import UUID

from kvconsole.infra.rest import private
from kvconsole.infra.sql import uuid7
from kvcore.cards import REMOTE, Ask, Candidate, Card, Choice
from kvcore.fleets import Fleet as Prepared
from kvcore.keys import KEY_BYTES, chain_keys
from kvcore.policies import Policy
from kvcore.scoring import decide, prepare
from kvcore.tickets import SECONDS_MAX, Peer, Scope, Ticket, ticket_issue
from routing import answers
from routing.answers import Answer, IndexState, Predicted
from routing.asks import Wanted, prints, within_vocabulary
from routing.candidates import Who
from routing.codes import Refusal
from routing.foreign import Hindsight, Told
from routing.hint_watch import Watcher
from routing.holders import Found, Holders
from routing.namespaces import Place, keys_of
from routing.prepared import Fleets, refused
from routing.recorder import Recorded, Recorder
from routing.remembering import Memory
from routing.replica import Replica
from routing.standing import Standing
from routing.view import Space

AGE_SECONDS = 0.5
SMOOTH = 0.05
TICKET_SECONDS = SECONDS_MAX - 1.0


class Asked(NamedTuple):
    """Who asks: `gateway` may have a salt, `holder` may report the outcome. `text`: how bytes are written for it.

    `trusted`: of the fleet, so that its outcomes are learned from.
    """

    gateway: bool
    holder: str
    text: Callable[[bytes], Any]
    trusted: bool = False


class Router:
    """The deciding part of one router process."""

    def __init__(
        self, standing: Standing, replica: Replica, recorder: Recorder, watcher: Watcher | None = None
    ) -> None:
        """`watcher` looks whether what tenants announced comes; None: nobody does."""
        self.standing, self.replica, self.recorder, self.watcher = standing, replica, recorder, watcher
        self.memory = Memory()
        recorder.learn = self.memory.learn
        self.router_ms: float | None = None
        self.turn = 0
        self.holders = Holders(standing.fleet, replica)
        self._secret = private("routing/affinity")
        self.fleets = Fleets(standing.fleet)

    # ---------------------------------------------------------------- one request
    def route(self, wanted: Wanted, place: Place, asked: Asked, started: float) -> Answer:
        """The answer; the decision is on its way to the recorder.

        Args:
            wanted: the request.
            place: its namespace generation.
            asked: by whom.
            started: when the request came (steady clock).

        Raises:
            Refusal: no-candidates, unknown-candidate, token-beyond-vocabulary, prompt-mismatch, validation-failed.
        """
        keys, size = self._keys(wanted, place)
        fingerprints = wanted.prints if wanted.tokens is None else prints(keys, size)
        blocks = len(fingerprints) // 8
        prompt = _prompt(wanted, blocks, place.block_tokens)
        found = self._look(place, fingerprints)
        policy = self.standing.policy(place.model)
        fleet, candidates, numbers = self._fleet(place, policy, wanted.candidates)
        held = self.holders.held(found, None if wanted.candidates is None else numbers)
        decision = uuid7()
        hot = self.memory.hot(place.model, fingerprints, policy, len(candidates))
        ask = self._ask(wanted, place, prompt, blocks, fingerprints, decision, hot)
        choice = decide(ask, fleet, held)
        self.turn += 1
        if self.watcher is not None:
            self.watcher.saw(
                tenant=place.tenant_id, session=wanted.session, namespace=place.digest, prints=fingerprints
            )
        recorded = Recorded(
            id=decision, at=datetime.now(UTC), tenant_id=place.tenant_id, model=place.model, namespace=place.digest,
            generation=place.generation, holder=asked.holder, ask=ask, candidates=candidates, held=held,
            edges=self.standing.fleet.edges, policy=policy, learned=self.memory.learned, choice=choice, mode=found.mode,
            index_age_ms=found.age_ms, trusted=asked.trusted,
        )  # fmt: skip
        if choice.prefill is None or choice.decode is None:
            self.recorder.add(recorded, code="no-candidates")
            raise Refusal("no-candidates", _why_none(choice))
        self._sent(candidates[choice.prefill.candidate], choice.prefill)
        answer = self._answer(recorded, found, keys if size == KEY_BYTES else b"", asked, place)
        self.memory.wrote(place.tenant_id, wanted.session, choice.decode.node, blocks)
        self._took(started)
        self.recorder.add(recorded)
        return answer

    def _keys(self, wanted: Wanted, place: Place) -> tuple[bytes, int]:
        if wanted.tokens is None:
            return wanted.keys, wanted.key_bytes
        if not within_vocabulary(wanted.tokens, place.vocabulary):
            raise Refusal("token-beyond-vocabulary", f"Below {place.vocabulary}.", pointer="/token_ids")
        keys_of(place)
        return b"".join(chain_keys(wanted.tokens, block_tokens=place.block_tokens, blk=place.blk)), KEY_BYTES

    def _look(self, place: Place, fingerprints: bytes) -> Found:
        """What is held; nothing where fences are not whole, or where the generation may no longer be asked for."""
        found = self.holders.look(Space(place.digest, place.generation, 0), fingerprints)
        usable = self.standing.whole and place.digest
        return found if usable else found._replace(runs=[], mode="recompute")

    def fenced(self, place: Place) -> bool:
        """Whether the place's generation was fenced since it was read: its request must be resolved anew."""
        view = self.replica.view
        return view is not None and view.min_gen.get(place.digest, 0) > place.generation

    def _ask(
        self, wanted: Wanted, place: Place, prompt: int, blocks: int, fingerprints: bytes, decision: UUID,
        hot: tuple[float, int],
    ) -> Ask:  # fmt: skip
        session = self.memory.session(place.tenant_id, wanted.session)
        tie = hashlib.blake2b(fingerprints[-8:], key=self._secret, digest_size=7).digest()
        return Ask(
            prompt_tokens=prompt,
            block_tokens=place.block_tokens,
            block_bytes=place.block_bytes,
            blocks=blocks or prompt // place.block_tokens,
            slo_ttft_ms=wanted.slo_ttft_ms,
            slo_tpot_ms=wanted.slo_tpot_ms,
            session_node=session.node if session else None,
            session_floor_blocks=min(session.blocks, blocks) if session else 0,
            hot_share=hot[0],
            hot_blocks=hot[1],
            affinity=int.from_bytes(tie, "little"),
            seed=decision.int & (2**62 - 1),
            turn=self.turn,
            router_ms=self.router_ms,
        )

    # ---------------------------------------------------------------- who could take it
    def _fleet(
        self, place: Place, policy: Policy, named: tuple[str, ...] | None
    ) -> tuple[Prepared, tuple[Candidate, ...], dict[Who, int]]:
        """The prepared fleet of this namespace and policy, the candidates it was made of, and their numbers."""
        made = self.fleets.ready(place, policy, self.memory.learned, named)
        return made.fleet, made.candidates, self.standing.fleet.number if named is None else _numbers(made.candidates)

    def _sent(self, candidate: Candidate, card: Card) -> None:
        number = self.standing.fleet.number.get(_who(candidate))
        if number is not None:
            self.standing.fleet.sent(number, card.terms.cache_load + card.terms.prefill)

    # ---------------------------------------------------------------- the answer
    def _answer(self, made: Recorded, found: Found, keys: bytes, asked: Asked, place: Place) -> Answer:
        choice, candidates, ask = made.choice, made.candidates, made.ask
        card, decode = choice.prefill, choice.decode
        assert card is not None
        assert decode is not None
        ticket, decode_ticket, grants = self._tickets(made, card, decode, keys, found.mode != "recompute")
        return Answer(
            decision_id=str(made.id),
            prefill=answers.place(candidates[card.candidate]),
            decode=answers.place(decode),
            cache_salt=_salt(place) if asked.gateway else None,
            plan=answers.parts(card, candidates),
            ticket=answers.ticket_body(ticket, asked.text) if ticket else None,
            decode_ticket=answers.ticket_body(decode_ticket, asked.text) if decode_ticket else None,
            overlap_tokens=min(ask.prompt_tokens, card.overlap_blocks * ask.block_tokens),
            predicted=Predicted(card.total_ms, card.terms),
            cards=answers.cards(choice, candidates, ask.block_tokens, ask.prompt_tokens),
            index=IndexState(found.seq, found.age_ms, found.mode),
            policy=choice.policy,
            policy_version=choice.version,
            why=choice.why,
            replicate=answers.replicate(choice.replicate, candidates),
            grants=[answers.ticket_body(grant, asked.text) for grant in grants],
        )

    def _tickets(
        self, made: Recorded, card: Card, decode: Candidate, keys: bytes, whole: bool
    ) -> tuple[Ticket | None, Ticket | None, list[Ticket]]:
        """Leave for the prefill node, for the decode node where it is another one, and for each that gives blocks.

        `whole`: all that a node has of the chain may be read, which may be more than was known here; else nothing.
        """
        candidates = made.candidates
        worker = candidates[card.candidate]
        givers = sorted({candidates[r.candidate].node for r in card.plan if r.source == REMOTE} - {worker.node})
        apart = decode.node != worker.node
        peers = [p for node in givers if (p := self._peer(node, "giver"))]
        taker = self._peer(decode.node, "taker") if apart else None
        blocks = len(keys) // KEY_BYTES if whole and keys else 0 if keys or not whole else card.overlap_blocks
        first = self._ticket(made, worker.node, blocks, keys, [*peers, *([taker] if taker else [])])
        fetcher, grants = self._peer(worker.node, "taker"), list[Ticket]()
        for node in givers if keys else ():
            upto = max(r.to_block for r in card.plan if r.source == REMOTE and candidates[r.candidate].node == node)
            if grant := self._ticket(made, node, upto, keys, [fetcher] if fetcher else []):
                grants.append(grant)
        if not apart:
            return first, None, grants
        giver = self._peer(worker.node, "giver")
        return first, self._ticket(made, decode.node, blocks, keys, [giver] if giver else []), grants

    def _ticket(self, made: Recorded, node: str, blocks: int, keys: bytes, peers: list[Peer]) -> Ticket | None:
        key = self.standing.tickets.get(node)
        if key is None or not made.namespace:
            return None
        scope = None
        if keys or not blocks:
            upto = keys[(blocks - 1) * KEY_BYTES : blocks * KEY_BYTES] if blocks else b""
            scope = Scope(decision=str(made.id), blocks=blocks, upto=upto, peers=tuple(peers))
        until = round(time.time() + TICKET_SECONDS, 3)
        return ticket_issue(key, node=node, ns=made.namespace, gen=made.generation, expires_at=until, scope=scope)

    def _peer(self, node: str, role: str) -> Peer | None:
        worker = self.standing.workers.get(node)
        if worker is None or not worker.public_key:
            return None
        url = worker.agent_url if role == "giver" else ""
        return Peer(node=node, role=role, public_key=bytes(worker.public_key), url=url)  # type: ignore[arg-type]

    # ---------------------------------------------------------------- in hindsight
    def hindsight(self, told: Told, wanted: Wanted, place: Place, holder: str) -> Hindsight:
        """A foreign decision is on its way to the recorder, beside what our policy would have chosen now.

        Raises:
            Refusal: unknown-candidate: the chosen worker is none of the fleet; or no-candidates.
        """
        blocks = len(wanted.prints) // 8
        prompt = _prompt(wanted, blocks, place.block_tokens)
        found, policy = self._look(place, wanted.prints), self.standing.policy(place.model)
        fleet, candidates, numbers = self._fleet(place, policy, wanted.candidates)
        number = _chosen_number(told, candidates)
        decision = uuid7()
        held = self.holders.held(found, None if wanted.candidates is None else numbers)
        ask = self._ask(wanted, place, prompt, blocks, wanted.prints, decision, (0.0, 0))
        best = decide(ask, fleet, held)
        if best.prefill is None or best.decode is None:
            raise Refusal("no-candidates", _why_none(best))
        others = "unknown-candidate"
        alone = tuple(c if i == number or c.role == "decode" else refused(c, others) for i, c in enumerate(candidates))
        theirs = decide(
            ask, prepare(alone, self.standing.fleet.edges, policy, self.memory.learned, self.standing.fleet.wires), held
        )
        card = theirs.prefill
        regretted = None if card is None else max(0.0, card.total_ms - best.prefill.total_ms)
        self.recorder.add(
            Recorded(
                id=decision, at=datetime.now(UTC), tenant_id=place.tenant_id, model=place.model,
                namespace=place.digest, generation=place.generation, holder=holder, ask=ask, candidates=candidates,
                held=held, edges=self.standing.fleet.edges, policy=policy, learned=self.memory.learned, choice=best,
                mode=found.mode, index_age_ms=found.age_ms, origin=told.origin, chosen=number, regret_ms=regretted,
            )
        )  # fmt: skip
        shown = theirs if card is not None else best
        out = [c for c in answers.cards(shown, candidates, place.block_tokens, prompt) if _same(c, candidates[number])]
        chosen = out[0] if out else answers.unscored(candidates[number], theirs)
        ours = answers.place(candidates[best.prefill.candidate])
        return Hindsight(str(decision), chosen, ours, best.prefill.total_ms, regretted)

    def tick(self, loop: asyncio.AbstractEventLoop) -> None:
        """Ages and queues are those of now, also while nothing newer can be read."""
        if time.monotonic() - self.standing.fleet.read > AGE_SECONDS:
            self.standing.fleet.age()
        loop.call_later(AGE_SECONDS, self.tick, loop)

    def readiness(self) -> tuple[int, dict[str, Any]]:
        """Whether decisions can be made, part by part; a router without its lease still answers."""
        standing, mode = self.standing, self.replica.mode
        parts = {
            "database": "away" if standing.away else "ok",
            "workers": len(standing.fleet.candidates),
            "index": mode,
            "fences": "ok" if standing.whole else "not whole",
        }
        ready = standing.ready.is_set() and mode != "loading"
        return (200 if ready else 503), {"status": "ok" if ready else "starting", "parts": parts}

    def _took(self, started: float) -> None:
        ms = (time.monotonic() - started) * 1000
        self.router_ms = ms if self.router_ms is None else self.router_ms + SMOOTH * (ms - self.router_ms)


def _prompt(wanted: Wanted, blocks: int, block_tokens: int) -> int:
    prompt = wanted.prompt_tokens if wanted.prompt_tokens is not None else blocks * block_tokens
    if prompt <= 0:
        raise Refusal("validation-failed", "Say prompt_tokens, block_keys or token_ids.", pointer="/prompt_tokens")
    if blocks * block_tokens > prompt:
        detail = f"{blocks} blocks of {block_tokens} tokens are more than the prompt."
        raise Refusal("prompt-mismatch", detail, pointer="/prompt_tokens")
    return prompt


def _salt(place: Place) -> str:
    """The generation's salt. Where the namespace is not known, one that nobody else has: nothing is shared under it."""
    if not place.digest:
        return secrets.token_urlsafe(32)
    keys_of(place)
    return place.salt


def _who(candidate: Candidate) -> Who:
    return candidate.node, candidate.source, candidate.dp_rank


def _numbers(candidates: Sequence[Candidate]) -> dict[Who, int]:
    return {_who(c): i for i, c in enumerate(candidates)}


def _why_none(choice: Choice) -> str:
    reasons: dict[str, int] = {}
    for one in choice.filtered:
        reasons[one.filtered_by] = reasons.get(one.filtered_by, 0) + 1
    told = ", ".join(f"{n} × {why}" for why, n in sorted(reasons.items()))
    return f"{told}." if told else "The fleet has no worker."


def _chosen_number(told: Told, candidates: Sequence[Candidate]) -> int:
    chosen = told.chosen
    for i, c in enumerate(candidates):
        if c.name == chosen.node and c.dp_rank == chosen.dp_rank and chosen.source in ("", c.source) and not c.refused:
            return i
    raise Refusal("unknown-candidate", "The fleet has no such worker.", pointer="/chosen")


def _same(card: answers.CardOut, candidate: Candidate) -> bool:
    return (card.node, card.source, card.dp_rank) == (candidate.name, candidate.source, candidate.dp_rank)
