"""The figures of the process `ingest` for Prometheus. No label names a tenant, a node or a source."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

REGISTRY = CollectorRegistry()
ProcessCollector(registry=REGISTRY)
MESSAGES = Counter("kvc_ingest_messages", "Frames, pages and digests by answer", ["state"], registry=REGISTRY)
ITEMS = Counter("kvc_ingest_items", "Items of folded frames", registry=REGISTRY)
PAIRS = Counter("kvc_ingest_pairs", "(key, owner) pairs folded", registry=REGISTRY)
REFUSED = Counter("kvc_ingest_refused", "Refusals and notes by code", ["code"], registry=REGISTRY)
UNAVAILABLE = Counter("kvc_ingest_unavailable", "Requests that were answered 503, by code", ["code"], registry=REGISTRY)
COMMITS = Counter("kvc_ingest_commits", "Committed batches", registry=REGISTRY)
FOLD_SECONDS = Histogram("kvc_ingest_fold_seconds", "Fold of one batch", registry=REGISTRY)
COMMIT_SECONDS = Histogram("kvc_ingest_commit_seconds", "Commit of one batch", registry=REGISTRY)
ANSWER_SECONDS = Histogram("kvc_ingest_answer_seconds", "Request read to answer sent", registry=REGISTRY)
QUEUED_BYTES = Gauge("kvc_ingest_queued_bytes", "Bytes that wait to be folded", registry=REGISTRY)
SOURCES = Gauge("kvc_ingest_sources", "Sources by state", ["state"], registry=REGISTRY)
WRITING = Gauge("kvc_ingest_writing", "1 while this process is the writer of its shard", registry=REGISTRY)
LEDGER_SEQ = Gauge("kvc_ingest_ledger_seq", "Number of the last committed batch", registry=REGISTRY)
COLLECTED = Counter("kvc_ingest_collected_objects", "Objects that were freed as parts of cycles", registry=REGISTRY)
COLLECT_SECONDS = Histogram("kvc_ingest_collect_seconds", "Pause to free cycles", registry=REGISTRY)
CRASHES = Counter("kvc_ingest_fold_failures", "Batches that could not be folded", registry=REGISTRY)


def text() -> bytes:
    """All figures in Prometheus' text format."""
    return bytes(generate_latest(REGISTRY))
