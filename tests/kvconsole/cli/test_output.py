"""What answers look like."""

import pytest

from kvconsole.cli import output


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"), (True, "yes"), (False, "no"), (7, "7"), (["a", 1], "a, 1"),
        ({"kind": "node", "id": "x"}, "node x"), ({"kind": "nobody", "roles": [], "ref": "00"}, "nobody 00"),
        ({"a": [1]}, '{"a":[1]}'),
        ("a\x1b[2Jb\n", "a\\x1b[2Jb\\n"), ("\u202e", "\\u202e"), ("汉", "汉"),
    ],
)  # fmt: skip
def test_a_value_is_one_harmless_line(value, text):
    assert output.printable(value) == text


def test_a_table_is_aligned(capsys):
    output.show_table([{"a": "x", "b_c": 1}, {"a": "long", "b_c": None}], ["a", "b_c"])
    assert capsys.readouterr().out.splitlines() == ["A     B C", "x     1", "long  –"]
