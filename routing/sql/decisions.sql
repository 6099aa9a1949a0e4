-- Decisions of routers with their packed inputs. A ring: a slot is six hours, and what is older than three days goes by
-- emptying whole partitions, so that two hundred decisions a second cost no DELETE and no DDL. Written by kv_router.
CREATE TABLE routing_decision (
    id uuid NOT NULL, slot smallint NOT NULL, tenant_id uuid NOT NULL, at timestamptz NOT NULL,
    origin text NOT NULL, router text NOT NULL, gateway text NOT NULL DEFAULT '', model text NOT NULL,
    namespace bytea, generation bigint, answer text NOT NULL
        CHECK (answer IN ('hit', 'fetch', 'compute', 'recompute', 'refused')),
    code text NOT NULL DEFAULT '', mode text NOT NULL DEFAULT '', index_age_ms integer, kept text NOT NULL
        CHECK (kept IN ('all', 'sample', 'refusal', 'fallback', 'outlier', 'foreign')),
    stands_for integer NOT NULL DEFAULT 1 CHECK (stands_for > 0),
    node text NOT NULL DEFAULT '', source text NOT NULL DEFAULT '', dp_rank integer NOT NULL DEFAULT 0,
    decode_node text NOT NULL DEFAULT '', policy text NOT NULL DEFAULT '', policy_version integer NOT NULL DEFAULT 0,
    prompt_tokens integer NOT NULL DEFAULT 0, overlap_tokens integer NOT NULL DEFAULT 0,
    predicted_ms double precision, inputs bytea STORAGE EXTERNAL,
    measured_at timestamptz, measured jsonb, measured_ms double precision, hit_tokens integer,
    regret_ms double precision,
    PRIMARY KEY (slot, id)) PARTITION BY LIST (slot);
CREATE INDEX routing_decision_newest ON routing_decision (id);
CREATE INDEX routing_decision_tenant ON routing_decision (tenant_id, id);
CREATE INDEX routing_decision_at ON routing_decision (at);

DO $$
BEGIN
  FOR i IN 0..15 LOOP
    EXECUTE format('CREATE TABLE routing_decision_%s PARTITION OF routing_decision FOR VALUES IN (%s)', i, i);
  END LOOP;
END $$;

-- Empties the partitions in which nothing is younger than `hours`; answers how many. At least one day stays.
CREATE FUNCTION routing_decisions_clear(hours integer) RETURNS integer LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET lock_timeout = '2s' AS $$
DECLARE
  cleared integer := 0;
  newest timestamptz;
BEGIN
  FOR i IN 0..15 LOOP
    EXECUTE format('SELECT max(at) FROM public.routing_decision_%s', i) INTO newest;
    IF newest IS NOT NULL AND newest < now() - greatest(hours, 24) * interval '1 hour' THEN
      EXECUTE format('TRUNCATE public.routing_decision_%s', i);
      cleared := cleared + 1;
    END IF;
  END LOOP;
  RETURN cleared;
END $$;
REVOKE ALL ON FUNCTION routing_decisions_clear(integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION routing_decisions_clear(integer) TO kv_router;
