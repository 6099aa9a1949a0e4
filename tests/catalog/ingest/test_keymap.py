"""The pipeline's words are those of the memory below the store."""

from catalog.index import memory, steps
from catalog.ingest import keymap


def test_the_words_are_the_memorys() -> None:
    assert keymap.Memory is memory.Memory
    assert all(getattr(keymap, name) is getattr(steps, name) for name in keymap.__all__ if name != "Memory")
