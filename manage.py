#!/usr/bin/env python
"""Django's command line for KV Console."""

import sys

from kvconsole.commandline import main

if __name__ == "__main__":
    sys.exit(main())
