"""Pages and REST under WSGI, beside the ASGI process that keeps the sockets; `make up` does not use it."""

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", f"kvconsole.settings.{os.environ.get('KVC_ENV', 'dev')}")

from django.core.wsgi import get_wsgi_application

application = get_wsgi_application()

from audit.refusals import keep_telling
from kvconsole.plumbing import refuse_bad_start

refuse_bad_start()
keep_telling()
