"""Pages of routing: decisions and policies, hot prefixes, economics, topology."""
