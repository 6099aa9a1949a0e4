from routing.services import fingerprints


def test_fingerprints_are_the_first_eight_bytes_of_each_key():
    keys = bytes(range(32)) + bytes(range(100, 132))
    assert fingerprints(keys) == bytes(range(8)) + bytes(range(100, 108))
    assert fingerprints(b"") == b""
