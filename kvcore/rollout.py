"""Decides which model epoch a new request is of while a roll-out lasts, and what the old epochs' bytes should do.

Called when a namespace is resolved (`choose`), when shares are set (`shares_problem`) and by the picture of a
roll-out (`forecast`). Nothing is drawn by lot: the same key always meets the same epoch under the same shares, and as
a newer epoch's share grows, keys only ever move towards it. A conversation that names itself is thus never torn back.
"""

import hashlib
from collections.abc import Mapping
from typing import Literal

import msgspec

from kvcore.keys import framed

WHOLE = 100
"""Shares are whole per cent and sum to this."""
DEFAULT_HORIZON_SECONDS = 1800
"""How long blocks that nobody asks for again are thought to stay."""
HORIZON_SECONDS = (60, 30 * 86_400)

SharesProblem = Literal["rollout-shares", "epoch-unknown", "epoch-retired"]


def shares_problem(shares: Mapping[int, int], states: Mapping[int, str]) -> tuple[SharesProblem, int] | None:
    """Why these shares cannot be set, with the epoch or sum that is wrong; None = they can.

    Args:
        shares: epoch → per cent of new requests.
        states: epoch → its state, of all epochs of the model.
    """
    for epoch in sorted(shares):
        if epoch not in states:
            return "epoch-unknown", epoch
    for epoch, share in sorted(shares.items()):
        if not 0 <= share <= WHOLE:
            return "rollout-shares", share
        if share and states[epoch] != "open":
            return "epoch-retired", epoch
    total = sum(shares.values())
    return None if total == WHOLE else ("rollout-shares", total)


def point(model: str, tenant: str, key: str) -> int:
    """Where a key lies among the hundred points of a model's traffic; the same for all shares."""
    text = b"kvconsole/rollout/v1" + framed(model.encode(), tenant.encode(), key.encode())
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") % WHOLE


def choose(shares: Mapping[int, int], at: int) -> int | None:
    """The epoch that the requests at this point are of: the newest takes the lowest points, and so on down.

    Args:
        shares: epoch → per cent; epochs that were retired since are left out by the caller.
        at: of `point`.

    Returns:
        None: there is no epoch. Where shares sum to less than 100, because an epoch was retired, the newest epoch
        that has a share takes the rest (without any share: the newest).
    """
    upto = 0
    for epoch in sorted(shares, reverse=True):
        upto += shares[epoch]
        if at < upto:
            return epoch
    return max((e for e, share in shares.items() if share), default=max(shares, default=None))


def request_key(*, session: str = "", subject: str = "", request: str = "", label: str = "") -> str:
    """What keeps a request at its epoch: its session, else its subject, its own name, its label, else nothing."""
    kinds = (("session", session), ("subject", subject), ("request", request), ("label", label))
    return next((f"{kind}:{value}" for kind, value in kinds if value), "")


class ForecastPoint(msgspec.Struct, frozen=True):
    """Bytes expected `seconds` after the shares were set, of epochs that give traffic away, and of all together."""

    seconds: int
    old_bytes: int
    all_bytes: int


def forecast(
    held: Mapping[int, int], before: Mapping[int, int], after: Mapping[int, int], *, horizon: int, points: int = 13
) -> list[ForecastPoint]:
    """What the epochs' blocks should take from the moment the shares were set.

    Bytes follow requests: once things have settled an epoch holds its share of what all of them held. What an epoch
    loses ages out evenly over the horizon. What another wins is there sooner, because hot prefixes are asked for
    first: after half of the time three quarters of it, 1 - (1 - x)^2. For a whole move the peak is a quarter more
    than before, at half of the horizon.

    Args:
        held: epoch → bytes when the shares were set.
        before, after: epoch → per cent, before and after.
        horizon: seconds after which unused blocks are gone.
        points: how many, the first at 0 and the last at the horizon.
    """
    total = sum(held.values())
    target = {e: total * after.get(e, 0) / WHOLE for e in {*held, *before, *after}}
    losing = {e for e in target if after.get(e, 0) < before.get(e, 0) or held.get(e, 0) > target[e]}
    found = []
    for i in range(points):
        x = i / (points - 1)
        now = {
            e: held.get(e, 0) + (target[e] - held.get(e, 0)) * (x if e in losing else 1 - (1 - x) ** 2) for e in target
        }
        old = sum(now[e] for e in losing)
        found.append(ForecastPoint(round(horizon * x), round(old), round(sum(now.values()))))
    return found
