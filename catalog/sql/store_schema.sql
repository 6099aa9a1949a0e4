-- The block catalog: runs, not rows. Written by the process `ingest` only (catalog/store.py), one writer a shard.
-- Numbers are given by the writer; there are no sequences and no foreign keys, since it checks before it writes.

-- A shard is one writer. `writer` fences: every transaction of a writer updates this row by its own number.
-- redo: first ledger row that segment and placement rows may not contain yet. wanted: a reader waits for redo > wanted.
CREATE TABLE catalog_shard (
    id smallint PRIMARY KEY, writer bigint NOT NULL DEFAULT 0, seq bigint NOT NULL DEFAULT 0,
    redo bigint NOT NULL DEFAULT 1, next_seg bigint NOT NULL DEFAULT 0, next_owner integer NOT NULL,
    next_keyspace integer NOT NULL, next_source integer NOT NULL, wanted bigint NOT NULL DEFAULT 0,
    url text NOT NULL DEFAULT '', seen_at timestamptz,
    listens_since timestamptz) WITH (fillfactor = 50);  -- when the present writer took over

-- One engine or store of a node, and its cursor: (boot, stream, seq) is the last frame that is folded and committed.
CREATE TABLE catalog_source (
    id integer PRIMARY KEY, shard smallint NOT NULL, node_id uuid NOT NULL, name text NOT NULL,
    dp_rank integer NOT NULL, boot text NOT NULL, stream text NOT NULL, seq bigint NOT NULL,
    old_boots text[] NOT NULL DEFAULT '{}', state text NOT NULL
        CHECK (state IN ('exact', 'recovering', 'degraded', 'lost')),
    reason text NOT NULL DEFAULT '', since timestamptz NOT NULL, last_verified_at timestamptz,
    last_frame_at timestamptz, can_list boolean NOT NULL DEFAULT true, gaps bigint NOT NULL DEFAULT 0,
    UNIQUE (node_id, name, dp_rank, shard)) WITH (fillfactor = 70);

-- One incarnation of (source, tier). Loss and clear retire it in one row; its placements are then void.
CREATE TABLE catalog_owner (
    id integer PRIMARY KEY, shard smallint NOT NULL, source_id integer NOT NULL, tier text NOT NULL,
    retired boolean NOT NULL, born timestamptz NOT NULL) WITH (fillfactor = 85);
CREATE INDEX catalog_owner_source ON catalog_owner (source_id);

-- Number of one (namespace digest, generation, cache group). Unclaimed ones belong to the platform tenant.
CREATE TABLE catalog_keyspace (
    id integer PRIMARY KEY, shard smallint NOT NULL, tenant_id uuid NOT NULL, namespace_id uuid, digest bytea NOT NULL,
    generation bigint NOT NULL, cache_group smallint NOT NULL, block_tokens integer NOT NULL,
    block_bytes bigint NOT NULL, claimed boolean NOT NULL, UNIQUE (digest, generation, cache_group));
CREATE INDEX catalog_keyspace_namespace ON catalog_keyspace (namespace_id);

-- Consecutive keys of one chain, 16 bytes each, at most 240: two rows to a page. up, up_off: place of `parent`.
-- `parent` stays where `up` is known, since a swept parent may come back under another id. family: catalog/index.
CREATE TABLE catalog_segment (
    id bigint NOT NULL, head bigint NOT NULL, up bigint, family bigint NOT NULL, keyspace integer NOT NULL,
    up_off smallint, tenant_id uuid NOT NULL, parent bytea, keys bytea STORAGE PLAIN NOT NULL,
    PRIMARY KEY (keyspace, id)) PARTITION BY HASH (keyspace);
CREATE INDEX catalog_segment_head ON catalog_segment (keyspace, head);     -- a chain is looked up by the heads on it
CREATE INDEX catalog_segment_up ON catalog_segment (up) WHERE up IS NOT NULL;  -- subtree of a prefix

-- n blocks held: the first n, or those set in `held`. Eight columns keep the header at 24 bytes. born: when its first
-- block was committed there. states: exceptions from committed.
CREATE TABLE catalog_placement (
    seg bigint NOT NULL, born timestamptz NOT NULL, owner integer NOT NULL, keyspace integer NOT NULL,
    tenant_id uuid NOT NULL, n smallint NOT NULL, held bytea, states bytea,
    PRIMARY KEY (keyspace, owner, seg)) PARTITION BY HASH (keyspace);
CREATE INDEX catalog_placement_seg ON catalog_placement (seg);             -- owners of a chain

DO $$
BEGIN
  FOR i IN 0..31 LOOP
    EXECUTE format('CREATE TABLE catalog_segment_%s PARTITION OF catalog_segment FOR VALUES WITH (MODULUS 32, '
                   'REMAINDER %s) WITH (autovacuum_vacuum_scale_factor = 0.05)', i, i);
    EXECUTE format('CREATE TABLE catalog_placement_%s PARTITION OF catalog_placement FOR VALUES WITH (MODULUS 32, '
                   'REMAINDER %s) WITH (fillfactor = 85, autovacuum_vacuum_scale_factor = 0.05)', i, i);
  END LOOP;
END $$;

-- The live map: blocks held, and the digest (sums of the keys' two halves mod 2^64, as signed numbers). Exact.
CREATE TABLE catalog_holding (
    keyspace integer NOT NULL, owner integer NOT NULL, tenant_id uuid NOT NULL, blocks bigint NOT NULL,
    lo bigint NOT NULL, hi bigint NOT NULL, PRIMARY KEY (keyspace, owner)) WITH (fillfactor = 70);
CREATE INDEX catalog_holding_owner ON catalog_holding (owner);
CREATE INDEX catalog_holding_tenant ON catalog_holding (tenant_id);

-- What each transaction changed, as absolute facts (catalog/index/facts.py). Keys do not compress.
CREATE TABLE catalog_ledger (
    shard smallint NOT NULL, seq bigint NOT NULL, at timestamptz NOT NULL, body bytea STORAGE EXTERNAL NOT NULL,
    PRIMARY KEY (shard, seq)) WITH (autovacuum_vacuum_scale_factor = 0.05);

-- Who follows the ledger: it is pruned behind the slowest reader that was seen in the last minute.
CREATE TABLE catalog_reader (
    name text NOT NULL, shard smallint NOT NULL, seq bigint NOT NULL, seen_at timestamptz NOT NULL,
    PRIMARY KEY (name, shard)) WITH (fillfactor = 50);

INSERT INTO catalog_shard (id, next_owner, next_keyspace, next_source) VALUES (0, 1, 1, 1);
