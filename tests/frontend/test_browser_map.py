"""The heat map in a real browser: picture, crosshair, pin, filter, states."""

import json
import re
import struct

import pytest

pytestmark = pytest.mark.browser
HEAD = (
    b'{"axis": 0, "rows": [], "columns": [], "step_seconds": 10, "metric": "hits", "unit": "tokens/s", "layer": 0,'
    b' "scale": {"kind": "symlog", "max": 1, "linear": 1}, "honesty": [], "as_of": null}'
)
EMPTY = b"KVH1" + struct.pack("<I", len(HEAD)) + HEAD
NAMES = ("a-tenant-of-a-long-name", "mixture-of-experts-480b·1", "repository-of-everything/pfx_0123abcd")
"""Of tenant, model and family; none of them fits where it is shown."""


def planted_map(rows: list[tuple[str, list[int]]], metric: str = "hits", top: int = 1 << 15) -> bytes:
    """heat.bin with these rows, `(kind, levels)`, on a scale that ends at `top`."""
    tenant, model, family = NAMES
    head = json.loads(HEAD) | {"metric": metric, "scale": {"kind": "symlog", "max": top, "linear": 1}}
    head["columns"] = [1_800_000_000 + 10 * i for i in range(len(rows[0][1]))]
    head["rows"] = [
        {
            "id": f"{n:016x}", "kind": kind, "tenant": tenant, "model": model, "namespace": "", "tier": None,
            "family": "pfx_0123abcd" if kind == "family" else "", "label": family, "merged": 0,
        }
        for n, (kind, _levels) in enumerate(rows)
    ]  # fmt: skip
    text = json.dumps(head).encode()
    return b"KVH1" + struct.pack("<I", len(text)) + text + b"".join(bytes(levels) for _kind, levels in rows)


def shown(visit, body: bytes, query: str = "", ready: str = "'ready'", **options):
    """The map with this picture."""
    one = visit(**options)
    answer = {"content_type": "application/octet-stream", "body": body}
    one.page.route("**/heat.bin*", lambda route: route.fulfill(**answer))
    one.go(f"/map{query}")
    one.wait(f"document.documentElement.dataset.heat === {ready}")
    return one


READY = "document.documentElement.dataset.heat === 'ready'"


@pytest.fixture
def heat(visit):
    """The map, drawn."""
    one = visit()
    one.go("/map")
    one.wait(READY)
    return one


def pixel(one, row: int, column: int) -> list[int]:
    """Colour of the middle of a cell."""
    return one.page.evaluate(
        """([r, c]) => { const h = globalThis.kvcHeat, b = h.bands[r], k = h.canvas.width / h.width;
        const at = [(c + .5) / h.matrix.width * h.canvas.width, (b.y + b.h / 2) * k].map(Math.floor);
        return [...h.canvas.getContext('2d').getImageData(...at, 1, 1).data]; }""",
        [row, column],
    )


def test_rows_columns_and_marginals_are_drawn(heat):
    page = heat.page
    size = page.evaluate("[kvcHeat.bands.length, kvcHeat.matrix.width]")
    assert size[0] == 22
    assert 350 <= size[1] <= 361
    assert str(size[0]) in page.inner_text("[data-size]")
    assert page.locator("[data-side] path").count() == 2
    assert page.locator("[data-bottom] path").count() == 2
    assert page.locator("[data-axis] text").count() > 10
    assert all(page.locator(".times span").nth(i).inner_text() for i in range(7))


def test_a_hot_row_a_cold_row_and_an_unknown_cell_differ(heat):
    rows = heat.page.evaluate(
        """(() => { const h = kvcHeat, m = h.matrix;
        return h.bands.map((b, i) => [i, m.value(b.row, 100), m.value(b.row, m.width - 1)]); })()"""
    )
    known = sorted((r for r in rows if r[1]), key=lambda r: r[1])
    assert pixel(heat, known[-1][0], 100) != pixel(heat, known[0][0], 100)
    assert any(r[2] is None for r in rows), "the last minutes of some rows are unknown"


