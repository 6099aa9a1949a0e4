"""The writer's memory of a shard: where each key stands, who holds what, and what a step changes. No database in here."""
