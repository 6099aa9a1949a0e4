"""`kvc audit` and `kvc webhooks` in a process of their own, against a console that serves."""

import json
import uuid
from datetime import UTC, datetime

import pytest

from audit import work
from kvconsole.infra.sql import connect
from tenants import services
from tests.audit.conftest import sealed as sealed
from tests.audit.test_selectors import told
from tests.frontend import plant_audit

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])


@pytest.fixture
def auditor():
    return services.token_issue("service", roles=["auditor"])[1]


def test_events_proofs_exports_and_verifications(kvc, auditor, sealed, tmp_path):
    (event,) = told()
    size = sealed()
    code, out, _ = kvc("audit", "events", "--object", "thing", token=auditor)
    assert (code, str(event.event_id) in out) == (0, True)
    assert json.loads(kvc("--json", "audit", "show", str(event.event_id), token=auditor)[1])["index"] is not None
    assert kvc("audit", "proof", str(event.event_id), token=auditor)[1].startswith("c2sp.org/tlog-proof@v1\n")
    assert json.loads(kvc("--json", "audit", "checkpoint", token=auditor)[1])["size"] == size
    assert kvc("audit", "state", token=auditor)[0] == kvc("audit", "access-review", token=auditor)[0] == 0
    narrow = services.token_issue("service", roles=["auditor"], scopes=["audit:read"])[1]
    assert kvc("audit", "verify", token=narrow)[0] == 1
    code, out, error = kvc("--json", "audit", "export", "--format", "csv", "--object", "thing", token=auditor)
    assert code == 0, error
    job = json.loads(out)["id"]
    work.job_run(uuid.UUID(job), holder="t", now=datetime.now(UTC))
    assert json.loads(kvc("--json", "audit", "job", job, token=auditor)[1])["state"] == "done"
    target = tmp_path / "b.zip"
    (tmp_path / "b.zip.part").write_bytes(b"PK\x03\x04")
    code, out, error = kvc("audit", "download", job, "--to", str(target), token=auditor)
    assert (code, target.read_bytes()[-22:-18]) == (0, b"PK\x05\x06"), error
    assert kvc("audit", "jobs", "--kind", "export", token=auditor)[1].count("\n") == 2
    assert kvc("audit", "cancel", job, token=auditor)[0] == 1
    code, out, _ = kvc("--json", "audit", "verify", token=auditor)
    assert (code, json.loads(out)["kind"]) == (0, "verify")


def test_webhooks(kvc, staff, settings):
    settings.TASK_SENDER = "tests.audit.sealed.nobody"
    words = ("--json", "webhooks", "create", "https://hooks.example.com/", "--event", "log.gap")
    code, out, error = kvc(*words, token=staff)
    assert code == 0, error
    made = json.loads(out)
    assert made["secret"].startswith("whsec_")
    assert json.loads(kvc("--json", "webhooks", "rotate", made["id"], token=staff)[1])["secret"] != made["secret"]
    assert kvc("webhooks", "test", made["id"], token=staff)[0] == 0
    assert kvc("webhooks", "deliveries", made["id"], token=staff)[1].count("webhook.test") == 1
    assert kvc("webhooks", "change", made["id"], "--state", "paused", token=staff)[0] == 0
    assert json.loads(kvc("--json", "webhooks", "show", made["id"], token=staff)[1])["state"] == "paused"
    assert kvc("webhooks", "list", token=staff)[1].count("hooks.example.com") == 1
    assert kvc("webhooks", "remove", made["id"], token=staff)[0] == 0
    assert kvc("webhooks", "show", made["id"], token=staff)[0] == 1


def test_findings_logs_retention_and_growth(kvc, auditor, sealed, tmp_path):
    told(3)
    size = sealed()
    files = {name: tmp_path / f"{name}.txt" for name in ("old", "new", "keys", "proof")}
    files["old"].write_text(kvc("audit", "checkpoint", "--note", token=auditor)[1])
    files["keys"].write_text(kvc("audit", "checkpoint", "--keys", token=auditor)[1])
    told(2)
    sealed()
    files["new"].write_text(kvc("audit", "checkpoint", "--note", token=auditor)[1])
    files["proof"].write_text(kvc("audit", "consistency", str(size), token=auditor)[1])
    words = [str(files[name]) for name in ("old", "new")]
    code, out, error = kvc(
        "verify", "consistency", *words, "--proof", str(files["proof"]), "--keys", str(files["keys"])
    )
    assert (code, "VALID" in out) == (0, True), error
    with connect("migrate") as cx:
        plant_audit.finding(cx)
    (found,) = json.loads(kvc("--json", "audit", "findings", "--state", "open", token=auditor)[1])
    assert kvc("audit", "finding", str(found["id"]), token=auditor)[1].startswith("id ")
    assert kvc("audit", "finding", "0", token=auditor)[0] == 1
    operator = services.token_issue("service", roles=["operator"], scopes=["audit:read", "audit:destroy"])[1]
    code, out, error = kvc("--json", "audit", "end-log", "--reason", "restore", token=operator)
    assert code == 0, error
    assert kvc("audit", "order", json.loads(out)["id"], token=operator)[0] == 1, "nobody approved it"
    table = kvc("audit", "logs", token=operator)[1]
    assert table.startswith("NUMBER")
    assert json.loads(out)["id"] in table
    assert kvc("audit", "retire", "2023-01", "--class", "1", "--validate-only", token=operator)[0] == 0
    assert kvc("audit", "retentions", token=operator)[1].count("\n") == 1
