"""Messages are signed as Standard Webhooks says; its own example is the vector."""

from audit.webhooks.signature import headers, secret_text, signature


def test_the_example_of_the_specification():
    import base64

    secret = base64.b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    made = signature(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    assert made == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_two_secrets_make_two_signatures():
    made = headers([b"a" * 32, b"b" * 32], "m", 1, b"{}")
    assert made["webhook-id"] == "m"
    assert len(made["webhook-signature"].split()) == 2
    assert secret_text(b"a" * 32).startswith("whsec_")
