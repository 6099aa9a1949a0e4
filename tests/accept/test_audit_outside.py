"""The log, seen from outside: what an auditor takes away is checked where nothing of the project is.

One console for all of it; the auditor speaks REST, and the verifier is the one that comes in the bundle.
"""

import argparse
import importlib.util
import json
import os
import random
import re
import shutil
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kvconsole.embedded import Postgres
from tests.accept.conftest import a_console
from tests.accept.fleet import say
from tests.accept.tenancy import Caller, People, accept
from tests.accept.trail import Apart, Trail, a_trail, dump, holding, restored
from tests.audit.verifier import mutants
from tests.audit.verifier.bundles import build, sample

pytestmark = [pytest.mark.accept, pytest.mark.walk]
COUNT = 100_000 if os.environ.get("KVC_ACCEPT") == "full" else 1_000
THEIRS = build(sample(30, seed=7, origin="kvconsole.example/log/other/1"))["files"]


@pytest.fixture(scope="module")
def trail(postgres: Postgres, template: str, service_base: Path) -> Iterator[Trail]:
    """A console with a log that is signed."""
    with a_console(postgres, template, service_base) as console, a_trail(console) as made:
        yield made


@pytest.fixture
def apart(tmp_path: Path) -> Apart:
    """A machine without the project."""
    made = Apart(tmp_path / "apart")
    seen = "print([n for n in ('cryptography', 'django', 'kvcore', 'audit') if importlib.util.find_spec(n)])"
    assert made.python("-c", f"import importlib.util, os; {seen}; print(dict(os.environ).keys() - {{'LC_CTYPE'}})") == (
        0, "[]\nset()\n",
    )  # fmt: skip
    return made


def live(trail: Trail, count: int = 3) -> list[str]:
    """Things are done, and one is refused among them; slugs of new tenants."""
    operator, slugs = trail.people.browser("operator"), [f"t-{uuid.uuid4().hex[:8]}" for _ in range(count)]
    for slug in slugs:
        operator.post("/tenants", {"slug": slug, "name": slug, "isolation": "shared"})
        assert trail.people.browser("viewer")("POST", "/tenants", {}).status_code == 403
    return slugs


# --- a bundle, elsewhere -----------------------------------------------------------------


@pytest.mark.timeout(300)
def test_a_bundle_exported_earlier_verifies_without_the_project_and_is_consistent_with_todays_checkpoint(
    trail: Trail, apart: Apart
) -> None:
    live(trail)
    apart.put("keys.txt", "\n".join(trail.signed()["keys"]))
    early = trail.export()
    apart.put("early.zip", early)
    apart.take_out("early.zip", "verify.py")
    then = apart.verify("bundle", "early.zip", "--keys", "keys.txt")
    assert (then.exit, then.report["problems"], then.report["range"]["full"]) == (0, [], True), then.text

    live(trail)
    today = trail.signed()
    apart.put("today.note", today["note"])
    apart.put("late.zip", trail.export(size=today["size"]))
    apart.take_out("late.zip", "consistency.txt", "events.jsonl")
    grown = apart.verify("consistency", "early.zip", "today.note", "--proof", "consistency.txt", "--keys", "keys.txt")
    assert (grown.exit, grown.report["previous"]["size"]) == (0, then.report["log"]["size"]), grown.text
    assert grown.report["log"]["size"] == today["size"] > then.report["log"]["size"]
    assert apart.verify("consistency", "early.zip", "late.zip", "--keys", "keys.txt").exit == 0
    assert apart.verify("bundle", "early.zip", "--keys", "keys.txt").report == then.report, "it says the same as then"

    event = trail.events(action="tenant.created")[0]
    proof = trail.auditor("GET", f"/audit/proofs/{event['id']}").text
    lines = (apart.directory / "events.jsonl").read_bytes().splitlines()
    body = re.match(rb'\{"body":(.*),"index":\d+,"leaf":"[^"]*"', lines[event["index"]])
    assert body is not None
    apart.put("event.proof", proof)
    apart.put("event.json", body[1])
    one = apart.verify("proof", "event.proof", "--body", "event.json", "--keys", "keys.txt")
    assert (one.exit, one.report["event"]["index"], one.report["remarks"]) == (0, event["index"], []), one.text
    say("audit-bundle", records=then.report["records"], then=then.report["log"]["size"], today=today["size"],
        exits=_exits(apart, early))  # fmt: skip


