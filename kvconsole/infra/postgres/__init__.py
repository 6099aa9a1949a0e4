"""Django's PostgreSQL, with pools whose connections are looked at without a round trip."""
