"""Tells others of what the log records: signed messages (Standard Webhooks) to addresses that tenants and staff name.

PostgreSQL is the truth: the log itself is what is told, by its own order, and what is on its way is a row. `feed` makes
rows, `sending` sends them, `client` is the only module that connects, `services` is what people change.
"""

from audit.webhooks.sweeping import sweep

__all__ = ["sweep"]
