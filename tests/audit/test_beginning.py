"""A log begins after another one only where two people agreed to that; else it is a state that pages show."""

import uuid

from audit import tree
from audit.beginning import epoch_begin
from tests.audit.test_epochs import agreed, new_epoch, set_up, sign, site  # noqa: F401


def test_no_other_log_is_signed_under_the_new_name_and_nobody_begins_one_without_two_people(site):  # noqa: F811
    set_up(site)
    order = agreed(site)
    new_epoch(site, order | {"approval": str(uuid.uuid4())})
    with site.signer(), site.sequencer() as log:
        assert sign(log) == "refused"
        state = tree.log_state()
        assert (state.signer_why, tree.tree_now().epoch) == ("epoch-not-approved", 1)
        assert epoch_begin("no record") == "epoch-record"