def test_arrows_move_and_enter_pins(heat):
    page = heat.page
    page.focus("[data-plane]")
    before = page.evaluate("({...kvcHeat.cursor})")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Shift+ArrowLeft")
    after = page.evaluate("({...kvcHeat.cursor})")
    assert (after["r"], after["c"]) == (before["r"] + 1, before["c"] - 10)
    assert page.is_visible("[data-readout]")
    page.keyboard.press("Enter")
    assert page.evaluate("kvcHeat.pin.r") == after["r"]
    assert page.inner_text("[data-card-name]")
    assert "pin=" in page.url
    name = page.inner_text("[data-card-name]")
    page.reload()
    heat.wait(READY)
    assert page.inner_text("[data-card-name]") == name, "the address restores the pinned row"


@pytest.mark.parametrize(("row", "column"), [(3, 40), (21, 200), (11, -1)])
def test_a_click_pins_the_cell_under_the_pointer(heat, row, column):
    page = heat.page
    column = column if column >= 0 else page.evaluate("kvcHeat.matrix.width") + column
    at = page.evaluate(
        """([r, c]) => { const b = kvcHeat.bands[r], w = kvcHeat.width / kvcHeat.matrix.width;
        return {x: (c + .5) * w, y: b.y + b.h / 2, id: b.data.id, name: b.data.label}; }""",
        [row, column],
    )
    canvas = page.evaluate_handle("kvcHeat.canvas").as_element()
    canvas.click(position={"x": at["x"], "y": at["y"]})  # waits until it stands still
    assert page.evaluate("[kvcHeat.pin.r, kvcHeat.pin.id]") == [row, at["id"]]
    assert abs(page.evaluate("kvcHeat.pin.c") - column) <= 1, "a column is as narrow as two pixels"
    page.mouse.move(5, 5)
    page.evaluate("document.body.dispatchEvent(new Event('kvc:refresh')); kvcHeat.load(true)")
    heat.wait("!kvcHeat.host.hasAttribute('aria-busy')")
    page.wait_for_timeout(500)
    assert page.evaluate("[kvcHeat.pin.r, kvcHeat.pin.id]") == [row, at["id"]], "another picture of it changes no pin"
    if at["name"]:
        assert page.inner_text("[data-card-name]") == at["name"]
    assert f"pin={at['id']}" in page.url


@pytest.mark.parametrize("width", [700, 1111, 1440, 3840])
def test_nothing_lies_over_the_last_column(visit, width):
    one = shown(visit, planted_map([("family", [150] * 360)] * 3), width=width)
    canvas, drawn, right, left = one.page.evaluate(
        """(() => { const h = kvcHeat, box = h.canvas.getBoundingClientRect(), y = box.top + h.bands[1].y + 2;
        const free = [3, 2, 1, .5].every((x) => document.elementFromPoint(box.right - x, y) === h.canvas);
        const side = [...h.host.querySelectorAll('[data-side] path')].map((e) => e.getBoundingClientRect().left);
        return [free, h.width - box.width, box.right, Math.min(...side.filter(Boolean))]; })()"""
    )
    assert (canvas, round(drawn), right <= left) == (True, 0, True)


def test_colours_are_spread_over_what_is_shown_and_the_legend_says_which(visit):
    """All figures are in one decade at the upper end of the scale, as they are on a busy fleet."""
    one = shown(visit, planted_map([("family", [160] * 12), ("family", [190] * 12), ("family", [0] * 6 + [215] * 6)]))
    pale, mean, dark = pixel(one, 0, 3), pixel(one, 1, 3), pixel(one, 2, 9)
    assert sum(abs(a - b) for a, b in zip(pale, dark, strict=True)) > 400
    assert sum(abs(a - b) for a, b in zip(pale, mean, strict=True)) > 120
    values = one.page.evaluate("[160, 190, 215].map((level) => kvcHeat.matrix.lookup[level])")
    ends = [one.page.evaluate(f"kvcHeat.painter.valueAt(kvcHeat.matrix, {x})") for x in (0, 1)]
    assert ends[0] == pytest.approx(values[0], rel=0.01)
    assert ends[1] == pytest.approx(values[2], rel=0.01)
    said = [one.page.inner_text(f"[data-scale-{end}]") for end in ("low", "top")]
    assert [re.sub(r"[^\d.]", "", text) for text in said] == [f"{values[0]:.0f}", f"{values[2] / 1000:.2f}"]
    one.page.click("[data-bright='1']")
    assert one.page.evaluate("kvcHeat.painter.valueAt(kvcHeat.matrix, 1)") == pytest.approx(
        values[2] / 2**0.5, rel=0.01
    )
    assert one.page.inner_text("[data-scale-top]").startswith("≥ ")


