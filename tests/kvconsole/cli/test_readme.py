"""Lines of `kvc` in the README and in its own document are commands that there are, with options that they have."""

import re
import shlex

import pytest
import typer

from kvconsole.cli.main import app
from tests.architecture.tree import CLONE
from tests.kvconsole.cli.calling import walked

LINE = re.compile(r"^kvc ([a-z-].*)$", re.MULTILINE)


@pytest.mark.parametrize("document", ["README.md", "docs/kvc.md"])
def test_what_is_said_to_be_typed_can_be_typed(document):
    known, lines = walked(typer.main.get_command(app)), LINE.findall((CLONE / document).read_text())
    assert lines
    for line in lines:
        words = shlex.split(line, comments=True)
        words = words[words[0] == "--json" :]
        path = max((tuple(words[:n]) for n in range(1, 3) if tuple(words[:n]) in known), key=len, default=())
        assert path, line
        if path == ("verify",):
            continue  # hands all it is told to the verifier, which has a parser of its own
        options = {option for one in known[path].params for option in (*one.opts, *one.secondary_opts)}
        said = {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)}
        assert said <= options, f"{line}: {said - options}"
