"""`python -m bench [WORD …]`: measure, and print one JSON line per figure.

Each module of this package has `run(quick: bool)`, which yields `{"name", "value", "unit", "target", "ok", "peer"?}`.
A target that is missed stays in the output as `"ok": false` and makes the run end with 1.
"""

import argparse
import importlib
import json
import pkgutil
import sys
import traceback
from collections.abc import Sequence

import bench


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benches whose name holds one of the words; 0 if every figure meets its target."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("words", nargs="*", help="only modules or figures whose name holds one of these")
    parser.add_argument("--quick", action="store_true", help="smaller sizes; for a look, not for a verdict")
    options = parser.parse_args(argv)
    red = 0
    for info in sorted(pkgutil.iter_modules(bench.__path__), key=lambda i: i.name):
        if info.name.startswith("_") or (options.words and not any(w in info.name for w in options.words)):
            continue
        module = importlib.import_module(f"bench.{info.name}")
        if not hasattr(module, "run"):
            continue
        try:
            for figure in module.run(quick=options.quick):
                print(json.dumps(figure), flush=True)
                red += not figure["ok"]
        except Exception:  # one bench that breaks must not hide the figures of the others
            traceback.print_exc()
            print(json.dumps({"name": info.name, "value": None, "unit": "", "target": "runs", "ok": False}), flush=True)
            red += 1
    return 1 if red else 0


if __name__ == "__main__":
    sys.exit(main())
