"""Nothing of a file reaches a terminal in a form that it would obey."""

from __future__ import annotations

import pickle
import traceback
from pathlib import Path

import numpy as np
import onnx
import pytest
from hostile_names import TRAP, is_safe, supported, unsupported

import saccade
from saccade import passes
from saccade.errors import (
    ModelError,
    PlanError,
    SaccadeError,
    Unsupported,
    UnsupportedModelError,
    printable,
)
from saccade.frontend import onnx as frontend
from saccade.ir.printer import format_graph

REFUSED = unsupported()


@pytest.fixture
def model(tmp_path: Path) -> saccade.Model:
    path = tmp_path / "model.onnx"
    onnx.save(supported(), path)
    return saccade.compile(path, threads=1, cache=False)


def test_the_traps_would_be_obeyed() -> None:
    assert not is_safe(TRAP)
    assert not is_safe("a\nsaccade: error: forged")
    assert not is_safe("two\nlines", lines=1)
    assert is_safe("plain µs …", lines=1)


def test_printable_text_stays_and_the_rest_is_spelled() -> None:
    assert printable("conv1/Relu µ ß 层") == "conv1/Relu µ ß 层"
    assert printable("\x1b[0m\n\r\t\x7f\x9b") == r"\x1b[0m\n\r\t\x7f\x9b"
    assert printable("\u202e\u2066\u2028\ud800\u200b") == r"\u202e\u2066\u2028\ud800\u200b"
    assert printable(17) == "17"


@pytest.mark.parametrize("character", ["a", "\x1b", "\U000e0001"])
@pytest.mark.parametrize("longest", [3, 50, 200])
def test_long_text_is_cut(character: str, longest: int) -> None:
    cut = printable(character * 1_000_000, longest)
    assert len(cut) <= longest and "…" in cut and is_safe(cut)


@pytest.mark.parametrize("place", REFUSED)
def test_refusals_are_safe(place: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(REFUSED[place].SerializeToString())
    with pytest.raises(ModelError) as caught:
        frontend.load(path)
    table = isinstance(caught.value, UnsupportedModelError)
    assert is_safe(str(caught.value), None if table else 1)
    assert is_safe("".join(traceback.format_exception(caught.value)))
    assert is_safe(str(pickle.loads(pickle.dumps(caught.value))))
    out, err = capfd.readouterr()
    assert is_safe(out) and is_safe(err)


def test_every_kind_of_error_is_safe() -> None:
    waiting, seen = [SaccadeError], 0
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        if not issubclass(kind, (UnsupportedModelError, saccade.errors.OperandError)):
            assert is_safe(str(kind(f"node {TRAP} is wrong")), lines=1), kind
            seen += 1
    assert seen > 8


def test_a_row_of_the_table_is_one_line_of_bounded_length() -> None:
    row = Unsupported(TRAP * 1000, TRAP, f"because {TRAP}" * 1000, 3, (TRAP * 1000, "b\nc"))
    error = UnsupportedModelError([row] * 100_000)
    assert is_safe(str(error)) and len(str(error)) < 1_000_000
    assert error.rows[0] is row and f"{300_000} node(s)" in str(error)


def test_names_stay_as_they_are_for_those_who_compute(model: saccade.Model) -> None:
    assert [i.name for i in model.inputs] == [f"x{TRAP}"]
    assert [o.name for o in model.outputs] == [f"y{TRAP}"]
    (result,) = model.run({f"x{TRAP}": np.ones((1, 3, 6, 8), np.float32)}).values()
    assert result.shape == (1, 4, 4, 6)


def test_plans_profiles_and_graphs_are_safe(model: saccade.Model) -> None:
    x = np.ones((1, 3, 6, 8), np.float32)
    texts = [
        str(model.plan(x.shape)),
        repr(model.plan(x.shape)),
        model.plan(x.shape).to_json(),
        str(model.profile(x, repeat=1)),
        model.profile(x, repeat=1).table(),
        *(model.graph(stage) for stage in model.stages),
    ]
    for text in texts:
        assert is_safe(text)
    assert "conv" in texts[0] and "conv" in texts[3]


def test_errors_of_a_run_are_safe(model: saccade.Model) -> None:
    calls = [
        model,
        lambda: model.run({f"other{TRAP}": 1}),
        lambda: model(np.ones((1, 3, 8), np.float32)),
        lambda: model(np.ones((1, 3, 6, 8), np.float64)),
        lambda: model.graph(TRAP),
    ]
    for call in calls:
        with pytest.raises(SaccadeError) as caught:
            call()
        assert is_safe(str(caught.value), lines=1)
    with pytest.raises(PlanError) as refused:
        model.plan((1, 3, 1, 8))  # smaller than the window
    assert is_safe(str(refused.value), lines=1)


def test_reasons_of_passes_are_safe() -> None:
    texts = []
    passes.run(
        frontend.load(supported()), trace=lambda name, graph, notes: texts.extend(map(str, notes))
    )
    assert all(map(is_safe, texts))
    assert is_safe(format_graph(frontend.load(supported())))
    assert all(is_safe(repr(value)) for value in frontend.load(supported()).values())


@pytest.mark.parametrize("name", ["a\x1b[2Jb.onnx", "a\nb.onnx"])
def test_names_of_files_are_safe(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    for content in (None, b"", b"\xff" * 100):
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(ModelError) as caught:
            frontend.load(path)
        assert is_safe(str(caught.value), lines=1)
