"""Decides which names look alike: two of them with one skeleton cannot both exist.

Compatibility forms, case, letters of other scripts that are drawn like Latin ones, and digits and pairs that are drawn
like letters count as the same. Source: UTS #39 "Unicode Security Mechanisms", reduced to what names may hold here.
"""

import unicodedata

_LIKE = {
    **dict(zip("аеорсухіјѕԁԛԝһьвнмткґ", "aeopcyxijsdqwhbbhmtkr", strict=True)),  # Cyrillic
    **dict(zip("αοριτυνκβηχγωεζϲμ", "aopitvvkbnxywezcu", strict=True)),  # Greek
    **dict(zip("օսոհցզյքԍ", "ouuhgqjpg", strict=False)),  # Armenian
    **dict(zip("ıɩʟǀɑɡɪʀꜱʏƅ", "iillaglrsyb", strict=True)),
    **dict(zip("01|!", "olll", strict=True)),
}
_PAIRS = (("rn", "m"), ("vv", "w"))
_JOINERS = str.maketrans(dict.fromkeys("-_.·•‧ ", "."))
SCRIPTS = ("LATIN", "CYRILLIC", "GREEK", "CJK", "HIRAGANA", "KATAKANA", "HANGUL", "ARABIC", "HEBREW", "THAI")


def normal(text: str) -> str:
    """The name as it is kept and compared at log-in: full-width and other compatibility forms are the plain ones."""
    return unicodedata.normalize("NFKC", text)


def skeleton(text: str) -> str:
    """What the name looks like; equal for names that people take for each other."""
    folded = unicodedata.normalize("NFKD", normal(text).casefold())
    plain = "".join(_LIKE.get(c, c) for c in folded if not unicodedata.combining(c) and not _invisible(c))
    plain = plain.replace("i", "l").translate(_JOINERS)
    for pair, single in _PAIRS:
        plain = plain.replace(pair, single)
    return plain


def scripts(text: str) -> frozenset[str]:
    """The scripts of the name's letters; more than one is how a look-alike is made."""
    found = set()
    for c in text:
        if c.isalpha():
            name = unicodedata.name(c, "")
            found.add(next((s for s in SCRIPTS if name.startswith(s)), "OTHER"))
    japanese = {"CJK", "HIRAGANA", "KATAKANA"}
    return frozenset({"CJK"} | found - japanese if found & japanese else found)


def _invisible(c: str) -> bool:
    return unicodedata.category(c) in ("Cf", "Cc", "Mn", "Me")
