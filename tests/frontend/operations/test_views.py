"""Pages of operations over a planted fleet: each state, each refusal, and no word that claims more than its class."""

import html
import re

import pytest
from django.urls import reverse

from catalog.models import Operation
from kvcore.erasure_words import too_strong
from tests.frontend.tenancy.conftest import proved

pytestmark = pytest.mark.django_db
ENDED = ("stopped", "denied", "expired", "failed")


def text(answer) -> str:
    """What the page says, without its tags."""
    page = re.sub(r"<(script|style|svg)\b.*?</\1>", " ", answer.content.decode(), flags=re.S)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page))


def anew_of(answer) -> str:
    """Where the page leads to plan the same again."""
    return html.unescape(re.search('href="((?:/deletions/new|/epochs/retire)[^"]+)"', answer.content.decode())[1])


def run(who, made, name):
    return who.get(f"/operations/{made[name]}")


@pytest.mark.parametrize(("name", "said"), [
    ("waiting", "Nothing is fenced yet."), ("fenced", "It is fenced."), ("erasing", "nodes are at work"),
    ("paused", "It is paused."), ("stopped", "What was fenced stays fenced; there is no certificate."),
    ("denied", "A second person refused it."), ("expired", "What the plan reaches has changed"),
    ("failed", "It failed."), ("completed", "It is completed."),
    ("completed_with_exceptions", "It is completed with exceptions."),
])  # fmt: skip
def test_every_state_has_its_page_and_says_what_is_not_so(made, person, name, said):
    page = run(person("viewer"), made, name)
    assert page.status_code == 200
    assert said in text(page)
    assert f"/operations/{made[name]}/" not in page.content.decode(), "a viewer changes nothing"


def test_a_cell_that_waits_names_the_node_that_is_off(made, person):
    page = text(run(person("operator"), made, "erasing"))
    assert "1 node does not answer. fra-d2" in page
    assert "What it holds was not looked at" in page
    assert "waits for the node" in page
    assert "answered, not looked at" in page


def test_what_is_said_of_cells_is_never_stronger_than_their_class(made, person):
    """The planted copies are of class E2 at most: nobody but the node itself attests them."""
    for name in ("erasing", "paused", "completed", "completed_with_exceptions"):
        page = text(run(person("viewer", name=f"v-{name}"), made, name))
        assert re.search(r"\bE[01]\b|\bE2\b", page), name
        assert not too_strong(page.split("Where the copies are")[-1], 2), name


def test_a_plan_shows_what_goes_what_is_in_the_way_and_what_is_left_out(made, person):
    page = person("operator").get(f"/plans/{made['plan']}")
    said = text(page)
    for word in ("1 node does not answer. fra-d2", "legal hold", "pin", "lease of the key", "cobalt-support",
                 "100 keys of blocks", "One label goes.", "unknown not foreseen"):  # fmt: skip
        assert word in said, word
    assert "A destructive operator starts it" in said, "an operator looks, and does not start"
    assert page.context["sums"]["hbm"]["blocks"] == 4 * 1_204


def test_a_plan_that_is_too_old_is_not_started(made, person):
    who = proved(person("destructive-operator"))
    drift = who.get(f"/plans/{made['plan-old']}/drift")
    assert "too old to be started" in text(drift)
    form = who.get(html.unescape(re.search('href="(/deletions/new[^"]+)"', drift.content.decode())[1])).context["form"]
    assert (form.given["tenant"], form.given["label"]) == ("acme-code", "contracts"), "it can be planned anew"
    assert 'id="begin"' not in who.get(f"/plans/{made['plan-old']}").content.decode()
    answer = who.post(f"/plans/{made['plan-old']}/start", {})
    assert (answer.status_code, answer.context["code"]) == (410, "plan-expired")


def test_what_a_plan_reached_and_is_gone_is_told_and_it_cannot_be_started(made, person):
    """What was planted of blocks is not in the directory any more: all bytes have changed."""
    who = proved(person("destructive-operator"))
    assert "has to be planned anew" in text(who.get(f"/plans/{made['plan']}/drift"))
    answer = who.post(f"/plans/{made['plan']}/start", {})
    assert (answer.status_code, answer.context["code"]) == (409, "plan-drifted")
    refused = text(answer)
    assert "bytes have changed by more than 5 %" in refused
    assert not re.search(r"bytes-differ|\d{5,} bytes|Fence and remove|Ask a second person", refused)
    form = who.get(anew_of(answer)).context["form"]
    assert (form.given["tenant"], form.given["label"]) == ("acme-code", "contracts"), "the same can be planned again"
    assert not Operation.objects.filter(plan=made["plan"]).exists()


