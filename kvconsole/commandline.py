"""Decides what somebody at a terminal is told where a command of `manage.py` finds no console to work on.

One line that says what to do, instead of the trace of a program that did nothing wrong.
"""

import os
import sys

from django.core.exceptions import ImproperlyConfigured
from django.core.management import execute_from_command_line
from django.db import InterfaceError, OperationalError, ProgrammingError

ENVIRONMENTS = ("dev", "test", "prod")
START = 'start the console (`make up`) and use its environment: eval "$(python -m kvconsole.devserver --env)"'


def main(arguments: list[str] | None = None) -> int:
    """Runs the named command under the settings of KVC_ENV (dev, test or prod); the exit code."""
    named = os.environ.get("KVC_ENV", "dev")
    if named not in ENVIRONMENTS and "DJANGO_SETTINGS_MODULE" not in os.environ:
        return _said(f"KVC_ENV is none of {', '.join(ENVIRONMENTS)}: {named!r}")
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", f"kvconsole.settings.{named}")
    try:
        execute_from_command_line(sys.argv if arguments is None else ["manage.py", *arguments])
    except ImproperlyConfigured as e:
        return _said(str(e))
    except (OperationalError, InterfaceError) as e:
        return _said(f"PostgreSQL at {_place()} cannot be used: {_first_line(e)}; {START}")
    except ProgrammingError as e:
        if getattr(e.__cause__, "sqlstate", None) not in ("42P01", "42P07", "42703"):
            raise
        return _said(f"the database at {_place()} has another schema than this checkout: run manage.py migrate")
    return 0


def _said(text: str) -> int:
    print(f"manage.py: {text}", file=sys.stderr)
    return 1


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(" .:")


def _place() -> str:
    from django.conf import settings

    return f"{settings.DB_HOST}:{settings.DB_PORT}/{settings.DB_NAME}"
