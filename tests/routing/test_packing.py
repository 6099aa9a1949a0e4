import zlib

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from kvcore.policies import built_in
from routing.packing import FORM, Inputs, again, pack, unpack
from tests.routing.deciding import Stand, worker
from tests.routing.test_deciding import inputs


def test_what_was_packed_is_what_it_was_and_scores_the_same():
    stand = Stand(worker("a", load={}), worker("b", load=None))
    stand.holds("b", 20, "dram")
    stand.route()
    made, kept = inputs(stand)
    assert kept.choice == made.choice
    assert again(kept) == made.choice
    assert again(kept, built_in("random")).policy == "random"


def test_another_form_is_not_read_as_this_one():
    stand = Stand(worker("a", load={}))
    stand.route()
    _, kept = inputs(stand)
    assert unpack(pack(msgspec.structs.replace(kept, form=FORM + 1))) is None
    assert isinstance(unpack(pack(kept)), Inputs)
    assert unpack(pack(kept)[:-9]) is None


@given(st.binary(max_size=300))
def test_damaged_bytes_are_nothing(blob):
    assert unpack(blob) is None
    assert unpack(zlib.compress(blob)) is None
