"""Nodes, a signer and far sides for the tests of the fleet."""

import uuid

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from catalog.services import node_create, node_enrol
from kvcore.messages import fingerprint
from tests.catalog.farnode import FarNode, RunningSigner

TIERS = [
    {"tier": "hbm", "capacity_bytes": 2**20, "emulated": True, "encrypted": False, "high": 0.9, "low": 0.8},
    {"tier": "ssd", "capacity_bytes": 2**24, "emulated": False, "encrypted": True, "high": 0.9, "low": 0.7},
]


@pytest.fixture(scope="session")
def running_signer(tmp_path_factory):
    signer = RunningSigner(tmp_path_factory.mktemp("signer"))
    yield signer
    signer.close()


@pytest.fixture
def signer(running_signer, settings):
    """Settings point to the one real signer of the session."""
    settings.SIGNER_URL, settings.SIGNER_TOKEN = running_signer.url, running_signer.token
    settings.COMMAND_KEY_FILE = str(running_signer.key_file)
    return running_signer


@pytest.fixture
def far():
    made = []

    def make(mood="well"):
        made.append(FarNode(mood))
        return made[-1]

    yield make
    for node in made:
        node.close()


@pytest.fixture
def enrolled(db, signer, far):
    """`enrolled()` → (node, its far side): created, enrolled, listening."""

    def make(mood="well", **fields):
        side = far(mood)
        name = f"n-{uuid.uuid4().hex[:8]}"
        node, token = node_create(**{"name": name, "region": "eu-fra", **fields})
        answer = node_enrol(token=token, public_key=side.public, agent_url=side.url, agent_version="0.1.0",
                            tiers=TIERS, engine={"kind": "reference", "version": "1"})  # fmt: skip
        side.node, side.token = answer["node"], answer["node_token"]
        side.console_key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(answer["console_public_key"]))
        assert token.endswith("." + fingerprint(bytes.fromhex(answer["console_public_key"])))
        node.refresh_from_db()
        return node, side

    return make
