import os
import subprocess
import sys

from routing.forms import best
from tests.architecture.tree import CLONE

WITHOUT = """
import sys
sys.modules["numba"] = None
from routing.forms import best
index = best(5)
print(index.form, index.bytes_max)
"""
LAZY = """
import sys
import routing.forms, routing.index
print("numba" in sys.modules, "numpy" in sys.modules)
"""


def run(code):
    done = subprocess.run([sys.executable, "-c", code], cwd=CLONE, env=dict(os.environ), capture_output=True, text=True,
                          timeout=60, check=True)  # fmt: skip
    return done.stdout.split(), done.stderr


def test_the_packed_form_is_the_best_one_and_knows_its_cap():
    index = best(7_000_000)
    assert (index.form, index.bytes_max) == ("packed", 7_000_000)


def test_without_numba_the_dict_form_serves_and_the_log_says_why():
    out, said = run(WITHOUT)
    assert out == ["dict", "5"]
    assert "dict form" in said


def test_who_only_may_need_it_imports_neither_numba_nor_numpy():
    assert run(LAZY)[0] == ["False", "False"]
