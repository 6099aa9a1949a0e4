"""Words of a command line that will not do are refused by the name of their option, before anything begins."""

import argparse

import pytest

from kvconsole.infra import arguments

TYPES = {
    "count": arguments.whole(1, 9),
    "share": arguments.number(0, 1),
    "speed": arguments.number(0, 10, above=True),
    "port": arguments.port,
    "names": arguments.names,
    "reason": arguments.said,
    "file": arguments.new_file,
}


def parsed(name: str, text: str) -> object:
    parser = argparse.ArgumentParser(exit_on_error=False)
    parser.add_argument(f"--{name}", type=TYPES[name])
    return getattr(parser.parse_args([f"--{name}={text}"]), name)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("count", "1", 1),
        ("count", "9", 9),
        ("share", "0", 0.0),
        ("share", "1e-1", 0.1),
        ("speed", "10", 10.0),
        ("port", "65535", 65535),
        ("names", "a, b,a", ("a", "b")),
        ("reason", "it broke", "it broke"),
    ],
)
def test_what_will_do(name, text, value):
    assert parsed(name, text) == value


@pytest.mark.parametrize(
    ("name", "texts"),
    [
        ("count", ("0", "10", "-1", "1.5", "many", "", "１", "+-1", "9" * 5000)),
        ("share", ("-0.1", "1.1", "nan", "inf", "-inf", "half")),
        ("speed", ("0", "-1", "nan", "inf", "11")),
        ("port", ("0", "65536", "-1")),
        ("names", ("", ",", " , ")),
        ("reason", ("", "  ")),
    ],
)
def test_what_will_not(name, texts):
    for text in texts:
        with pytest.raises(argparse.ArgumentError, match=f"--{name}: "):
            parsed(name, text)


def test_a_file_needs_its_folder(tmp_path):
    assert parsed("file", str(tmp_path / "new")) == tmp_path / "new"
    for wrong in (tmp_path, tmp_path / "none" / "new"):
        with pytest.raises(argparse.ArgumentError, match=r"--file: .* folder"):
            parsed("file", str(wrong))
