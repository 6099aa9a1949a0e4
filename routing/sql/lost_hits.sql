-- Hit tokens by minute and namespace. Written by the tally of outcomes; what does not add up is not written at all.
CREATE TABLE routing_losthit (
    id bigint GENERATED ALWAYS AS IDENTITY,
    tenant_id uuid NOT NULL, minute timestamptz NOT NULL, namespace bytea NOT NULL, decisions bigint NOT NULL,
    available_tokens bigint NOT NULL, achieved_tokens bigint NOT NULL, beyond_tokens bigint NOT NULL DEFAULT 0,
    rate_limit_tokens bigint NOT NULL DEFAULT 0, timeout_tokens bigint NOT NULL DEFAULT 0,
    no_slack_tokens bigint NOT NULL DEFAULT 0, evicted_tokens bigint NOT NULL DEFAULT 0,
    scope_tokens bigint NOT NULL DEFAULT 0, epoch_tokens bigint NOT NULL DEFAULT 0,
    fetch_not_worth_tokens bigint NOT NULL DEFAULT 0, fence_tokens bigint NOT NULL DEFAULT 0,
    target_refused_tokens bigint NOT NULL DEFAULT 0, unknown_tokens bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant_id, minute, namespace),
    CONSTRAINT routing_losthit_adds_up CHECK (available_tokens = achieved_tokens + rate_limit_tokens + timeout_tokens
        + no_slack_tokens + evicted_tokens + scope_tokens + epoch_tokens + fetch_not_worth_tokens + fence_tokens
        + target_refused_tokens + unknown_tokens),
    CONSTRAINT routing_losthit_counts CHECK (least(decisions, available_tokens, achieved_tokens, beyond_tokens,
        rate_limit_tokens, timeout_tokens, no_slack_tokens, evicted_tokens, scope_tokens, epoch_tokens,
        fetch_not_worth_tokens, fence_tokens, target_refused_tokens, unknown_tokens) >= 0));
CREATE INDEX routing_losthit_minute ON routing_losthit (minute);
