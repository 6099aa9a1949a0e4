"""Nothing is untranslated: every phrase of templates and code is in the catalogue, and the compiled one is the same."""

import ast
import re
from pathlib import Path

import polib
import pytest
from django.template.base import Lexer

ROOT = Path(__file__).parents[2] / "frontend"
CATALOGUE = ROOT / "locale" / "zh_Hans" / "LC_MESSAGES"
SIMPLE, PLURAL = {"_": 0, "gettext": 0, "gettext_lazy": 0}, {"ngettext": 0}
CONTEXT = {"pgettext": 0, "pgettext_lazy": 0}
TRANSLATE = re.compile(r"""translate\s+(?:"([^"]+)"|'([^']+)')(?:.*\scontext\s+"([^"]+)")?""")


def phrases_of_code(path: Path) -> set[tuple[str | None, str]]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args):
            continue
        texts = [a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
        if node.func.id in SIMPLE or node.func.id in PLURAL:
            found.add((None, texts[0]))
        elif node.func.id in CONTEXT:
            found.add((texts[0], texts[1]))
    return found


def phrases_of_template(path: Path) -> set[tuple[str | None, str]]:
    found: set[tuple[str | None, str]] = set()
    block: list[str] | None = None
    for token in Lexer(path.read_text()).tokenize():
        if block is not None:
            if token.token_type.name == "BLOCK" and token.contents.startswith(("endblocktranslate", "plural")):
                found.add((None, "".join(block)))
                block = None
            else:
                block.append(
                    f"%({token.contents})s" if token.token_type.name == "VAR" else token.contents.replace("%", "%%")
                )
        elif token.token_type.name == "BLOCK" and token.contents.startswith("blocktranslate"):
            block = []
        elif token.token_type.name == "BLOCK" and (match := TRANSLATE.match(token.contents)):
            found.add((match[3], match[1] or match[2]))
    return found


@pytest.fixture(scope="module")
def catalogue() -> polib.POFile:
    return polib.pofile(str(CATALOGUE / "django.po"))


def test_every_phrase_is_in_the_catalogue(catalogue):
    wanted = set()
    for path in [*ROOT.rglob("*.py"), *(ROOT.parent / "tenants" / "accounts").rglob("*.py")]:
        wanted |= phrases_of_code(path)
    for path in (ROOT / "templates").rglob("*.html"):
        wanted |= phrases_of_template(path)
    known = {(e.msgctxt, e.msgid) for e in catalogue}
    assert len(wanted) > 400
    assert not wanted - known
    assert not known - wanted, "phrases nobody says any more"


def test_every_phrase_is_translated(catalogue):
    assert catalogue.percent_translated() == 100
    assert not catalogue.fuzzy_entries()
    assert not catalogue.obsolete_entries()


def test_placeholders_survive_translation(catalogue):
    for entry in catalogue:
        names = set(re.findall(r"%\(\w+\)s|\{\w+\}|<[^>]+>", entry.msgid))
        for text in [entry.msgstr, *entry.msgstr_plural.values()]:
            if text:
                assert set(re.findall(r"%\(\w+\)s|\{\w+\}|<[^>]+>", text)) - {"{n}"} <= names | {"{n}"}, entry.msgid
                assert names <= set(re.findall(r"%\(\w+\)s|\{\w+\}|<[^>]+>", text)) or entry.msgid_plural, entry.msgid


def test_the_compiled_catalogue_is_the_written_one(catalogue, tmp_path):
    compiled = polib.mofile(str(CATALOGUE / "django.mo"))
    assert {(e.msgctxt, e.msgid): (e.msgstr, e.msgstr_plural) for e in compiled} == {
        (e.msgctxt, e.msgid): (e.msgstr, e.msgstr_plural) for e in catalogue
    }


def test_chinese_is_chinese(catalogue):
    """A translation has Han characters, unless it is only placeholders, units and names."""
    names = re.compile(r"%\(\w+\)s|\{\w+\}|<[^>]+>|rank|Idempotency-Key|If-Match|UTC|[\W\d_]", re.ASCII)
    for entry in catalogue:
        for text in [entry.msgstr, *entry.msgstr_plural.values()]:
            if text and names.sub("", text):
                assert re.search(r"[\u4e00-\u9fff]", text), entry.msgid


def test_templates_write_no_words_of_their_own():
    """Text between tags is translated: no two plain English words in a row outside of tags and attributes."""
    kept = re.compile(r"python -m nodeagent[^<]*|kvc [a-z][^<]*|curl [^<]*|python3 kvc_verify[^<]*|symlog|KV Console")
    for path in (ROOT / "templates").rglob("*.html"):
        text = re.sub(r"\{%\s*blocktranslate.*?endblocktranslate\s*%\}", "", path.read_text(), flags=re.S)
        text = re.sub(r"\{[{%#].*?[}%#]\}", " ", text, flags=re.S)
        bare = kept.sub(" ", re.sub(r"<[^>]*>", "|", text, flags=re.S))
        assert not re.search(r"[A-Za-z]{3,}\s+[A-Za-z]{3,}", bare), (
            f"{path.name}: {re.search('[A-Za-z]{3,} +[A-Za-z]{3,}', bare)}"
        )
