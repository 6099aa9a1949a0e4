"""Ranges of a file, as RFC 9110 reads them."""

import pytest

from audit.downloads import Range
from kvconsole.infra.rest import Problem


@pytest.mark.parametrize(("header", "found"), [
    ("", (0, 100, False)), ("bytes=0-9", (0, 10, True)), ("bytes=90-", (90, 10, True)), ("bytes=-5", (95, 5, True)),
    ("bytes=50-1000", (50, 50, True)), ("bytes=-1000", (0, 100, True)), ("bytes=1-2,5-6", (0, 100, False)),
    ("lines=1-2", (0, 100, False)), ("bytes=-", (0, 100, False)), ("bytes=a-b", (0, 100, False)),
])  # fmt: skip
def test_one_range_is_taken_and_anything_else_is_the_whole_file(header, found):
    part = Range.of(header, 100)
    assert (part.start, part.length, part.partial) == found


@pytest.mark.parametrize("header", ["bytes=100-", "bytes=9-3", "bytes=500-600"])
def test_bytes_that_are_not_there_are_refused(header):
    with pytest.raises(Problem, match="100 bytes"):
        Range.of(header, 100)
