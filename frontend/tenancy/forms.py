"""Decides how forms are read, rehearsed and carried out, and how a refusal stands beside the field it is about.

A form has two steps: asked with GET it is checked without effect, and the page shows what would happen; posted, it is
done by the same service. What a service refuses is shown by its code; what was typed stays.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, TypeVar

from django.db import transaction
from django.http import QueryDict
from django.utils.functional import Promise
from django.utils.translation import get_language
from django.utils.translation import gettext_lazy as _
from rest_framework import exceptions

from frontend.problems import problem as meaning
from kvconsole.infra import keystore
from kvconsole.infra.access import current_principal, plane
from kvconsole.infra.rest import Problem, Strict

T = TypeVar("T")
UNITS = {"MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
MOST_BYTES = 2**62

NEEDED, OUTSIDE, OTHERWISE = _("This is needed."), _("Outside of what is allowed."), _("This is not as it must be.")
FIELD_WORDS: dict[str, str | Promise] = {
    "required": NEEDED,
    "blank": NEEDED,
    "out-of-range": OUTSIDE,
    "range": OUTSIDE,
    **dict.fromkeys(("min_value", "max_value", "min_length", "max_length", "max_string_length", "overflow"), OUTSIDE),
    "invalid_choice": _("This is not one of the choices."),
    "unstorable-text": _("This has characters that cannot be kept."),
    "guarantee-over-limit": _("The guarantee is more than the limit."),
    "below-use": _("More than this is held now."),
    "not-a-number": _("This is not a number."),
    "not-bytes": _("A number with B, KB, MB, GB, TB, KiB, MiB, GiB or TiB."),
    "not-a-size": _("A number with MiB, GiB or TiB; empty is no limit."),
    "not-a-time": _("A number of days from 1 to 365."),
    "not-a-retention": _("Lines of class: seconds."),
    "not-a-clock": _("A time of the day in UTC, 08:00 for example."),
    "not-soon": _("A number of minutes from 1 to 1,440."),
    "unknown-node": _("There is no such node."),
    "unknown-tenant": _("There is no such tenant."),
    "not-found": _("There is none of this name that you may see."),
    "unknown-model": _("There is no such model."),
    "out-of-bounds": OUTSIDE,
    "negative": OUTSIDE,
    "not-finite": _("This is not a number."),
    "bad-model": _("This is not the name of a model."),
    "not-the-phrase": _("Type it exactly as it stands above."),
    "none-chosen": _("Choose at least one."),
    "not-json": _("This is no JSON object."),
    "needs-tenant": _("This role exists only within a tenant."),
    "not-of-tenant": _("This role does not exist within a tenant."),
    "beyond-owner": _("Its owner does not have this role."),
    "beyond-caller": _("This is beyond the token that asks."),
    "duplicate": _("The same stands in a row above."),
    "not-of-service": _("Only people have this role, no service account."),
}


@dataclass
class Form:
    """What was typed, and what is wrong with it. `problem` = the code of a refusal that is about no single field."""

    given: dict[str, Any] = field(default_factory=dict)
    errors: dict[str, Any] = field(default_factory=dict)
    details: dict[str, str] = field(default_factory=dict)
    """What the service said of a field, in English, where there are no words for its code and who asks is `told`."""
    code: str = ""
    detail: str = ""
    status: int = 200

    @property
    def problem(self) -> Any:
        """What the refusal means, for `partials/_problem.html`."""
        return meaning(self.code) if self.code else None

    def refuse(self, problem: Problem) -> None:
        """The refusal is shown: by the fields it names, and as a whole."""
        self.code, self.status = problem.code, problem.status_code
        self.detail = problem.text if problem.text != problem.title and told() else ""
        for error in problem.errors:
            self._say(_field(error["pointer"]), error["code"], error["detail"])

    def _say(self, name: str, code: str, detail: str) -> None:
        if name not in self.errors:
            self.errors[name] = FIELD_WORDS.get(code, OTHERWISE)
            if code not in FIELD_WORDS and told():
                self.details[name] = detail

    def row(self, name: str, **drawn: Any) -> dict[str, Any]:
        """What `_field.html` draws of one field: `drawn`, what was typed, and what is wrong with it."""
        said = {"error": self.errors.get(name), "detail": self.details.get(name, "")}
        return {"name": name, "value": self.given.get(name, ""), **drawn, **said}

    def wrong(self, name: str, code: str) -> None:
        """One field cannot be read."""
        self.errors.setdefault(name, FIELD_WORDS[code])
        self.code, self.status = "validation-failed", 400


def told() -> bool:
    """Whether who asks is shown what services say in English: a tenant's people only where that is their language."""
    who = current_principal()
    return who is None or who.tenant_id is None or (get_language() or "en").startswith("en")


