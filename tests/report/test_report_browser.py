"""The page in a real browser: Chromium without a window, as wide as a laptop's and a phone's."""

import json
from dataclasses import replace
from itertools import pairwise

import pytest
from browser import Browser, executable
from report_samples import place, report, step, whole

from saccade.report.advice import advice_of, in_page
from saccade.report.collect import percentiles_of
from saccade.report.types import ImportedNode

pytestmark = pytest.mark.skipif(
    executable() is None, reason="there is no browser (Debian: chromium)"
)

WIDTHS = (1280, 390)
HOSTILE = "</script><script>window.broken = 1</script><img src=x onerror='window.broken = 2'>"
SECTIONS = ("advice", "timeline", "roofline", "steps", "arena", "graph", "latency", "setting")


def advised(made):
    return replace(made, advice=advice_of(made))


def slower(made):
    """A run whose first step takes longer, by another kernel; the second one is not there."""
    first, _, last = made.steps
    first = replace(first, time=900.0, kernel="conv2d.winograd")
    about = replace(made.about, threads=1)
    times = tuple(time + 0.4 for time in made.times)
    last = replace(last, reads=(0,))
    imported = tuple(replace(node, step=node.step and 1) for node in made.imported)
    return advised(
        replace(
            made, steps=(first, last), about=about, times=times, blocks=(), imported=imported,
            percentiles=percentiles_of(times),
        )
    )  # fmt: skip


def large(count):
    """As many steps and nodes as large detectors have, some of which read several before them."""
    steps = [
        step(
            f"stage{i // 40}/block{i}/conv", 10.0 + i % 9,
            reads=(i - 1, i - 3)[: min(i, 2)] or (-1,),
            outputs=(place((1, 16 + i, 8, 8)),),
            spans=(((20.0 * i, 20.0 * i + 10), (20.0 * i, 20.0 * i + 12)),),
        )
        for i in range(count)
    ]  # fmt: skip
    nodes = [
        ImportedNode(f"node{i}", "Conv2d", "", "float32", "1x16x8x8", (i - 1,), i // 2)
        for i in range(2 * count)
    ]
    return report(*steps, imported=tuple(nodes))


def wide(threads):
    """A run on so many threads."""
    span = tuple((float(thread), 100.0) for thread in range(threads))
    return report(*(step(f"conv{i}", spans=(span,)) for i in range(40)))


def modules():
    """Names as PyTorch gives them, and other columns as wide as they are in networks."""
    names = [f"/features/features.{i}/block/block.0/block.0.2/HardSwish" for i in (4, 5)]
    wide = {"kernel": "conv2d.expand_depthwise", "inputs": (place(layout="NCHW"),)}
    return report(*(step(name, 64.5, **wide) for name in names))


PAGES = {
    "modules": lambda: in_page(modules(), "of mine/r1.html").to_html(),
    "one": lambda: advised(whole()).to_html(),
    "two": lambda: slower(whole()).to_html(advised(whole())),
    "large": lambda: large(500).to_html(),
    "wide": lambda: wide(64).to_html(),
    "empty": lambda: report().to_html(),
    "hostile": lambda: slower(whole(HOSTILE)).to_html(whole(HOSTILE)),
}


@pytest.fixture(scope="module")
def browser():
    with Browser() as found:
        yield found


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    for name, make in PAGES.items():
        (folder / f"{name}.html").write_text(make(), encoding="utf-8")
    return folder


@pytest.fixture
def shown(browser, pages):
    """A page in the browser, and the browser."""

    def show(name="one", width=1280, **more):
        browser.open(pages / f"{name}.html", width, **more)
        return browser

    yield show
    assert browser.errors == []
    # Nothing but the file itself.
    assert [url for url in browser.requests if not url.startswith("file://")] == []
    assert len(browser.requests) == 1


def texts(browser, selector):
    return browser.run(
        f"[...document.querySelectorAll({json.dumps(selector)})].map((one) => one.textContent)"
    )


def middle(browser, selector):
    """Where an element is, once it is in sight and the page has come to rest."""
    return browser.run(
        f"(async () => {{ const one = document.querySelector({json.dumps(selector)});"
        " one.scrollIntoView({ block: 'center' });"
        " for (let i = 0; i < 2; i++) await new Promise(requestAnimationFrame);"
        " const place = one.getBoundingClientRect();"
        " return [place.left + place.width / 2, place.top + place.height / 2]; })()"
    )


OUTSIDE = """
[...document.querySelectorAll("body *")].filter((one) => {
  const place = one.getBoundingClientRect();
  const scrolled = one.closest(".box, pre, nav, .detail, .skip, .hidden, #tip");
  return !scrolled && place.width && (place.right > innerWidth + 1 || place.left < -1);
}).map((one) => one.outerHTML.slice(0, 120))
"""


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", PAGES)
def test_nothing_is_wider_than_the_window(shown, name, width):
    browser = shown(name, width)
    assert browser.run("document.documentElement.scrollWidth") <= width
    assert browser.run(OUTSIDE) == []


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["one", "two", "large"])
def test_every_section_shows_something(shown, name, width):
    browser = shown(name, width)
    sections = [*SECTIONS, *(["diff"] if name == "two" else [])]
    for section in sections:
        assert len(texts(browser, f"#{section}")[0]) > 60, section
        assert texts(browser, f"#{section} h2"), section
    assert len(texts(browser, "h1")) == 1
    for section in ("timeline", "roofline", "latency"):
        assert browser.run(f"document.querySelectorAll('#{section} .chart [data-at]').length"), (
            section
        )
    assert "Made up" in texts(browser, "#setting")[0]