def _exits(apart: Apart, early: bytes) -> dict[str, list[str]]:
    """Each exit code and what leads to it; text and JSON agree (`Apart.verify`)."""
    spoiled = bytearray(early)
    spoiled[early.index(b"events.jsonl") + 60] ^= 1
    apart.put("flipped.zip", bytes(spoiled))
    keys = ("--keys", "keys.txt")
    cases = {
        0: [("bundle", "early.zip", *keys)],
        1: [("bundle", "flipped.zip", *keys), ("consistency", "late.zip", "early.zip", *keys)],
        2: [("bundle", "verify.py", *keys), ("proof", "early.zip", *keys), ("bundle", "nowhere.zip", *keys),
            ("bundle", "early.zip", "--key", "nonsense")],
        3: [("bundle", "early.zip"), ("bundle", "early.zip", *keys, "--quorum", "1"),
            ("consistency", "early.zip", "today.note", *keys)],
    }  # fmt: skip
    told: dict[str, list[str]] = {}
    for code, calls in cases.items():
        for call in calls:
            said = apart.verify(*call)
            assert said.exit == code, (call, said.text)
            facts = said.report["problems"] or said.report["reasons"] or [{"code": "valid"}]
            told.setdefault(str(code), []).append(facts[0]["code"])
    assert apart.python("verify.py")[0] == apart.python("verify.py", "bundle")[0] == 2, "wrong usage"
    return told


# --- bundles that were changed ---------------------------------------------------------------


