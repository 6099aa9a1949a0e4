"""From an act to its proof: real processes, a real browser, and a check with the file that was downloaded."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.frontend.conftest import Visit

pytestmark = [pytest.mark.walk, pytest.mark.browser, pytest.mark.timeout(300)]


@pytest.fixture
def auditor(console, chromium):
    """A browser of an auditor, while the whole log is at work."""
    console.start("signer", "web", "sequencer", "worker", "beat")
    console.seed()
    context = chromium.new_context(viewport={"width": 1440, "height": 900}, accept_downloads=True)
    one = Visit(context.new_page(), console.url)
    console.login(one.page, "auditor")
    one.listen()
    yield one
    context.close()
    assert not one.errors
    assert not one.foreign


def until(condition, seconds: float, what: str) -> None:
    """Until the condition holds."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < seconds, f"not within {seconds} s: {what}"
        time.sleep(0.2)


def saved(page, selector: str, folder: Path) -> Path:
    """The file behind a link."""
    with page.expect_download() as taken:
        page.click(selector)
    path = folder / taken.value.suggested_filename
    taken.value.save_as(path)
    return path


def check(*arguments) -> int:
    """Exit code of the verifier that was downloaded, run alone."""
    return subprocess.run([sys.executable, "-I", *map(str, arguments)], capture_output=True, check=False).returncode


def asked_on_the_public_page(one, file: Path | None, body: Path | None = None, earlier: Path | None = None) -> str:
    one.go("/verify")
    for name, path in (("proof", file), ("body", body), ("earlier", earlier)):
        if path:
            one.page.set_input_files(f"#f-{name}_file", str(path))
    one.page.click("main form[enctype] button[type=submit]")
    one.page.wait_for_selector("[data-verdict]")
    return one.page.get_attribute("[data-verdict]", "data-verdict")


def test_an_event_is_proved_exported_and_checked_with_what_was_downloaded(auditor, tmp_path):
    page = auditor.page
    auditor.go("/audit")
    until(lambda: "Signed up to entry" in page.inner_text("#log-answer"), 20, "the state to move by itself")
    kept = saved(page, "#keep-checkpoint", tmp_path)
    top = page.locator("#log tbody a").first.get_attribute("href")
    auditor.page.context.request.get(f"{auditor.url}/audit")
    until(lambda: page.locator("#log-newest").count() == 1, 20, "a look from elsewhere to be told as new")
    assert page.locator("#log tbody a").first.get_attribute("href") == top, "what one reads stays where it is"
    page.click("#log-newest")
    page.wait_for_selector("html[data-ready]", state="attached")
    assert page.locator("#log-newest").count() == 0
    auditor.go("/audit?action=user.created")
    page.click("#log tbody a >> nth=0")
    page.wait_for_selector("#proof-h")
    address = page.url

    def signed() -> bool:
        page.goto(address)
        return "under the signed head of" in page.inner_text("main")

    until(signed, 20, "the event to be signed")
    proof = saved(page, "main a[href$='/proof']", tmp_path)
    body = saved(page, "main .actions a[href$='/body']", tmp_path)
    auditor.go("/verify")
    verifier = saved(page, "a[href$='kvc_verify.py']", tmp_path)
    keys = saved(page, "a[href$='keys.txt']", tmp_path)
    assert check(verifier, "proof", proof, "--body", body, "--keys", keys) == 0
    assert asked_on_the_public_page(auditor, proof, body) == "valid"
    spoiled = tmp_path / "spoiled"
    spoiled.write_text(proof.read_text().replace("index ", "index 1", 1))
    assert asked_on_the_public_page(auditor, spoiled, body) == "invalid"
    assert check(verifier, "proof", spoiled, "--body", body, "--keys", keys) == 1

    auditor.go("/audit/exports/new?action=user")
    page.click("main form[method=get].stack button[type=submit]")
    page.click("section[aria-labelledby=plan-h] button[type=submit]")
    page.wait_for_selector("#job a.primary", timeout=60_000)
    bundle = saved(page, "#job a.primary", tmp_path)
    assert check(verifier, "bundle", bundle, "--keys", keys) == 0
    assert asked_on_the_public_page(auditor, bundle) == "valid"
    assert asked_on_the_public_page(auditor, None, earlier=kept) == "valid"
    assert "that you kept" in page.inner_text("#verdict")
    assert asked_on_the_public_page(auditor, bundle, earlier=kept) == "valid"
    raw = bytearray(bundle.read_bytes())
    raw[len(raw) // 2] ^= 1
    spoiled.write_bytes(bytes(raw))
    assert asked_on_the_public_page(auditor, spoiled) in ("invalid", "malformed")

    large = tmp_path / "large"
    large.write_bytes(b"PK" + bytes(1 << 20))
    auditor.go("/verify")
    page.set_input_files("#f-proof_file", str(large))
    page.click("main form[enctype] button[type=submit]")
    assert "offline" in page.evaluate("document.querySelector('#f-proof_file').validationMessage")
    assert page.locator("[data-verdict]").count() == 0, "it was not sent"
    auditor.go("/audit")
    newer = saved(page, "#keep-checkpoint", tmp_path)
    auditor.go("/verify")
    for name, file in (("old", kept), ("new", newer)):
        page.fill(f"#f-{name}", file.read_text().splitlines()[1])
    grown = saved(page, "form[action$='/audit/consistency'] button", tmp_path)
    words = ("consistency", kept, newer, "--keys", keys)
    assert (check(verifier, *words), check(verifier, *words, "--proof", grown)) == (3, 0)

    auditor.go("/audit")
    page.click("form[action$='/audit/verify'] button")
    until(lambda: "entries are as they were sealed" in page.inner_text("#job"), 60, "the verification to end")