def test_an_operation_whose_plan_did_not_hold_leads_to_the_filled_form(made, person):
    page = run(person("operator"), made, "expired")
    assert "tenant=acme-code&label=contracts" in anew_of(page)
    assert "Plan it anew" not in text(run(person("operator", name="o-2"), made, "failed"))


def test_a_code_of_a_step_is_told_in_words():
    from django.utils.translation import override

    from frontend.templatetags.operating import trouble

    assert trouble("agent-unreachable") == "the agent does not answer"
    with override("zh-hans"):
        assert str(trouble("agent-unreachable")) == "代理无应答"


def test_friction_grows_with_the_risk(made, person):
    who = person("destructive-operator")
    assert reverse("page-plan-start", args=[made["plan"]]) in who.get(f"/plans/{made['plan']}").content.decode()
    for name in ("plan-R2", "plan-R3"):
        page = who.get(f"/plans/{made[name]}").content.decode()
        assert reverse("page-plan-confirm", args=[made[name]]) in page
        assert who.get(f"/plans/{made[name]}/confirm").status_code == 302, "who asks proves who they are"
    assert "Until then nothing is fenced." in text(who.get(f"/plans/{made['plan-R3']}"))
    asked = proved(who).get(f"/plans/{made['plan-R3']}/confirm").content.decode()
    assert 'name="confirm_phrase"' in asked
    assert "you cannot be that person" in asked
    wrong = who.post(f"/plans/{made['plan-R3']}/confirm", {"confirm_phrase": "delete", "reason": "x"})
    assert (wrong.status_code, wrong.context["code"]) == (422, "confirm-phrase-wrong")


def test_a_stale_proof_does_not_start_what_needs_one(made, person):
    answer = person("destructive-operator").post(f"/plans/{made['plan-R2']}/start", {"reason": "x"})
    assert (answer.status_code, answer.context["code"]) == (403, "step-up-required")


def test_the_address_of_epochs_starts_nothing_else_and_the_other_no_epochs(made, person):
    who = proved(person("destructive-operator"))
    assert who.get(f"/plans/{made['plan']}/retire").status_code == 404


def test_what_does_not_exist_has_no_page(made, person):
    who, nothing = proved(person("destructive-operator")), "0190aaaa-0000-7000-8000-00000000dead"
    for path in (f"/operations/{nothing}", f"/plans/{nothing}", f"/receipts/{nothing}", f"/certificates/{nothing}",
                 f"/holds/{nothing}", f"/approvals/{nothing}", f"/plans/{nothing}/confirm",
                 f"/operations/{nothing}/stop"):  # fmt: skip
        assert who.get(path).status_code == 404, path
    assert who.post(f"/operations/{nothing}/pause").status_code == 404


def test_stop_says_what_it_means_and_a_viewer_may_not(made, person):
    assert person("viewer").get(f"/operations/{made['erasing']}/stop").status_code == 403
    who = proved(person("destructive-operator", name="stopper"))
    assert "Bytes that no node was asked for yet may stay" in text(who.get(f"/operations/{made['erasing']}/stop"))


def test_pause_throttle_go_on_and_stop(made, person):
    who, at = proved(person("destructive-operator")), made["paused"]
    assert who.post(f"/operations/{at}/resume").status_code == 302
    assert who.post(f"/operations/{at}/throttle", {"throttle": "8 MiB"}).status_code == 302
    row = Operation.objects.get(id=at)
    assert (row.paused, row.throttle) == (False, 8 << 20)
    wrong = who.post(f"/operations/{at}/throttle", {"throttle": "fast"})
    assert (wrong.status_code, wrong.context["form"].errors.keys()) == (400, {"throttle"})
    assert who.post(f"/operations/{at}/pause").status_code == 302
    assert who.post(f"/operations/{at}/stop").status_code == 302
    over = who.post(f"/operations/{at}/resume")
    assert (over.status_code, over.context["code"]) == (409, "operation-over")