@pytest.mark.parametrize("width", WIDTHS)
def test_figures_are_those_of_the_report(shown, width):
    browser = shown("one", width)
    tiles = " ".join(texts(browser, ".tile"))
    assert "1.03 ms" in tiles and "500 µs" in tiles and "8.19 kB" in tiles
    assert texts(browser, "#advice .rule") and "saccade" in texts(browser, "#advice pre")[0]


def rows(browser):
    return browser.run(
        "[...document.querySelectorAll('#steps tr.row')].filter((r) => !r.hidden).map((r) => r.id)"
    )


def click(browser, selector):
    browser.run(f"document.querySelector({json.dumps(selector)}).click()")


def test_steps_are_sorted_by_any_column(shown):
    browser = shown()
    assert rows(browser) == ["step-0", "step-1", "step-2"]
    time = "#steps thead th:nth-child(3) button"
    click(browser, time)
    assert rows(browser) == ["step-0", "step-2", "step-1"]
    head = "document.querySelector('#steps thead th:nth-child(3)').getAttribute('aria-sort')"
    assert browser.run(head) == "descending"
    click(browser, time)
    assert rows(browser) == ["step-1", "step-2", "step-0"]
    click(browser, "#steps thead th:nth-child(6) button")  # kernels, as words
    assert rows(browser) == ["step-0", "step-1", "step-2"]


def test_the_command_for_the_same_again_names_the_page(shown):
    assert texts(shown("modules"), "#setting pre")[0].endswith(" -o 'of mine/r1.html'")


def test_names_keep_the_end_that_tells_them_apart(shown):
    """All of the table is in a laptop's window, and its details have the name as it is."""
    browser = shown("modules")
    box = "document.querySelector('#steps .box')"
    assert browser.run(f"{box}.scrollWidth <= {box}.clientWidth")
    assert texts(browser, "#steps tr.row .name") == [
        "Conv2d /features.4/block.0.2/HardSwish", "Conv2d /features.5/block.0.2/HardSwish",
    ]  # fmt: skip
    seen = browser.run(
        "[...document.querySelectorAll('#steps .row .end')].every((one) => {"
        " const cell = one.closest('td').getBoundingClientRect();"
        " const place = one.getBoundingClientRect();"
        " return place.left >= cell.left && place.right <= cell.right; })"
    )
    assert seen
    browser.run("openStep(0)")
    assert "/features/features.4/block/block.0/block.0.2/HardSwish" in texts(browser, ".detail")[0]


def write(browser, selector, text):
    browser.run(
        f"(() => {{ const field = document.querySelector({json.dumps(selector)});"
        f" field.value = {json.dumps(text)}; field.dispatchEvent(new Event('input')); }})()"
    )


def test_steps_are_filtered_by_words_and_kernel(shown):
    browser = shown()
    write(browser, "#filter", "MOVE nchw")
    assert rows(browser) == ["step-1"]
    assert texts(browser, "#shown") == ["1 step, 100 µs (11%)"]
    write(browser, "#filter", "nothing of the kind")
    assert rows(browser) == []
    # Whoever follows a link to a step sees it, whatever is filtered.
    browser.run("openStep(2)")
    assert len(rows(browser)) == 3
    browser.run("document.querySelector('#kernel').value = 'conv2d.direct'; refilter()")
    assert rows(browser) == ["step-0"]


