"""Reads of models, epochs, roll-outs, lineage, share groups and of why namespaces share nothing, as plain values.

For REST and pages; all on the connection of the current plane, so a tenant sees its own and the platform's only.
"""

from tenants.reading.explanation import Explanation, NamespaceView, explanation
from tenants.reading.families import (
    AdapterView,
    EpochView,
    Lineage,
    ModelView,
    UseView,
    epochs_of,
    fences_of,
    lineage,
    models,
    namespace_epochs,
    uses_of,
)
from tenants.reading.groups import GroupView, group_view, share_group, share_groups
from tenants.reading.rollouts import Point, RolloutEpoch, RolloutView, rollout, rollout_of, rollout_tag

__all__ = [
    "AdapterView",
    "EpochView",
    "Explanation",
    "GroupView",
    "Lineage",
    "ModelView",
    "NamespaceView",
    "Point",
    "RolloutEpoch",
    "RolloutView",
    "UseView",
    "epochs_of",
    "explanation",
    "fences_of",
    "group_view",
    "lineage",
    "models",
    "namespace_epochs",
    "rollout",
    "rollout_of",
    "rollout_tag",
    "share_group",
    "share_groups",
    "uses_of",
]
