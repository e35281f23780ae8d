"""Tables fit the terminal: nothing but the beginnings of names is lost."""

from __future__ import annotations

import pytest

from saccade.tables import Column, columns, fitted, paragraph

HEAD = (Column("#"), Column("step", left=True), Column("µs"), Column("chunks", spare=True))
LONG = "Conv2d /model/backbone/layer1/layer1.0/conv1/Conv_output_0/with/a/very/long/path"
ROWS = [("0", "Conv2d conv1", "1.5", "12"), ("1", LONG, "1000.0", "7+9")]
HOW = ["conv2d.direct nv 2", "conv2d.winograd " + " ".join(f"word{i}" for i in range(30))]


def test_what_fits_is_one_line_a_row():
    lines = fitted(HEAD, ROWS[:1], HOW[:1], named="step", width=80)
    assert lines == [
        "#  step           µs  chunks",
        "0  Conv2d conv1  1.5      12  conv2d.direct nv 2",
    ]


@pytest.mark.parametrize("width", [40, 60, 80, 132, 400])
def test_nothing_is_wider_and_nothing_is_lost(width):
    lines = fitted(HEAD, ROWS, HOW, named="step", width=width)
    assert max(map(len, lines)) <= width
    words = " ".join(lines).split()
    for word in (*HOW[0].split(), *HOW[1].split(), "1.5", "1000.0", "12", "7+9"):
        assert word.rstrip(";") in {one.rstrip(";") for one in words}
    assert any("with/a/very/long/path"[-12:] in line and "Conv2d" in line for line in lines)


def test_columns_move_below_before_names_lose_what_they_need():
    lines = fitted(HEAD, ROWS, HOW, named="step", width=40)
    assert "chunks" not in lines[0]
    assert any(line.endswith("; chunks 12") for line in lines)


def test_a_name_without_an_operator_loses_its_beginning():
    lines = fitted(HEAD[:2], [("0", "a" * 50 + "end")], named="step", width=40)
    assert lines[1] == "0  …" + "a" * 33 + "end"


def test_what_terminals_obey_is_escaped():
    lines = fitted(HEAD[:2], [("0", "a\x1b[2Jb")], ["c\nd"], named="step", width=80)
    assert lines[1] == r"0  a\x1b[2Jb  c\nd"


def test_columns_are_those_of_the_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "123")
    assert columns() == 123
    monkeypatch.setenv("COLUMNS", "3")
    assert columns() == 40
    monkeypatch.delenv("COLUMNS")
    assert columns() >= 40


def test_paragraphs_keep_words_and_their_own_indent():
    assert paragraph("short", 40) == ["short"]
    text = "  body.0: " + "a long-worded remark " * 5
    lines = paragraph(text, 40)
    assert max(map(len, lines)) <= 40 and " ".join(lines).split() == text.split()
    assert lines[0].startswith("  body") and all(line.startswith("    ") for line in lines[1:])
