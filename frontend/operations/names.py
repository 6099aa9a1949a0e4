"""Decides who is named on the pages of operations: people whom the reader may look up anyway; others are a kind."""

from collections.abc import Iterable
from uuid import UUID

from frontend.audit.wording import ACTORS
from frontend.wording import Text
from tenants.accounts import selectors as accounts


def people_of(subjects: Iterable[str]) -> dict[str, Text]:
    """Subject, `user:<id>`, → the log-in name, or what kind of actor it is where there is none to tell."""
    wanted = set(subjects)
    ids = {text: id_ for text in wanted if text.startswith("user:") and (id_ := _uuid(text[5:]))}
    known = dict(accounts.people().filter(id__in=ids.values()).values_list("id", "username")) if ids else {}
    return {text: known[ids[text]] if ids.get(text) in known else kind_of(text) for text in wanted}


def kind_of(subject: str) -> Text:
    """What kind of actor a subject is."""
    kind = subject.partition(":")[0]
    return ACTORS.get({"token": "service"}.get(kind, kind), ACTORS["nobody"])


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None
