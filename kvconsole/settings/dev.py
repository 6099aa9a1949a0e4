"""Development: what `make up` runs. Loopback only."""

import os

os.environ.setdefault("KVC_SECRET_KEY", "development-only-" + "0" * 40)

from kvconsole.settings.base import *
from kvconsole.settings.base import env

DEBUG = False
DEMO = True
STATIC_ROOT = None  # files are served from where they are
env.check()
