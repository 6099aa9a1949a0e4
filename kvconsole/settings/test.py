"""Tests: as production as tests can be; services come from `tests/conftest.py`."""

import os

os.environ.setdefault("KVC_SECRET_KEY", "test-only-" + "0" * 40)

from kvconsole.settings.base import *  # noqa: E402,F403
from kvconsole.settings.base import env  # noqa: E402

DEMO = False
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
env.check()
