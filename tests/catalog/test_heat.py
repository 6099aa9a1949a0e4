"""Levels, scales, layers and the file, without a database."""

import json
import math
import struct
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog import heat
from catalog.models.pictures import LAYERS

NOW = datetime(2026, 6, 1, 12, 0, 7, tzinfo=UTC)
STEP = LAYERS[0][0]


def value_of(level, top):
    """What the browser draws for a level."""
    return heat.LINEAR * math.expm1((level - 1) / 253 * math.log1p(top / heat.LINEAR))


@given(st.lists(st.floats(0, 2**40, width=32), min_size=1, max_size=50))
def test_a_level_gives_the_figure_back_within_a_step_and_only_zero_is_zero(figures):
    table = np.array([figures], np.float32)
    top = 2.0 ** heat.exponent(table)
    assert top >= table.max()
    for figure, level in zip(table[0].tolist(), heat.levels(table, top), strict=True):
        assert (level == 0) == (figure == 0)
        if figure:
            assert 1 <= level <= 254
            low, high = value_of(level - 0.51, top), value_of(level + 0.51, top)
            assert low <= figure * (1 + 1e-5) + 1e-9
            assert figure <= high * (1 + 1e-5) + 1e-9


def test_unknown_is_apart_from_every_figure():
    assert heat.levels(np.array([[np.nan, 0, 5]], np.float32), 8.0) == bytes(
        [255, 0, 1 + round(253 * math.log1p(5) / math.log1p(8))]
    )
    assert heat.exponent(np.array([[np.nan]], np.float32)) == 0


@pytest.mark.parametrize(
    ("age", "layer"), [(3600, 0), (3700, 1), (43_000, 1), (600_000, 2), (2_500_000, 3), (7_000_000, 4), (9e9, 4)]
)
def test_the_finest_layer_that_still_holds_the_begin(age, layer):
    assert heat.layer_for(NOW - timedelta(seconds=age), NOW) == layer


def test_columns_end_with_the_newest_unless_the_writer_is_away():
    present = int(NOW.timestamp()) // STEP * STEP - STEP
    hour = (NOW - timedelta(hours=1), NOW)
    assert heat.times_of(*hour, 0, present, NOW)[-1] == present
    assert heat.times_of(*hour, 0, present - STEP, NOW)[-1] == present - STEP
    assert heat.times_of(*hour, 0, present - 10 * STEP, NOW)[-1] == present
    assert heat.times_of(*hour, 0, None, NOW)[-1] == present
    times = heat.times_of(NOW - timedelta(days=1), NOW, 0, present, NOW)
    assert len(times) == LAYERS[0][1]


@given(st.integers(1, 1500), st.booleans())
def test_thinning_keeps_means_and_the_end(width, gauge):
    rng = np.random.default_rng(width)
    figures = rng.random((2, width)).astype(np.float32)
    figures[1] = np.nan
    times = list(range(0, width * 60, 60))
    thin, at, step = heat.thin(figures, times, 60, gauge=gauge)
    assert thin.shape == (2, len(at))
    assert len(at) <= heat.COLUMNS_MAX
    assert at[-1] + step == times[-1] + 60
    assert np.isnan(thin[1]).all()
    if gauge:
        assert thin[0, -1] == figures[0, -1]
    elif width % (step // 60) == 0:
        assert np.isclose(thin[0].mean(), figures[0].mean(), rtol=1e-4)


def test_the_file_is_magic_length_header_levels():
    blob = heat.file({"axis": 7}, b"\x00\x01\xff")
    assert blob[:4] == b"KVH1"
    (length,) = struct.unpack("<I", blob[4:8])
    assert json.loads(blob[8 : 8 + length]) == {"axis": 7}
    assert blob[8 + length :] == b"\x00\x01\xff"
