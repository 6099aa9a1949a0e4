"""Reads of models, epochs, roll-outs, lineage, share groups and of why namespaces share nothing, as plain values.

For REST and pages; all on the connection of the current plane, so a tenant sees its own and the platform's only.
"""

from tenants.reading.explanation import Explanation, NamespaceView, explanation
from tenants.reading.families import (
    AdapterView,
    EpochView,
    Lineage,
    ModelView,
    OwnAdapterView,
    UseView,
    adapter_known,
    adapters_of,
    epochs_of,
    lineage,
    models,
    namespace_epochs,
    uses_of,
)
from tenants.reading.groups import (
    GroupView,
    group_names,
    group_rows,
    group_view,
    group_views,
    groups_of_namespaces,
    share_group,
    share_groups,
    share_groups_page,
    share_groups_waiting,
)
from tenants.reading.rollouts import Point, RolloutEpoch, RolloutView, rollout, rollout_of, rollout_tag

__all__ = [
    "AdapterView",
    "EpochView",
    "Explanation",
    "GroupView",
    "Lineage",
    "ModelView",
    "NamespaceView",
    "OwnAdapterView",
    "Point",
    "RolloutEpoch",
    "RolloutView",
    "UseView",
    "adapter_known",
    "adapters_of",
    "epochs_of",
    "explanation",
    "group_names",
    "group_rows",
    "group_view",
    "group_views",
    "groups_of_namespaces",
    "lineage",
    "models",
    "namespace_epochs",
    "rollout",
    "rollout_of",
    "rollout_tag",
    "share_group",
    "share_groups",
    "share_groups_page",
    "share_groups_waiting",
    "uses_of",
]
