"""The plot of the README: well-formed, with every figure, losses told from wins."""

from xml.etree import ElementTree

from benchmarks.plot import CHARACTER, WIDTH, Bar, Panel, render

SVG = "{http://www.w3.org/2000/svg}"
PANELS = [
    Panel("A <machine> & more", "A & B", (Bar("net", 2.0), Bar("lost", 0.5))),
    Panel("second", "B", (Bar("other", 3.25),)),
    Panel("third", "B", (Bar("even", 1.0), Bar("a network with a long name, batch 64", 1.5))),
]


def drawn():
    return ElementTree.fromstring(render(PANELS))


def test_every_figure_is_there_and_nothing_is_cut():
    root = drawn()
    texts = [text.text for text in root.iter(f"{SVG}text")]
    for panel in PANELS:
        assert panel.title in texts and f"times as fast as {panel.peers}" in texts
        for bar in panel.bars:
            assert bar.name in texts and f"{bar.ratio:.2f}x" in texts
        starts = {float(bar.get("x")) for bar in root.iter(f"{SVG}rect")}
        assert CHARACTER * max(len(bar.name) for bar in panel.bars) < min(starts)
    height = float(root.get("height"))
    for bar in root.iter(f"{SVG}rect"):
        assert float(bar.get("x")) + float(bar.get("width")) < WIDTH
        assert float(bar.get("y")) + float(bar.get("height")) <= height


def test_lengths_are_the_ratios_and_the_line_is_at_one():
    root = drawn()
    bars = list(root.iter(f"{SVG}rect"))
    ratios = [bar.ratio for panel in PANELS for bar in panel.bars]
    scale = float(bars[0].get("width")) / 2
    for bar, ratio in zip(bars, ratios, strict=True):
        assert abs(float(bar.get("width")) - ratio * scale) < 0.2
        assert bar.get("class") == ("win" if ratio >= 1 else "loss")
    line = next(root.iter(f"{SVG}line"))
    assert abs(float(line.get("x1")) - float(bars[0].get("x")) - scale) < 0.2


def test_the_same_figures_make_the_same_file():
    assert render(PANELS) == render(list(PANELS))