@pytest.fixture(scope="module")
def bundles(trail: Trail) -> dict[str, mutants.Bundle]:
    """Bundles of each form that there is, as they were downloaded."""
    (slug,) = live(trail, 1)
    for _ in range(20):
        live(trail)
    operator = trail.people.browser("operator")
    good = operator("PATCH", f"/tenants/{slug}", {"name": "Other"}, **{"If-Match": "*"})
    assert good.status_code == 200, good.text
    trail.signed()
    changed = trail.events(action="tenant.changed")[0]["object"]
    times = [event["time"] for event in trail.events() if event["index"] is not None]
    asked: dict[str, dict[str, Any]] = {
        "full": {},
        "part": {"from": times[-1], "to": times[len(times) // 2]},
        "chosen": {"filters": {"outcome": "success"}, "format": "csv"},
        "paths": {"filters": {"object": f"{changed['kind']}:{changed['id']}"}},
    }
    made = {name: mutants.Bundle(trail.export(**one)) for name, one in asked.items()}
    forms = {name: json.loads(one.files["manifest.json"]) for name, one in made.items()}
    assert {name: (form["proof"], form["full"]) for name, form in forms.items()} == {
        "full": ("range", True), "part": ("range", True), "chosen": ("range", False), "paths": ("inclusion", False),
    }  # fmt: skip
    assert all(form["previous"] for name, form in forms.items() if name != "full")
    return made


@pytest.fixture(scope="module")
def keys(trail: Trail) -> list[str]:
    """As `GET /audit/checkpoint` shows them."""
    return list(trail.signed()["keys"])


@pytest.fixture(scope="module")
def verifier(bundles: dict[str, mutants.Bundle], tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """The verifier of the bundle, in this process: 100,000 processes would take hours."""
    path = tmp_path_factory.mktemp("verifier") / "verify.py"
    path.write_bytes(bundles["full"].files["verify.py"])
    spec = importlib.util.spec_from_file_location("verify_of_a_bundle", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def verdict(verifier: ModuleType, path: Path, keys: list[str]) -> Any:
    """What it says of a file or directory."""
    options = {"command": "bundle", "file": str(path), "key": keys, "keys": [], "quorum": 0}
    return verifier.run(argparse.Namespace(**options))


@pytest.mark.timeout(7200)
def test_of_mutated_bundles_none_is_accepted(
    bundles: dict[str, mutants.Bundle], verifier: ModuleType, keys: list[str], tmp_path: Path
) -> None:
    target, tried, accepted, unplaced = tmp_path / "bundle.zip", Counter[str](), [], []
    begin = time.monotonic()
    for shape, made in bundles.items():
        others = [one.files for name, one in bundles.items() if name != shape] + [THEIRS]
        target.write_bytes(made.data)
        assert verdict(verifier, target, keys).verdict == "valid"
        seed, half = sum(shape.encode()), COUNT // len(bundles) // 2
        for source in (mutants.of_bytes(made.data, half, seed), mutants.of_parts(made, others, half, seed)):
            for mutant in source:
                if mutant.data == made.data:
                    continue
                target.write_bytes(mutant.data)
                report = verdict(verifier, target, keys)
                tried[mutant.kind] += 1
                good = ("invalid",) if mutant.kind == "flip" else ("invalid", "malformed")
                problems = report.facts["problems"]
                if report.verdict not in good or not problems:
                    accepted.append((shape, mutant.kind, mutant.at, report.verdict))
                elif not report.malformed and not set(problems[0]) & {"file", "byte", "line"}:
                    unplaced.append((shape, mutant.kind, mutant.at, problems[0]))
    say("audit-mutants", tried=tried.total(), accepted=len(accepted), without_a_place=len(unplaced), kinds=tried,
        records={name: one.files["events.jsonl"].count(b"\n") for name, one in bundles.items()},
        seconds=round(time.monotonic() - begin, 1))  # fmt: skip
    assert tried.total() >= COUNT * 0.99
    assert not accepted
    assert not unplaced


@pytest.mark.timeout(1200)
def test_of_a_flipped_bit_the_exit_is_1_and_the_place_is_named(
    bundles: dict[str, mutants.Bundle], verifier: ModuleType, keys: list[str], apart: Apart, tmp_path: Path
) -> None:
    supply, target, named = random.Random(5), tmp_path / "bundle.zip", Counter[str]()
    for made in bundles.values():
        for _ in range(min(COUNT // 20, 500)):
            name = supply.choice([name for name, (_, length) in made.places.items() if length])
            start, length = made.places[name]
            target.write_bytes(mutants.flipped_at(made.data, 8 * start + supply.randrange(8 * length)).data)
            report = verdict(verifier, target, keys)
            assert report.verdict == "invalid"
            # A signature covers the manifest, so that either of the two can be what was changed.
            files = {problem.get("file") for problem in report.facts["problems"]}
            assert files & ({"manifest.json", "manifest.sig"} if name.startswith("manifest") else {name}), (name, files)
            named[name] += 1
    lines = _record_places(bundles["full"], verifier, keys, tmp_path / "unpacked", supply)
    apart.put("keys.txt", "\n".join(keys))
    apart.put("good.zip", bundles["full"].data)
    apart.take_out("good.zip", "verify.py")
    good = bundles["full"].files
    shutil.copytree(tmp_path / "unpacked", apart.directory / "unpacked")
    (apart.directory / "unpacked/events.jsonl").write_bytes(good["events.jsonl"])
    for leaf in (0, len(good["hashes.bin"]) // 64, len(good["hashes.bin"]) // 32 - 1):
        apart.put("unpacked/hashes.bin", mutants.flipped_at(good["hashes.bin"], 8 * 32 * leaf).data)
        said = apart.verify("bundle", "unpacked", "--keys", "keys.txt")
        assert said.exit == 1
        assert f"line {leaf + 1}, index {leaf}, field leaf" in said.text, said.text
    say("audit-flips", files=named, records=lines)


def _record_places(
    made: mutants.Bundle, verifier: ModuleType, keys: list[str], place: Path, supply: random.Random
) -> int:
    """Bits of records, in a bundle that was unpacked: named by line, and by index and field where it is the body."""
    for name, data in made.files.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(data)
    lines = made.files["events.jsonl"].splitlines(keepends=True)
    for _ in range(tried := min(COUNT // 10, 2_000)):
        at = supply.randrange(len(lines))
        inside = supply.randrange(8 * (len(lines[at]) - 1))
        before = sum(map(len, lines[:at]))
        mutant = mutants.flipped_at(made.files["events.jsonl"], 8 * before + inside)
        (place / "events.jsonl").write_bytes(mutant.data)
        first = verdict(verifier, place, keys).facts["problems"][0]
        assert (first["file"], first["line"]) == ("events.jsonl", at + 1), first
        body = re.match(rb'\{"body":\{(.*)\},"index"', lines[at])
        assert body is not None
        if body.start(1) <= inside // 8 < body.end(1) and first["code"] == "body":
            assert (first["index"], first["field"]) == (at, "body")
    return tried


# --- a person who was shredded -----------------------------------------------------------------


def _eve(trail: Trail, mark: str) -> tuple[str, str]:
    """A person whose name, address, typing and failed log-in are in the log; (id, log-in name)."""
    name = f"eve-{mark}"
    asked = {"username": name, "email": f"{mark}@example.org", "roles": ["auditor"], "how": "link"}
    made = trail.people.browser("operator").post("/people", asked, **{"Idempotency-Key": str(uuid.uuid4())})
    eve, stranger = Caller(trail.console.url), Caller(trail.console.url)
    accept(eve, made["invitation"])
    eve.get(f"/audit/events?object=user:Grace-{mark}")
    stranger.http.get("/login")
    form = {"username": name, "password": "no", "csrfmiddlewaretoken": stranger.http.cookies["csrftoken"]}
    stranger.http.post("/login", data=form, headers={"Referer": str(stranger.http.base_url)})
    return made["id"], name


def shown(events: list[dict[str, Any]]) -> set[str]:
    """What is seen of the personal data of events that have any."""
    return {str(event["pii"]) for event in events if event["pii"] is not None}


@pytest.mark.timeout(600)
def test_shredding_one_persons_data_leaves_all_proofs_valid_and_the_data_unreadable(
    trail: Trail, apart: Apart, tmp_path: Path
) -> None:
    """In the database, in the export and in an earlier dump; what an export disclosed before, it has disclosed."""
    operator, console, mark = trail.people.browser("operator"), trail.console, f"canary{uuid.uuid4().hex[:10]}"
    person, name = _eve(trail, mark)
    about = trail.events(object=f"user:{person}")
    events = {event["id"]: event["pii"] for event in (*about, *trail.events(actor=name))}
    said = [personal for personal in events.values() if personal]
    assert sum(mark in json.dumps(one) for one in said) >= 3, said
    apart.put("keys.txt", "\n".join(trail.signed()["keys"]))
    files = {
        "opened.zip": mutants.Bundle(trail.export(personal_data=True)),
        "closed.zip": mutants.Bundle(trail.export()),
    }
    dump(console, tmp_path / "earlier")
    assert holding(console.database.dsn("superuser"), mark), "the search itself must be able to find something"

    operator.post(f"/people/{person}:shred", None)

    files["later.zip"] = mutants.Bundle(trail.export(personal_data=True, format="csv"))
    found = {file: mark.encode() in b"".join(made.files.values()) for file, made in files.items()}
    assert found == {"opened.zip": True, "closed.zip": False, "later.zip": False}
    apart.take_out(apart.put("closed.zip", files["closed.zip"].data), "verify.py")
    for file, made in files.items():
        told = apart.verify("bundle", apart.put(file, made.data), "--keys", "keys.txt")
        assert (told.exit, told.report["problems"]) == (0, []), told.text
    shredded = told.report["personal_data"]["shredded"]
    assert shredded >= len(said)
    assert apart.verify("consistency", "closed.zip", "later.zip", "--keys", "keys.txt").exit == 0
    _proofs(trail, apart, set(events))
    assert trail.job("/audit:verify", None)["result"]["verdict"] == "as sealed"

    assert shown(trail.events(object=f"user:{person}")) == {"shredded"}
    assert trail.events(actor=name) == [], "nobody finds acts by a name that is gone"
    assert holding(console.database.dsn("superuser"), mark) == []
    with restored(console, tmp_path / "earlier", tmp_path / "site") as old:
        left = holding(old.database.dsn("superuser"), mark)
        assert not [table for table in left if table.startswith("audit_")], left
        old.start("web")
        auditor = People(old).browser("auditor")
        seen = auditor.get(f"/audit/events?limit=200&object=user:{person}")["items"]
        assert (shown(seen), len(seen)) == ({"shredded"}, len(about))
    say("audit-shredding", events=len(said), shredded=shredded, proofs=len(events), in_the_log_of_the_dump=0,
        in_the_database=0, accounts_in_the_dump=left)  # fmt: skip


def _proofs(trail: Trail, apart: Apart, events: set[str]) -> None:
    """Each of these events is proven to be in the log."""
    for event in sorted(events):
        apart.put("event.proof", trail.auditor("GET", f"/audit/proofs/{event}").text)
        assert apart.verify("proof", "event.proof", "--keys", "keys.txt").exit == 0
