from routing import meters
from tests.routing.deciding import Stand, worker


def test_figures_name_no_tenant_and_no_node():
    stand = Stand(worker("secret-node", load={}))
    stand.route()
    text = meters.text(stand.router).decode()
    assert 'kvc_router_decisions{what="made"} 1.0' in text
    assert "kvc_router_candidates 1.0" in text
    assert "kvc_router_leased 1.0" in text
    assert "secret-node" not in text
    stand.replica.leased_until = 0.0
    assert "kvc_router_leased 0.0" in meters.text(stand.router).decode()
