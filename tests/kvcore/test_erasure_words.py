"""No sentence says more than its class; every class and flag has one in both languages."""

from typing import get_args

import pytest

from kvcore.erasure import FLAGS, Erasure
from kvcore.erasure_words import Lang, flag_sentence, name, sentence, too_strong

LANGS: tuple[Lang, ...] = get_args(Lang)


@pytest.mark.parametrize("lang", LANGS)
@pytest.mark.parametrize("cls", list(Erasure))
def test_no_word_is_stronger_than_the_class(cls: Erasure, lang: Lang) -> None:
    assert too_strong(sentence(cls, lang), cls, lang) == []
    assert too_strong(name(cls, lang), cls, lang) == []


@pytest.mark.parametrize("lang", LANGS)
@pytest.mark.parametrize("cls", [Erasure.OVERWRITTEN, Erasure.CRYPTO_ERASED, Erasure.MEDIA_SANITISED])
def test_the_list_of_words_knows_each_class_by_its_own(cls: Erasure, lang: Lang) -> None:
    assert too_strong(sentence(cls, lang), cls - 1, lang)
    assert too_strong(name(cls, lang), cls - 1, lang)


@pytest.mark.parametrize("lang", LANGS)
@pytest.mark.parametrize("flag", FLAGS)
def test_what_is_said_of_a_flag_may_stand_beside_any_class(flag: str, lang: Lang) -> None:
    assert flag_sentence(flag, lang)
    assert too_strong(flag_sentence(flag, lang), Erasure.ORDERED, lang) == []


@pytest.mark.parametrize(
    ("text", "cls", "lang", "words"),
    [
        ("All blocks were erased and wiped.", 2, "en", ["erased", "wiped"]),
        ("All blocks were erased and wiped.", 3, "en", []),
        ("Crypto-erased and destroyed.", 3, "en", ["Crypto-erased"]),
        ("Gone, irrecoverably", 3, "en", ["irrecoverably"]),
        ("The bytes were purged", 1, "en", ["purged"]),
        ("数据已擦除，密钥已销毁", 2, "zh", ["擦除", "销毁"]),
        ("密码擦除", 3, "zh", ["密码擦除"]),
        ("彻底清除", 3, "zh", ["彻底"]),
    ],
)
def test_words_that_claim_more(text: str, cls: int, lang: Lang, words: list[str]) -> None:
    assert sorted(too_strong(text, cls, lang)) == sorted(words)


def test_both_languages_say_as_much() -> None:
    for cls in Erasure:
        assert all(sentence(cls, lang) for lang in LANGS)
    assert len({sentence(cls, lang) for cls in Erasure for lang in LANGS}) == 12
