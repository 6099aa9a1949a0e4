"""Pages of the log: what it proves, its events, exports, webhooks, retention, and the public check of a proof."""
