"""The record of a log that goes on after another one has one form."""

import pytest

from kvcore.epochs import record_parse, record_text
from kvcore.notes import NoteError
from tests.audit.verifier.test_kvc_verify_epochs import FACTS, ORIGIN, record


def test_what_is_written_is_read():
    assert record_parse(record()) == FACTS
    assert (FACTS.old_origin, FACTS.origin) == ("kvconsole.example/log/test/1", ORIGIN)


@pytest.mark.parametrize(
    "change",
    [{"kept": 41}, {"approvers": ("ab" * 16, "ab" * 16)}, {"reason": "because"}, {"old": "x"}, {"approval": "y"},
     {"kept": -1}, {"at": "now"}, {"new": FACTS.new.replace("+", "-")}],
)  # fmt: skip
def test_nothing_else_is_a_record(change):
    with pytest.raises(NoteError):
        record_text(FACTS._replace(**change))


def test_other_text_is_none():
    for text in ("x\n", record_text(FACTS) + "more\n", record_text(FACTS).replace("v1", "v2")):
        with pytest.raises(NoteError):
            record_parse(record(text=text))
