"""Words of the printed sheet: everything stands there in both languages, and nothing is stronger than its class."""

import re

from frontend.operations.sheet_words import HEADS, LOOKS, METHODS, PARTS_EN, PARTS_ZH, SHEET
from frontend.operations.sheets import WEAK
from frontend.operations.wording import PARTS
from kvcore.erasure_words import too_strong

CLASSES = {"memset": 3, "key_destroy": 4, "unlink": 2, "delete": 2, "none": 2}
"""Technique → the class that it can reach."""
HAN = re.compile("[\u4e00-\u9fff]")


def test_every_word_is_there_in_both_languages():
    assert PARTS_EN.keys() == PARTS_ZH.keys() <= PARTS.keys()
    names = {name.removesuffix("_en") for name in SHEET if name.endswith("_en")}
    assert names == {name.removesuffix("_zh") for name in SHEET if name.endswith("_zh")}
    assert len(SHEET) == 2 * len(names)
    pairs = [*METHODS.values(), *LOOKS.values(), *((en, zh) for en, zh, _ in HEADS),
             *((SHEET[f"{name}_en"], SHEET[f"{name}_zh"]) for name in names),
             *((PARTS_EN[name], PARTS_ZH[name]) for name in PARTS_EN)]  # fmt: skip
    for en, zh in pairs:
        assert not HAN.search(en), en
        assert HAN.search(zh), zh


def test_no_word_is_stronger_than_what_was_done():
    assert METHODS.keys() == set(WEAK) == CLASSES.keys()
    for technique, (en, zh) in METHODS.items():
        assert not too_strong(en, CLASSES[technique], "en"), technique
        assert not too_strong(zh, CLASSES[technique], "zh"), technique
    for en, zh in LOOKS.values():
        assert not too_strong(en, 1, "en")
        assert not too_strong(zh, 1, "zh")
    for name, word in SHEET.items():
        assert not too_strong(word, 0, "zh" if name.endswith("_zh") else "en"), name