def test_equal_figures_do_not_become_a_storm_of_colours(visit):
    one = shown(visit, planted_map([("family", [200, 201] * 6)]))
    assert sum(abs(a - b) for a, b in zip(pixel(one, 0, 0), pixel(one, 0, 1), strict=True)) < 40


def test_new_prompts_are_there_only_where_they_say_something(visit):
    rows = [("family", [150] * 12), ("new", [0] * 12)]
    one = shown(visit, planted_map(rows))
    assert one.page.evaluate("kvcHeat.bands.map((b) => b.data.kind)") == ["family"]
    assert one.page.locator("[data-heat-table] tbody tr").count() == 1
    rows = [("family", [0] * 12), ("new", [150] * 12)]
    one = shown(visit, planted_map(rows, "misses"), "?metric=misses")
    assert one.page.evaluate("kvcHeat.bands.map((b) => b.data.kind)") == ["family", "new"]
    one = shown(visit, planted_map([("new", [0] * 12)]), ready="'empty'")
    assert not one.page.is_visible(".heat")


@pytest.mark.parametrize("width", [390, 1440, 3840])
def test_names_beside_the_map_end_before_the_next_column(visit, width):
    one = shown(visit, planted_map([("family", [150] * 12)] * 6), width=width)
    boxes = one.page.evaluate(
        """(() => { const of = (s) => [...document.querySelectorAll(s)].map((e) => e.getBoundingClientRect());
        return {g1: of('.axis .g1 text'), g2: of('.axis .g2 text'), names: of('.axis > text'),
          b1: of('.axis .g1 .bracket'), b2: of('.axis .g2 .bracket'), plane: of('.plane')}; })()"""
    )
    assert boxes["names"]
    assert all(name["right"] <= boxes["plane"][0]["left"] for name in boxes["names"])
    if width == 390:
        assert not boxes["g1"] + boxes["g2"]
        return
    for texts, brackets, following in (("g1", "b1", "g2"), ("g2", "b2", "names")):
        assert boxes[texts]
        assert all(t["right"] <= b["left"] for t in boxes[texts] for b in boxes[brackets])
        assert all(b["right"] <= f["left"] for b in boxes[brackets] for f in boxes[following])


def test_the_filter_names_what_it_hides(heat):
    page = heat.page
    page.fill("[data-filter]", "borealis")
    assert page.evaluate("kvcHeat.bands.every((b) => b.data.tenant === 'borealis-bank')")
    page.fill("[data-filter]", "nothing has this name")
    assert page.is_visible("[data-heat-state=filtered]")
    assert "nothing has this name" in page.inner_text("[data-filter-words]")
    page.click("[data-filter-drop]")
    assert page.is_visible(".heat")


def test_a_pinned_row_that_is_filtered_away_is_pinned_again_when_it_is_back(heat):
    """No other row takes its place for good, and meanwhile the card says that what it shows is not what was pinned."""
    page = heat.page
    pinned = page.evaluate("kvcHeat.cursor = {r: 5, c: 100}; kvcHeat.setPin(); kvcHeat.pin.id")
    assert not page.is_visible("[data-card-gone]")
    page.fill("[data-filter]", "borealis")
    assert page.evaluate("kvcHeat.pin.id") != pinned
    assert page.is_visible("[data-card-gone]")
    assert f"pin={pinned}" in page.url
    page.fill("[data-filter]", "")
    assert page.evaluate("[kvcHeat.pin.r, kvcHeat.pin.id]") == [5, pinned]
    assert not page.is_visible("[data-card-gone]")


