"""Who answers for a room that another one may not import: by dotted name, found when it is asked."""

TASK_SENDER = "kvconsole.celery.send"
"""How an app wakes a worker without knowing Celery: called with a task's name and an id."""
NAMESPACE_POLICY = "catalog.placing.node_policies"
"""Answers which tiers of a node may hold which namespaces; asked where a node renews its leases."""
TENANT_FINDER = "tenants.selectors.tenant_id_of"
SUBJECT_FINDER = "tenants.accounts.selectors.subjects_named"
"""Answer which tenant a slug, and whose keys a log-in name means; asked where the log is searched."""
APPROVAL_OWNERS = {
    "share_group": "tenants.approval_decided",
    "audit_retention": "audit.retention_decided",
    "audit_epoch": "",
    "operation": "catalog.operation_decided",
    "hold": "catalog.hold_decided",
    "hold_release": "catalog.hold_decided",
}
"""Kind of approval → the task that is told of its decision; "" = people go on with it, and no worker."""
KEY_HOLDERS = {"node": "catalog.fleet.holder_refusal"}
"""Kind of principal → who knows whether such a holder may lease keys now; kinds that are not here need no leave."""
ROUTERS_BEHIND = "routing.selectors.routers_behind"
"""Answers how many processes may still route without a fence; asked where an operation waits for them."""
