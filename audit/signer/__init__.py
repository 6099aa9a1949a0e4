"""The process that holds the keys: it signs tree heads that only grow, and orders that the log proves approved."""