def test_the_table_has_the_rows_of_the_picture(heat):
    page = heat.page
    page.click("#heatt-table")
    assert page.locator("[data-heat-table] tbody tr").count() == page.evaluate("kvcHeat.bands.length")
    page.click("#heatt-chart")
    assert page.evaluate("kvcHeat.canvas.width") > 100


@pytest.mark.parametrize("metric", ["misses", "resident", "stores", "evictions", "saved"])
def test_every_metric_is_drawn_with_its_unit(heat, metric):
    page = heat.page
    page.select_option("[data-metric]", metric)
    heat.wait(f"kvcHeat.matrix.metric === '{metric}' && {READY}")
    assert f"metric={metric}" in page.url
    assert "unit_" not in page.inner_text("#view-heat")


@pytest.mark.parametrize("span", ["12h", "7d", "30d", "90d"])
def test_longer_times_come_from_coarser_layers(visit, span):
    one = visit()
    one.go(f"/map?range={span}")
    one.wait("['ready', 'empty'].includes(document.documentElement.dataset.heat)")
    assert one.page.evaluate("kvcHeat.matrix.step") >= 60


def test_a_live_column_costs_at_most_four_milliseconds(heat):
    """Mean of 40 frames, in time of the processor; rows keep their place and the pinned cell stays on its time."""
    before = (worked := heat.processor_time())()
    cost = heat.page.evaluate(
        """() => { const h = kvcHeat, m = h.matrix, rows = h.bands.map((b) => b.data.id).join();
        const pinned = m.times[h.pin.c = 100];
        for (let i = 0; i < 40; i += 1) {
          const t = m.times.at(-1) + m.step;
          const levels = btoa(String.fromCharCode(...m.rows.map((_, r) => (r * 7 + i) % 255)));
          const frame = {columns: {[t]: {axis: m.axis, levels}}};
          h.frame(frame);
        }
        return {same: rows === h.bands.map((b) => b.data.id).join(), pinned: m.times[h.pin.c] === pinned}; }"""
    )
    assert cost["same"]
    assert cost["pinned"]
    spent = (worked() - before) * 1000 / 40
    assert 0 < spent <= 8, spent  # 4 ms on a fast machine; the bench measures it


def test_a_failed_picture_says_so_and_can_be_loaded_again(visit):
    one = visit()
    one.page.route("**/heat.bin*", lambda route: route.abort())
    one.go("/map")
    one.wait("document.documentElement.dataset.heat === 'error'")
    assert one.page.is_visible("[data-heat-state=error]")
    one.page.unroute("**/heat.bin*")
    one.page.click("[data-heat-retry]")
    one.wait(READY)
    one.errors.clear()  # the browser reports the aborted request itself


def test_an_empty_map_fills_by_itself_when_rows_come(visit):
    """The picture is empty at first; a live frame of another axis brings it."""
    one = visit()
    one.page.route(
        "**/heat.bin*",
        lambda route: route.fulfill(content_type="application/octet-stream", body=EMPTY),
        times=1,
    )
    one.go("/map")
    one.wait(READY)
    assert one.page.evaluate("kvcHeat.matrix.rows.length") == 22


# --- a window of time ---

WINDOW = "new URLSearchParams(location.search)"


def window(one) -> tuple[int, int]:
    """The window in the address."""
    return tuple(one.page.evaluate(f"['from', 'to'].map((k) => Number({WINDOW}.get(k)))"))


def drawn(one) -> list[int]:
    """Begin and end of the picture."""
    return one.page.evaluate("[kvcHeat.matrix.times[0], kvcHeat.matrix.times.at(-1) + kvcHeat.matrix.step]")


