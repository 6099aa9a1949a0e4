"""Tests: as production as tests can be; services come from `tests/conftest.py`."""

import os

os.environ.setdefault("KVC_SECRET_KEY", "test-only-" + "0" * 40)

from kvconsole.settings.base import *
from kvconsole.settings.base import env

DEMO = True
STATIC_ROOT = None  # files are served from where they are
FENCES_COMPARED = env.flag("KVC_FENCES_COMPARED")  # nobody compares where a test starts one process
LOG_LATE_SECONDS = 3600.0  # tests have the log sealed when they say so
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
env.check()
