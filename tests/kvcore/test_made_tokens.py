"""Keys of a trace's prompt are those of its tokens, whoever makes them and in whichever order."""

import secrets

from kvcore.keys import KEY_BYTES, chain_keys
from kvcore.made_tokens import MadeChains, hash_tokens

BLK = secrets.token_bytes(32)


def plain(ids, tokens, per):
    text = b"".join(hash_tokens(i, per, 0) for i in ids)[: 4 * tokens]
    return b"".join(chain_keys(text, block_tokens=16, blk=BLK, parent=None))


def test_remembered_parts_give_what_the_whole_gives():
    for per in (512, 64, 24):  # the last is no multiple of a block
        chains = MadeChains(BLK, block_tokens=16, hash_tokens=per, kept=3)
        for ids, tokens in (([1, 2, 3], 3 * per), ([1, 2, 9], 3 * per - 7), ([2, 1], per + 1), ([1], 5), ([], 0)):
            assert chains.keys(ids, tokens) == plain(ids, tokens, per)
            assert len(chains.keys(ids, tokens)) == tokens // 16 * KEY_BYTES


def test_a_hash_id_is_the_same_tokens_everywhere():
    assert hash_tokens(7, 100, 0) == hash_tokens(7, 512, 0)[:400]
    assert hash_tokens(7, 512, 0) != hash_tokens(7, 512, 1)
