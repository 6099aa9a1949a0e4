"""Writes of the tenants app. Each is one transaction with its audit event; a refusal is a `rest.Problem`."""

from tenants.services.identity import (
    logged_in,
    logged_out,
    login_refused,
    tenant_create,
    user_change,
    user_create,
    user_password_set,
    user_prefer,
)
from tenants.services.key_lease import KeyLeases, fence_acknowledge, key_leases_renew
from tenants.services.model import adapter_register, epoch_create, model_register
from tenants.services.namespace import generation_bump, namespace_resolve
from tenants.services.token import token_good, token_issue, token_redeem, token_revoke, tokens_retire

__all__ = [
    "KeyLeases",
    "adapter_register",
    "epoch_create",
    "fence_acknowledge",
    "generation_bump",
    "key_leases_renew",
    "logged_in",
    "logged_out",
    "login_refused",
    "model_register",
    "namespace_resolve",
    "tenant_create",
    "token_good",
    "token_issue",
    "token_redeem",
    "token_revoke",
    "tokens_retire",
    "user_change",
    "user_create",
    "user_password_set",
    "user_prefer",
]
