#!/usr/bin/env python
"""Django's command line for KV Console."""

import os
import sys


def main() -> None:
    """Run the named command under the settings of KVC_ENV (dev, test or prod)."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", f"kvconsole.settings.{os.environ.get('KVC_ENV', 'dev')}")
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
