"""Writes of the tenants app. Each is one transaction with its audit event; a refusal is a `rest.Problem`."""

from tenants.services.identity import (
    factor_changed,
    logged_in,
    logged_out,
    login_refused,
    stepped_up,
    tenant_create,
    user_change,
    user_create,
    user_password_set,
    user_prefer,
)
from tenants.services.key_lease import KeyLeases, fence_acknowledge, key_leases_renew
from tenants.services.model import adapter_register, epoch_create, model_register
from tenants.services.namespace import generation_bump, namespace_resolve
from tenants.services.person import (
    How,
    invitation_accept,
    invitation_renew,
    invited,
    person_change,
    person_create,
    person_remove,
)
from tenants.services.rollout import EpochHeld, epoch_bytes_put, rollout_set
from tenants.services.share_group import (
    decision_apply,
    share_group_approve,
    share_group_deny,
    share_group_request,
    share_group_revoke,
    share_groups_sweep,
)
from tenants.services.tenant import tenant_change
from tenants.services.token import (
    grantable,
    token_create,
    token_good,
    token_issue,
    token_redeem,
    token_revoke,
    token_withdraw,
    tokens_retire,
)

__all__ = [
    "EpochHeld",
    "How",
    "KeyLeases",
    "adapter_register",
    "decision_apply",
    "epoch_bytes_put",
    "epoch_create",
    "factor_changed",
    "fence_acknowledge",
    "generation_bump",
    "grantable",
    "invitation_accept",
    "invitation_renew",
    "invited",
    "key_leases_renew",
    "logged_in",
    "logged_out",
    "login_refused",
    "model_register",
    "namespace_resolve",
    "person_change",
    "person_create",
    "person_remove",
    "rollout_set",
    "share_group_approve",
    "share_group_deny",
    "share_group_request",
    "share_group_revoke",
    "share_groups_sweep",
    "stepped_up",
    "tenant_change",
    "tenant_create",
    "token_create",
    "token_good",
    "token_issue",
    "token_redeem",
    "token_revoke",
    "token_withdraw",
    "tokens_retire",
    "user_change",
    "user_create",
    "user_password_set",
    "user_prefer",
]
