from __future__ import annotations

import json

import pytest

torch = pytest.importorskip("torch")

from saccade import ops  # noqa: E402
from saccade.cli import _call_cases, _operator_cases  # noqa: E402
from saccade.cli._operator_cases import Bout, OperatorCase  # noqa: E402


def shuffle_case(theirs, aim=1e-9):
    def make(dtype, device):
        x = torch.arange(64.0).reshape(1, 16, 2, 2).to(dtype)
        return Bout(lambda: ops.pixel_shuffle(x, 2), lambda: theirs(x, 2))

    return OperatorCase("pixel_shuffle", "small", "torch", aim, make)


@pytest.fixture
def one_case(monkeypatch):
    def use(case):
        monkeypatch.setattr(_operator_cases, "cases", lambda: (case,))
        monkeypatch.setattr(_call_cases, "call_cases", tuple)

    return use


def bench(saccade_cli, *more):
    return saccade_cli("bench-ops", "--rounds", 2, "--seconds", 0, *more)


def test_the_table_and_the_record(saccade_cli, one_case, tmp_path):
    one_case(shuffle_case(torch.nn.functional.pixel_shuffle))
    file = tmp_path / "operators.json"
    for dtype in ("float32", "bfloat16", "bfloat16"):
        result = bench(saccade_cli, "pixel_shuffle", "--dtype", dtype, "--json", file)
        assert result.exit_code == 0, result.stderr
        assert "below" not in result.stdout
    rows = json.loads(file.read_text())["results"]
    assert [row["dtype"] for row in rows] == ["float32", "bfloat16"], "later figures replace"
    row = rows[0]
    assert row["operator"] == "pixel_shuffle"
    assert row["peer"] == "torch"
    assert row["ratio"] == pytest.approx(row["peer_ms"] / row["ours_ms"])
    assert len(row["ratios"]) == 2
    assert row["versions"]["torch"]


def test_a_missed_aim_is_shown(saccade_cli, one_case):
    one_case(shuffle_case(torch.nn.functional.pixel_shuffle, aim=1e9))
    assert "below" in bench(saccade_cli).stdout


def test_another_dtype_beside_float32(saccade_cli, one_case, refused):
    seen = []

    def make(dtype, device):
        return Bout(lambda: seen.append(dtype), lambda: pytest.fail("the peer is not called"))

    one_case(OperatorCase("pixel_shuffle", "small", "torch", 2.0, make))
    result = bench(saccade_cli, "--dtype", "bfloat16", "--against", "float32")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.splitlines()[-1].split()[-1].startswith(("float32", "below"))
    assert set(seen) == {torch.bfloat16, torch.float32}
    assert "another --dtype" in refused("bench-ops", "--against", "float32")


def test_rows_fit_the_terminal_and_figures_go_alone(saccade_cli, one_case, monkeypatch):
    make = shuffle_case(torch.nn.functional.pixel_shuffle).make
    one_case(OperatorCase("pixel_shuffle", "c" * 40, "torch", 2.0, make))
    for width in (80, 200):
        monkeypatch.setenv("COLUMNS", str(width))
        result = bench(saccade_cli)
        assert result.exit_code == 0, result.stderr
        assert max(map(len, result.stdout.splitlines())) <= width
        assert len(result.stdout.splitlines()) == (5 if width == 80 else 3)
    alone = bench(saccade_cli, "--json", "-")
    assert [row["case"] for row in json.loads(alone.stdout)["results"]] == ["c" * 40]


def test_nothing_is_timed_where_results_differ(refused, one_case):
    one_case(shuffle_case(lambda x, _: -torch.nn.functional.pixel_shuffle(x, 2)))
    assert "nothing was timed" in refused("bench-ops")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("pixel_shufle",), "'pixel_shufle' is not one of"),
        (("--dtype", "int8"), "--dtype 'int8' is not one of"),
        (("--against", "tensorflow"), "--against 'tensorflow' is not one of"),
        (("--against", ","), "nothing to time"),
        (("nms", "--against", "copy"), "nothing to time: nms beside copy"),
        (("--json", "/nowhere/at/all.json"), "/nowhere/at"),
    ],
)
def test_refusals(refused, arguments, message):
    assert message in refused("bench-ops", *arguments)


@pytest.mark.parametrize("text", ["", "nothing", "[1]", "{}", '{"results": [{}]}', "\xff"])
def test_a_file_that_is_no_record_is_refused_before_anything_is_timed(refused, tmp_path, text):
    file = tmp_path / "operators.json"
    file.write_text(text, encoding="latin-1")
    assert f"{file} is not a record of bench-ops" in refused("bench-ops", "--json", file)
    assert file.read_text(encoding="latin-1") == text


def test_small_calls_are_timed_beside_empty_operators(saccade_cli, monkeypatch, tmp_path):
    monkeypatch.setattr(_operator_cases, "cases", tuple)
    monkeypatch.setenv("COLUMNS", "200")
    file = tmp_path / "operators.json"
    result = bench(saccade_cli, "--json", file)
    assert result.exit_code == 0, result.stderr
    rows = json.loads(file.read_text())["results"]
    assert {row["operator"] for row in rows} == {
        "roi_align", "roi_pool", "ps_roi_align", "nms", "batched_nms", "deform_conv2d",
    }  # fmt: skip
    for row in rows:
        assert row["over_us"] == pytest.approx(1e3 * (row["ours_ms"] - row["peer_ms"]))
        # Whole words: 5.0us stands in 15.0us as well, and several operators have the same case.
        whose, over = f"{row['operator']} ", f"{row['over_us']:.1f}us"
        lines = (li for li in result.stdout.splitlines() if li.startswith(whose))
        line = next(li for li in lines if row["case"] in li and over in li.split())
        assert ("above" in line) == (row["over_us"] > 15)


def test_every_case_names_an_operator_once():
    cases = (*_operator_cases.cases(), *_call_cases.call_cases())
    assert len({(case.operator, case.name, case.peer) for case in cases}) == len(cases)


def test_the_other_device(refused):
    assert "neither cpu nor cuda" in refused("bench-ops", "--device", "tpu")
    if not torch.cuda.is_available():
        assert "PyTorch sees no GPU" in refused("bench-ops", "--device", "cuda")


def test_code_is_compiled_for_all_cases_and_loaded(saccade_cli, one_case, monkeypatch, tmp_path):
    seen = []

    def make(dtype, device):
        return Bout(lambda: seen.append((dtype, device)), lambda: pytest.fail("no peer"))

    one_case(OperatorCase("pixel_shuffle", "small", "torch", 1.0, make))
    file = tmp_path / "operators.saccade"
    result = bench(saccade_cli, "--compile", file, "--dtype", "float16", "--machine", "a100")
    assert result.exit_code == 0, result.output
    assert seen == [(torch.float16, "meta")]
    assert ops.load_code(file) == 0


def test_aims_on_a_gpu():
    cases = {f"{case.operator} {case.name}": case for case in _operator_cases.cases()}
    deform = [case for name, case in cases.items() if name.startswith("deform")]
    found = [[_operator_cases.aim_on_gpu(c, d) for d in ("float32", "float16")] for c in deform]
    assert found == [[200, 32], [800, 300]]
    (shuffle, *_) = [case for name, case in cases.items() if name.startswith("pixel_shuffle")]
    assert _operator_cases.aim_on_gpu(shuffle, "float32") is None


def test_a_peer_that_is_not_there_is_told_before_anything_is_timed(saccade_cli, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    result = saccade_cli("bench-ops", "nms", "--against", "torchvision")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "pip install torchvision, or leave it out of --against" in result.stderr
