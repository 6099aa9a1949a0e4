"""Fields of the pages of the log."""

from frontend.templatetags.auditing import filter_field
from frontend.tenancy.forms import Form


def test_a_field_has_its_label_its_hint_and_what_is_wrong():
    form = Form({"actor": "mira"}, errors={"actor": "This is needed."})
    shown = filter_field(form, "actor")
    assert (shown["value"], str(shown["label"]), shown["error"]) == ("mira", "Actor", "This is needed.")
    assert "node:" in str(shown["hint"])
