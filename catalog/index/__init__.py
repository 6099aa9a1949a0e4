"""The writer's memory of a shard: where keys stand, who holds what, what a step changes. No database in here."""