def drag(one, first: int, last: int) -> list[int]:
    """Drag from one column to another; begin and end of the band that was drawn."""
    box = one.page.locator("[data-plane]").bounding_box()
    width = one.page.evaluate("kvcHeat.matrix.width")
    at = [box["x"] + (c + 0.6) / width * box["width"] for c in (first, (first + last) // 2, last)]
    one.page.mouse.move(at[0], box["y"] + 40)
    one.page.mouse.down()
    one.page.mouse.move(at[1], box["y"] + 43)
    one.page.mouse.move(at[2], box["y"] + 46)
    assert one.page.locator("[data-over] .brush").count() == 1
    begun, ended, *times = one.page.evaluate(
        """(() => { const z = kvcHeat.zoom, m = kvcHeat.matrix;
        return [z.begun, z.ended, m.times[z.begun], m.times[z.ended] + m.step]; })()"""
    )
    assert abs(begun - first) <= 1
    assert abs(ended - last) <= 1
    one.page.mouse.up()
    return times


def test_dragging_zooms_and_one_button_leads_back(heat):
    page = heat.page
    name, newest = page.inner_text("[data-card-name]"), page.evaluate("kvcHeat.matrix.times.at(-1)")
    wanted = drag(heat, 90, 180)
    heat.wait(f"kvcHeat.matrix.times[0] === {wanted[0]} && !kvcHeat.host.hasAttribute('aria-busy')")
    assert drawn(heat) == wanted
    assert list(window(heat)) == wanted
    assert page.locator("[data-over] .brush").count() == 0
    assert page.inner_text("[data-card-name]") == name, "the click that ends a drag pins nothing"
    assert page.inner_text("[data-card-now]") == "–", "a window that ended says nothing of now"
    frame = "kvcHeat.frame({columns: {[kvcHeat.matrix.times.at(-1) + 10]: {levels: btoa('x'.repeat(22))}}})"
    page.evaluate(frame)
    assert drawn(heat) == wanted, "a window stands still"
    page.reload()
    heat.wait(f"{READY} && kvcHeat.matrix.times[0] === {wanted[0]}")
    assert drawn(heat) == wanted, "the address keeps it"
    page.click("[data-zoom=back]")
    heat.wait(f"kvcHeat.matrix.times.at(-1) >= {newest}")
    assert window(heat) == (0, 0)
    assert not page.is_visible("[data-zoom=back]")
    assert page.inner_text("[data-card-now]") != "–"


def test_keys_do_what_dragging_does(heat):
    page = heat.page
    page.focus("[data-plane]")
    page.keyboard.press("Shift+ArrowLeft")
    page.keyboard.press("b")
    for _ in range(3):
        page.keyboard.press("Shift+ArrowLeft")
    assert page.locator("[data-over] .brush").count() == 1
    page.keyboard.press("Escape")
    assert page.locator("[data-over] .brush").count() == 0
    page.keyboard.press("b")
    for _ in range(3):
        page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("b")
    heat.wait("kvcHeat.matrix.width === 31")
    first = window(heat)
    assert list(first) == drawn(heat)
    page.keyboard.press("-")
    heat.wait("kvcHeat.matrix.width > 50")
    far = window(heat)
    assert far[0] < first[0]
    page.keyboard.press("[")
    heat.wait(f"kvcHeat.matrix.times[0] < {far[0]}")
    earlier = window(heat)
    page.keyboard.press("]")
    heat.wait(f"kvcHeat.matrix.times[0] > {earlier[0]}")
    page.keyboard.press("=")
    heat.wait("kvcHeat.matrix.width < 50")
    for _ in range(6):
        page.keyboard.press("=")
        page.wait_for_timeout(200)
    heat.wait("kvcHeat.matrix.width === 6", 5)
    for _ in range(8):
        page.keyboard.press("-")
        page.wait_for_timeout(200)
    heat.wait(f"!{WINDOW}.has('from') && kvcHeat.matrix.width > 300")


@pytest.mark.parametrize("language", ["en", "zh-hans"])
def test_the_window_is_named_and_honest(visit, language):
    one = visit(language=language)
    one.go("/map")
    one.wait(READY)
    one.page.keyboard.press("[")
    one.wait("kvcHeat.matrix.step === 60")
    assert " UTC" in one.page.inner_text("[data-zoom=back]")
    means = {"en": "older values are means of 1 min", "zh-hans": "均值"}[language]
    one.wait(f"document.querySelector('#honesty').innerText.includes('{means}')")
    one.page.click("[data-zoom=back]")
    one.wait(f"!document.querySelector('#honesty').innerText.includes('{means}')")
