"""The sentence about the log, words of its codes, and addresses of its pages."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from audit import retention, scrubber
from audit.export.foresee import Foreseen
from audit.jobs import STATES
from audit.selectors import FLAGS, OUTCOMES
from audit.signing import Doubt
from audit.tree import LogState
from audit.webhooks import services as hooks
from audit.webhooks.kinds import KINDS
from frontend.audit import pages, sentences, urls, wording
from frontend.audit.checking import Checked
from kvconsole.infra.access import PUBLIC, Evidence, registry, unregistered
from tenants.reading.access import _powers

NOW = datetime(2026, 11, 29, 14, 30, tzinfo=UTC)
FINE = LogState(
    size=1000, sequenced_at=NOW, signed_size=1000, signed_at=NOW, pending=0, oldest_pending_seconds=0.0, signer="ok",
    signer_why="", witness="none", witness_why="", findings=0, scrubbed_at=NOW, scrubbed_size=900,
)  # fmt: skip


def said(**fields):
    return sentences.chain(FINE._replace(**fields), NOW)


def test_a_whole_log_says_up_to_where():
    one = said()
    assert (one.tone, one.lead) == ("ok", "Signed up to entry 999.")
    assert "up to entry 899" in one.rest


@pytest.mark.parametrize(("fields", "tone", "lead"), [
    ({"signed_size": 0, "signed_at": None}, "unknown", "Nothing is signed yet."),
    ({"signer": "refused"}, "danger", "The signer refuses this log."),
    ({"findings": 2}, "danger", "2 findings are open."),
    ({"signer": "away"}, "warn", "The last signature is"),
    ({"signed_at": NOW - timedelta(minutes=5)}, "warn", "The last signature is 5 min old."),
    ({"oldest_pending_seconds": 30.0}, "warn", "Events wait for 30 s."),
    ({"scrubbed_at": None}, "unknown", "Signed up to entry 999."),
    ({"scrubbed_at": NOW - timedelta(days=2)}, "warn", "Signed up to entry 999."),
    ({"signer": "refused", "findings": 1, "scrubbed_at": None}, "danger", "The signer refuses this log."),
])  # fmt: skip
def test_what_is_not_known_is_never_fine(fields, tone, lead):
    one = said(**fields)
    assert one.tone == tone
    assert one.lead.startswith(lead)


def test_what_a_log_cannot_show_is_said():
    assert "never recorded" in sentences.residual()


def test_rows_that_nobody_looked_at_lately_are_said_so():
    assert said(scrubbed_at=NOW - timedelta(days=2)).rest.endswith("Nobody has looked since.")
    assert "since" not in said().rest


@pytest.mark.parametrize(("found", "count", "personal"), [
    (Foreseen(1, True, False, NOW, NOW, 1, 1, 1), "1 event", "1 of them have some; that of 1 can still be read."),
    (Foreseen(7_000, False, False, NOW, NOW, 1_000, 0, 0), "About 7,000 events", "None in the newest 1,000 events."),
    (Foreseen(200_000, False, True, NOW, NOW, 1_000, 3, 2), "200,000 events or more",
     "3 of the newest 1,000 have some; that of 2 can still be read."),
    (Foreseen(0, True, False, None, None, 0, 0, 0), "0 events", "None."),
])  # fmt: skip
def test_what_an_export_would_hold_is_never_said_to_be_exact_where_it_is_not(found, count, personal):
    assert (sentences.held(found), sentences.held_personal(found)) == (count, personal)


LOG = {"size": 40, "root": "", "origin": "log", "signed_by": [], "witnesses": []}
PROOF = Checked("proof", "valid", {"event": {"index": 7}, "log": LOG, "previous": LOG | {"size": 9}}, "console", True)


def test_a_check_says_its_verdict_first_and_claims_nothing_where_it_failed():
    lines = sentences.verdict(PROOF)
    assert lines[0] == "Valid: entry 7 is in the log."
    assert lines[1] == "Its log begins with the 9 entries that you kept."
    assert [name for name, _ in sentences.heads(PROOF)] == ["What you kept", "This one"]
    assert [name for name, _ in sentences.heads(PROOF._replace(grown=False))] == ["This one"]
    for verdict in ("incomplete", "invalid", "malformed"):
        assert not [line for line in sentences.verdict(PROOF._replace(verdict=verdict)) if "begins with" in line]


def test_personal_data_of_a_check_is_counted_where_there_was_some():
    some = PROOF._replace(facts=PROOF.facts | {"personal_data": {"disclosed": 1, "sealed": 2, "shredded": 0}})
    assert "Personal data: 1 opened and as it was sealed, 2 sealed, 0 shredded." in sentences.verdict(some)
    none = PROOF._replace(facts=PROOF.facts | {"personal_data": {"disclosed": 0, "sealed": 0, "shredded": 0}})
    assert not [line for line in sentences.verdict(none) if "Personal" in line]


def test_everything_that_cannot_be_taken_back_has_its_words():
    assert unregistered() == []
    assert {f"{one.scope}{'/person' if one.person else ''}" for one in _powers()} == set(wording.POWERS)
    assert all(not call.startswith("GET ") for one in _powers() for call in one.calls)


def test_jobs_say_what_came_of_them():
    assert sentences.job("verify", "running", None) == ""
    assert "entry 12" in sentences.job("verify", "done", {"divergences": 1, "first_divergent": 12, "size": 40})
    assert "All 40" in sentences.job("verify", "done", {"divergences": 0, "first_divergent": None, "size": 40})
    assert sentences.job("export", "done", {"records": 3}).startswith("3 events")


def test_every_code_has_its_word():
    assert set(OUTCOMES) <= set(wording.OUTCOMES)
    assert set(STATES) <= set(wording.JOB_STATES)
    assert set(FLAGS.values()) <= set(wording.FLAGS)
    assert set(KINDS) <= set(wording.HOOK_KINDS)
    assert set(hooks.STATES) <= set(wording.HOOK_STATES)
    assert set(retention.CLASSES) == set(wording.CLASSES)
    assert set(Doubt.__args__) == set(wording.DOUBTS)
    assert set(scrubber.KINDS) <= set(wording.FINDINGS)


def test_keys_under_a_note_are_named_once():
    assert pages.signed_by("kvc\n3\nroot\n\n\u2014 kvc/log AAAA\n\u2014 kvc/log BBBB\n\u2014 w CCCC\n") == [
        "kvc/log",
        "w",
    ]


@dataclass
class Rows:
    """A list that only knows how to be cut."""

    count: int

    def __getitem__(self, part: slice) -> range:
        return range(self.count)[part]


@pytest.mark.parametrize(("asked", "shown", "after", "before"), [
    ("", 50, "?page=1", ""), ("1", 50, "?page=2", "?page=0"), ("2", 20, "", "?page=1"), ("-1", 50, "?page=1", ""),
    ("9" * 40, 50, "?page=1", ""),
])  # fmt: skip
def test_lists_are_shown_in_pages(asked, shown, after, before):
    found, page = pages.numbered(Rows(120), {"page": asked})
    assert (len(found), page.after, page.before) == (shown, after, before)


def test_whoever_reads_events_leaves_one_and_only_the_check_is_public():
    known = registry()
    assert all(known[name]["GET"].evidence is Evidence.AUDITED for name in ("page-audit", "page-audit-event"))
    open_ = {p.name for p in urls.urlpatterns for rule in known[p.name].values() if PUBLIC in rule.roles}
    assert open_ == {"page-verify", "page-verifier", "page-verify-keys"}
