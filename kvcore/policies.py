"""Decides what a routing policy is: a name, a version, a kind and its parameters, read from a document."""

from typing import Literal

import msgspec

Kind = Literal["predicted", "linear", "tree_p2c", "tier_weighted", "least_loaded", "round_robin", "random"]


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """One policy. `model` None = of all models that have none of their own. `params` hold every parameter of the kind."""

    name: str
    version: int
    model: str | None
    kind: Kind
    params: dict[str, float]
