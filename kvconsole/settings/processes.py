"""What the console's processes are told of each other, and where each keeps what is its own; a part of `base`."""

from kvconsole.settings import outside
from kvconsole.settings.env import Env

env = Env()
CONSOLE_URL = env.text("KVC_CONSOLE_URL", "http://127.0.0.1:8000")
INGEST_URLS = env.items("KVC_INGEST_URLS", "http://127.0.0.1:8001")
ROUTER_URL = env.text("KVC_ROUTER_URL", "http://127.0.0.1:8004")
"""Where gateways ask for decisions; told to people, and measured by the replay."""
SIGNER_URL = env.text("KVC_SIGNER_URL", "http://127.0.0.1:8002")
SIGNER_TOKEN = env.text("KVC_SIGNER_TOKEN", "")
"""Bearer of who may have commands and exports signed: web and worker."""
SIGNER_LOG_TOKEN = env.text("KVC_SIGNER_LOG_TOKEN", "")
"""Bearer of who may have tree heads signed: the sequencer, and nobody who writes events."""
COMMAND_KEY_FILE = env.text("KVC_COMMAND_KEY_FILE", "")
LOG_KEY_FILE = env.text("KVC_LOG_KEY_FILE", "")
EXPORT_KEY_FILE = env.text("KVC_EXPORT_KEY_FILE", "")
SIGNER_STATE = env.text("KVC_SIGNER_STATE", "")
"""File with what the signer signed last; apart from the database and its backups."""
LOG_REGION = env.text("KVC_LOG_REGION", "main")
"""Part of the log's name: there is one log a region."""
WITNESS_URL = env.text("KVC_WITNESS_URL", "")
WITNESS_VKEY = env.text("KVC_WITNESS_VKEY", "")
"""The witness that is asked to cosign, and the key it signs with; empty: none."""
WITNESS_NAME = env.text("KVC_WITNESS_NAME", "")
WITNESS_KEY_FILE = env.text("KVC_WITNESS_KEY_FILE", "")
WITNESS_STATE = env.text("KVC_WITNESS_STATE", "")
WITNESS_LOGS = env.items("KVC_WITNESS_LOGS")
"""What a witness process of ours is called, where it keeps key and database, and the keys of the logs it knows."""
AGENT_NETWORKS = env.items("KVC_AGENT_NETWORKS", "127.0.0.0/8")
KEYSTORE_DIR = env.text("KVC_KEYSTORE_DIR", "")
SHRED_DIR = env.text("KVC_SHRED_DIR", "")
"""Where the keys of shred epochs are, under which the key store's files lie sealed; never in a backup. Empty: none."""
SHRED_HOURS = env.number("KVC_SHRED_HOURS", 24)
"""How long a shred epoch lasts: how long a copy of a destroyed secret can be read."""
EXPORT_DIR = env.text("KVC_EXPORT_DIR", "")
"""Where exports of the log are made and kept for some days; web and worker see the same directory."""
EXPORT_DAYS = env.number("KVC_EXPORT_DAYS", 7)
WEBHOOK_NETWORKS = env.items("KVC_WEBHOOK_NETWORKS")
"""Networks beside the public ones that webhooks may lead to; no others that are private, and never all of them."""
SPOOL_DIR = env.text("KVC_SPOOL_DIR", "")
"""Where refused log-ins wait while PostgreSQL is away; empty: they are lost then."""
VALKEY_URL = outside.verified(env.text("KVC_VALKEY_URL", "redis://127.0.0.1:6379/0"))
SHARD = env.number("KVC_SHARD", 0)
METRICS_TOKEN = env.text("KVC_METRICS_TOKEN", "")
"""Bearer that `/metrics` asks for; empty: open, for loopback."""