def test_a_step_tells_which_kernels_were_refused_and_why(shown):
    browser = shown("one", 390)
    click(browser, "#step-0 button")
    told = texts(browser, ".detail table tr")
    assert [line for line in told if "conv2d.winograd" in line and "stride 2" in line]
    assert [
        line for line in told if "conv2d.lattice" in line and "700 µs" in line and "650 µs" in line
    ]
    assert "conv1/first" in texts(browser, ".detail")[0], "the nodes that it was fused from"
    assert (
        browser.run("document.querySelector('#step-0 button').getAttribute('aria-expanded')")
        == "true"
    )
    click(browser, "#step-0 button")
    assert texts(browser, ".detail") == []


@pytest.mark.parametrize("chart", ["timeline", "roofline", "arena", "latency"])
def test_marks_are_told_of_under_the_pointer_and_by_the_keyboard(shown, chart):
    browser = shown()
    browser.move(*middle(browser, f"#{chart} .chart [data-at]"))
    browser.wait("!document.getElementById('tip').hidden")
    assert texts(browser, "#tip")[0]
    browser.move(2, 2)
    browser.wait("document.getElementById('tip').hidden")
    browser.run(f"document.querySelector('#{chart} .chart').focus({{preventScroll: true}})")
    browser.press("ArrowRight")
    browser.wait("!document.getElementById('tip').hidden")
    assert texts(browser, "#said")[0] == texts(browser, "#tip")[0]
    browser.press("Escape")
    browser.wait("document.getElementById('tip').hidden")


def test_a_mark_opens_its_step(shown):
    browser = shown()
    browser.run("document.querySelector('#roofline .chart').focus()")
    browser.press("ArrowRight")
    browser.press("Enter")
    browser.wait("document.querySelectorAll('#steps tr.chosen').length === 1")
    assert len(texts(browser, ".detail")) == 1
    assert browser.run("document.activeElement.closest('tr')?.className").startswith("row")


@pytest.mark.parametrize("width", WIDTHS)
def test_a_step_is_opened_below_the_head_of_the_table(shown, width):
    browser = shown("large", width)
    browser.run("openStep(250)")
    assert browser.run(
        "document.querySelector('#step-250').getBoundingClientRect().top"
        " - document.querySelector('#steps thead th').getBoundingClientRect().bottom"
    ) == pytest.approx(0, abs=1)


def test_the_timeline_is_zoomed_by_buttons_and_by_dragging(shown):
    browser = shown()
    said = "#timeline .tools .soft"
    assert texts(browser, said) == ["0 µs to 950 µs of 950 µs"]
    click(browser, "#timeline .tools button")
    assert texts(browser, said) == ["238 µs to 713 µs of 950 µs"]
    click(browser, "#timeline .tools button:nth-child(5)")
    x, y = middle(browser, "#timeline .chart")
    browser.drag((x - 100, y - 20), (x + 100, y - 20))
    (after,) = texts(browser, said)
    assert after != "0 µs to 950 µs of 950 µs"
    assert texts(browser, ".detail") == [], "a drag opens nothing"


def test_the_arena_is_drawn_by_steps_and_by_time(shown):
    browser = shown()
    width = "document.querySelector('#arena [data-at=\"2\"]').getBoundingClientRect().width"
    before = browser.run(width)
    click(browser, "#arena .tools button")
    assert browser.run(width) < 0.8 * before
    assert "by time" in texts(browser, "#arena .tools button")[0]


def test_both_graphs_show_what_became_of_a_node(shown):
    browser = shown("one", 390)
    browser.run(
        "document.querySelectorAll('#graph .box')[0].querySelector('[data-node=\"1\"]').click()"
    )
    assert len(texts(browser, "#graph li.chosen")) == 2
    browser.run(
        "document.querySelectorAll('#graph .box')[0].querySelector('[data-node=\"2\"]').click()"
    )
    assert len(texts(browser, "#graph li.chosen")) == 1 and "no step" in texts(browser, "#graph")[0]
    browser.run(
        "document.querySelectorAll('#graph .box')[1].querySelector('[data-node=\"0\"]').click()"
    )
    assert len(texts(browser, "#graph li.chosen")) == 3, "the step, and the two nodes in it"
    told = " ".join(texts(browser, "#graph .chip"))
    assert "copy" in told and "type changes" in told and "NHWC → NCHW" not in texts(browser, "h1")


def test_many_threads_have_a_row_each(shown):
    browser = shown("wide", 390)
    blocks = (
        "[...document.querySelectorAll('#timeline [data-at=\"0\"]')].map((b) => b.y.baseVal.value)"
    )
    assert len(set(browser.run(blocks))) == 64
    assert browser.run("document.querySelector('#timeline .chart').clientHeight") < 700


