"""Decides what kinds of operations there are, and what each kind does. All are the same engine.

Called by `kvcore.plan_steps`, `kvcore.plan_state` and the console's requests.
"""

import msgspec

FINALIZERS = ("catalog", "routing", "keys")


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """What an operation of a kind does.

    Without `fences` it takes blocks away from places and the namespaces live on. `looks`: what it reaches must stay
    away, so that each place is looked at anew; else an erase is all. `certified`: it claims that something is gone,
    and ends in a certificate.
    """

    name: str
    fences: bool  # generations are fenced before anything else
    keys: bool  # the generations' keys are destroyed in the end
    finalizers: tuple[str, ...]
    looks: bool = True
    certified: bool = True


KINDS: dict[str, Kind] = {
    "deletion": Kind(name="deletion", fences=True, keys=True, finalizers=FINALIZERS),
    "epoch": Kind(name="epoch", fences=True, keys=True, finalizers=FINALIZERS),
    "residency": Kind(name="residency", fences=False, keys=False, finalizers=("catalog",), certified=False),
    "quota_trim": Kind(
        name="quota_trim", fences=False, keys=False, finalizers=("catalog",), looks=False, certified=False
    ),
    **{
        name: Kind(name=name, fences=False, keys=False, finalizers=("catalog",), looks=False, certified=False)
        for name in ("migration", "drain", "prefetch")
    },
    **{
        name: Kind(name=name, fences=False, keys=False, finalizers=(), looks=False, certified=False)
        for name in ("cordon", "uncordon")
    },
}