def _field(pointer: str) -> str:
    """`/tiers/hbm/limit_bytes` is `hbm_limit`, `/rules/a/tiers/0` is `rule_a_tiers`, `/classes/0` is `classes`.

    `/selector/tenant` is `tenant`, `/params/cap` is `params-cap`.
    """
    parts = pointer.strip("/").split("/")
    if parts[0] == "selector" and len(parts) > 1:
        return parts[1]
    if parts[0] == "params" and len(parts) > 1:
        return "-".join(parts)
    if parts[0] == "rules" and len(parts) > 1:
        return "_".join(("rule", *parts[1:3]))
    if parts[0] == "tiers" and len(parts) == 3:
        return f"{parts[1]}_{parts[2].removesuffix('_bytes')}"
    return parts[-1] if parts[0] == "tiers" else parts[0]


def typed(data: QueryDict | Mapping[str, Any], *names: str, many: tuple[str, ...] = ()) -> Form:
    """The form with what was typed in these fields; `many` are lists."""
    given: dict[str, Any] = {name: str(data.get(name, "")).strip() for name in names}
    for name in many:
        given[name] = data.getlist(name) if isinstance(data, QueryDict) else list(data.get(name, []))
    return Form(given=given)


def checked(serializer: type[Strict], form: Form, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields as the API's own rules take them; what they refuse is in the form."""
    one = serializer(data=dict(fields))
    try:
        one.is_valid(raise_exception=True)
    except exceptions.ValidationError as refused:
        form.refuse(Problem("validation-failed", errors=list(_leaves(refused.get_full_details(), ""))))
        return {}
    except Problem as refused:
        form.refuse(refused)
        return {}
    return dict(one.validated_data)


def _leaves(found: Any, at: str) -> Iterator[dict[str, str]]:
    if isinstance(found, dict) and set(found) == {"message", "code"}:
        yield {"pointer": at, "code": str(found["code"]), "detail": str(found["message"])}
    elif isinstance(found, dict):
        for name, part in found.items():
            yield from _leaves(part, f"{at}/{name}")
    else:
        for part in found:
            yield from _leaves(part, at)


def attempt(form: Form, act: Callable[[], T], *, rehearse: bool = False) -> T | None:
    """What the act answers; None where it was refused, and then nothing was done. A rehearsal is always undone."""
    if form.code:
        return None
    using = plane()
    try:
        with transaction.atomic(using=using):
            if not rehearse:
                return act()
            with keystore.rehearsal():
                done = act()
            transaction.set_rollback(True, using=using)
            return done
    except Problem as refused:
        form.refuse(refused)
        return None


def phrase(form: Form, wanted: str) -> None:
    """What has to be typed before something that cannot be taken back was typed; "" = nothing has to be."""
    if wanted and form.given["phrase"] != wanted:
        form.wrong("phrase", "not-the-phrase")


# --- single fields ----------------------------------------------------------------------------------------------------


def words(text: str) -> list[str]:
    """Names with commas or spaces between them, each once."""
    return list(dict.fromkeys(text.replace(",", " ").replace("，", " ").replace("、", " ").split()))


def retention(form: Form, name: str) -> dict[str, int]:
    """Lines of `class: seconds`."""
    found: dict[str, int] = {}
    for line in form.given[name].replace(";", "\n").splitlines():
        if not line.strip():
            continue
        of, _colon, seconds = line.replace("：", ":").partition(":")
        if not of.strip() or not seconds.strip().isdecimal():
            form.wrong(name, "not-a-retention")
            return {}
        found[of.strip()] = int(seconds)
    return found


def size(form: Form, name: str) -> int | None:
    """Bytes as people write them, `640 GiB`; empty = None."""
    text = form.given[name].replace(",", "")
    if not text:
        return None
    number, unit = text, 1
    for suffix, factor in UNITS.items():
        if text.lower().endswith(suffix.lower()):
            number, unit = text[: -len(suffix)].strip(), factor
    try:
        value = float(number)
    except ValueError:
        value = -1.0
    if not 0 <= value <= MOST_BYTES / unit or (unit == 1 and value != 0 and not number.isdecimal()):
        form.wrong(name, "not-a-size")
        return None
    return int(number) * unit if number.isdecimal() else int(value * unit)


def written(value: int | None) -> str:
    """Bytes as `size` reads them; nothing is lost."""
    if value is None:
        return ""
    for suffix, factor in reversed(UNITS.items()):
        if value and value % factor == 0:
            return f"{value // factor} {suffix}"
    return str(value)


def whole(form: Form, name: str) -> int | None:
    """A whole number; empty = None."""
    text = form.given[name].replace(",", "")
    if not text:
        return None
    if not text.isdecimal() or len(text) > 18:
        form.wrong(name, "not-a-number")
        return None
    return int(text)


def until(form: Form, name: str, now: datetime) -> datetime | None:
    """So many days from now."""
    text = form.given[name]
    if not text.isdecimal() or len(text) > 3 or not 1 <= int(text) <= 365:
        form.wrong(name, "not-a-time")
        return None
    return now + timedelta(days=int(text))