def test_five_hundred_steps_are_drawn_at_once(shown):
    browser = shown("large", 390)
    assert len(rows(browser)) == 500
    assert browser.run("document.querySelectorAll('#graph li').length") == 1500
    write(browser, "#filter", "stage3")
    assert len(rows(browser)) == 40


def test_two_runs_stand_side_by_side(shown):
    browser = shown("two")
    told = texts(browser, "#diff")[0]
    assert "slower by 39%" in told and "threads: 2 → 1" in told
    lines = texts(browser, "#diff tr.row")
    assert len(lines) == 3
    assert "+300 µs" in lines[0] and "kernel: conv2d.direct → conv2d.winograd" in lines[0]
    assert "gone" in lines[1] and "only before" in lines[1]
    visible = "[...document.querySelectorAll('#diff tr.row')].filter((r) => !r.hidden).length"
    write(browser, "#diff-filter", "gone")
    assert browser.run(visible) == 1
    write(browser, "#diff-filter", "")
    click(browser, "#diff-only")
    assert browser.run(visible) == 2
    assert browser.run("document.querySelectorAll('#diff .chart rect.before').length") > 0
    assert browser.run("document.querySelectorAll('#diff .chart rect.after').length") > 0


@pytest.mark.parametrize("width", WIDTHS)
def test_names_of_a_model_stay_text(shown, width):
    browser = shown("hostile", width)
    browser.run("openStep(0)")
    assert browser.run("window.broken") is None
    assert browser.run("document.querySelectorAll('script').length") == 2
    assert browser.run("document.querySelectorAll('img').length") == 0
    assert any(HOSTILE in text for text in texts(browser, "#steps tr.row"))


def test_the_page_allows_no_other_script_and_no_connection(browser, pages):
    """What its policy refuses is an error of the page, which tests of others look for."""
    browser.open(pages / "one.html", 1280)
    browser.run(
        "(() => { const one = document.createElement('script');"
        " one.textContent = 'window.broken = 3'; document.body.append(one); })()"
    )
    assert browser.run("window.broken") is None
    answer = browser.run("fetch('https://example.org/').then(() => 'sent', () => 'refused')")
    assert answer == "refused" and browser.errors


CONTRAST = """
(() => {
  const pixel = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const channels = (color) => {
    pixel.clearRect(0, 0, 1, 1);
    pixel.fillStyle = color;
    pixel.fillRect(0, 0, 1, 1);
    return [...pixel.getImageData(0, 0, 1, 1).data];
  };
  const light = ([r, g, b]) => [r, g, b].map((c) => c / 255)
    .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (one) => {
    for (let at = one; at; at = at.parentElement) {
      const found = channels(getComputedStyle(at).backgroundColor);
      if (found[3] === 255) return found;
    }
    return [255, 255, 255];
  };
  const poor = [];
  for (const one of document.querySelectorAll("main *, nav *, header *, footer *")) {
    const own = [...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!own || one.closest("svg, option") || !one.getBoundingClientRect().width) continue;
    const both = [light(channels(getComputedStyle(one).color)), light(behind(one))];
    const [a, b] = both.sort((p, q) => q - p);
    if ((a + 0.05) / (b + 0.05) < 4.5) poor.push(one.outerHTML.slice(0, 100));
  }
  return poor;
})()
"""


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("name", ["one", "two"])
def test_text_stands_out_in_either_scheme(shown, name, dark):
    browser = shown(name, dark=dark)
    assert browser.run(CONTRAST) == []
    assert texts(browser, "#scheme") == ["Light" if dark else "Dark"]
    click(browser, "#scheme")
    assert browser.run(CONTRAST) == []


def test_what_can_be_used_has_a_name(shown):
    browser = shown("two")
    nameless = browser.run(
        "[...document.querySelectorAll('button, input, select, .chart')].filter((one) =>"
        " !(one.textContent.trim() || one.getAttribute('aria-label') || one.closest('label')))"
        ".map((one) => one.outerHTML)"
    )
    assert nameless == []
    levels = browser.run("[...document.querySelectorAll('h1, h2, h3')].map((h) => +h.tagName[1])")
    assert levels[0] == 1 and all(b - a <= 1 for a, b in pairwise(levels))


def test_motion_is_left_out_where_it_is_not_wanted(shown):
    style = "getComputedStyle(document.documentElement).scrollBehavior"
    assert shown("one", still=True).run(style) == "auto"
    assert shown("one", still=False).run(style) == "smooth"
