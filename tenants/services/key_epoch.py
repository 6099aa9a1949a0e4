"""Decides when a shred epoch of the key store is over: then what was destroyed since it began is in no copy any more.

Called by beat's task, in the worker; `kvconsole.infra.keyepochs` says what an epoch is.
"""

from datetime import datetime

from django.conf import settings
from django.db import transaction

from audit.services import record
from audit.standing import need_log
from kvconsole.infra.access import Principal, plane, system
from kvconsole.infra.keystore import keystore

RULE = system("shred-epochs")
SHRED_EPOCH = "shred-epoch"
"""Kind of what is destroyed, in its event."""


def shred_epoch_turn(*, now: datetime, actor: Principal = RULE, early: bool = False) -> int | None:
    """The epoch is over, if it has lasted its time: its key is destroyed, and the event says so.

    The key is destroyed last, within the transaction, as those of generations are.

    Args:
        now: aware.
        actor: who ends it.
        early: it ends whatever its age.

    Returns:
        How many secrets went over to the next one; None where there are no epochs, or this one goes on.

    Raises:
        Problem: audit-unavailable; no key was destroyed.
        KeyStoreUnavailable: no key was destroyed.
    """
    epochs = keystore().epochs
    if epochs is None:
        return None
    began, before = epochs.began(), epochs.numbers()
    young = began is not None and now.timestamp() - began < settings.SHRED_HOURS * 3600
    if young and len(before) == 1 and not early:  # more than one: a turn was cut off
        return None
    need_log()
    with transaction.atomic(using=plane()):
        record(
            event_type="key.destroyed",
            outcome="success",
            actor=actor,
            tenant_id=None,
            object_kind="key-store",
            object_id=SHRED_EPOCH,
            body={"kind": SHRED_EPOCH, "name": f"up to {max(before, default=0)}", "keys": len(before)},
        )
        return keystore().turn()
