"""Every rule says something where it should, and nothing where it should not."""

import re
import shlex
from dataclasses import replace

import pytest
from report_samples import ABOUT, SPEEDS, place, report, step
from typer.testing import CliRunner

from saccade.cli._app import app
from saccade.profile import Shares
from saccade.report.advice import LINTS, advice_of, in_page
from saccade.report.types import Refused

NARROW = replace(SPEEDS, pair_flops=2e5)
LATTICE = Refused("conv2d.lattice", "40.0 µs estimated", 40.0, None)
HOST = {"host": True, "kernel": "reference", "floor": 1.0, "contracts": False}
ELEMENTS = {"kernel": "pointwise.chain", "op": "Pointwise", "contracts": False}
WEIGHTS = place((16, 100_000), where="constant", nbytes=6_400_000)
WAITING = Shares(0.3, 0.3, 0.4)

# For each rule: a report that it is about, and what is different in one that it is not about.
CASES = {
    "another-kernel": (
        report(step(refused=(LATTICE,)), step("conv2", 800.0)),
        report(step(refused=(LATTICE,), tuned=True), step("conv2", 800.0)),
    ),
    "host-step": (
        report(step(**HOST, refused=(Refused("conv2d.direct", "float64", None, None),))),
        report(step(**HOST, bodies=1)),
    ),
    "exact-arithmetic": (
        report(step(least_flops=8_000_000), about={"exact": True}),
        report(step(least_flops=8_000_000)),
    ),
    "layout-copy": (
        report(step(reorder=True, kernel="movement.copy", note="copy: elsewhere")),
        report(step(reorder=True, kernel="movement.copy", note="copy: elsewhere", time=0.0)),
    ),
    "data-movement": (
        report(step(kernel="movement.concat", op="Concat", contracts=False)),
        report(step(kernel="movement.copy", op="Move", contracts=False, reorder=True)),
    ),
    "lone-elementwise": (
        report(step(**ELEMENTS, flops=99_999)),
        report(step(kernel="reduce.direct", contracts=False)),
    ),
    "type-conversion": (
        report(step(**ELEMENTS, flops=0, outputs=(place(dtype="float16"),))),
        report(step(**ELEMENTS, flops=0)),
    ),
    "float32-products": (
        report(step(), speeds=NARROW),
        report(step(), speeds=NARROW, about={"precision": "bf16"}),
    ),
    "double-precision": (
        report(step(outputs=(place(dtype="float64"),))),
        report(step(outputs=(place(dtype="int64"),))),
    ),
    "ragged-channels": (
        report(step(outputs=(place((1, 20, 8, 8)),))),
        report(step(outputs=(place((1, 32, 8, 8)),))),
    ),
    "idle-cores": (
        report(step(), about={"cores": 8}),
        report(step()),
    ),
    "wide-team": (
        report(step(), shares=WAITING, about={"threads": 8, "cores": 8}),
        report(step(), about={"threads": 8, "cores": 8}),
    ),
    "few-pieces": (
        report(step(chunks=(3,), busy=0.6)),
        report(step(chunks=(300,), busy=0.6)),
    ),
    "noisy-runs": (
        report(step(), times=[1.0] * 35 + [3.0] * 5),
        report(step(), times=[1.0] * 4 + [3.0] * 5),
    ),
    "small-steps": (
        report(step(), totals={"floor_barriers": 100.0}),
        report(step(), totals={"floor_barriers": 100.0, "batch": 0}),
    ),
    "weights-bound": (
        report(step(inputs=(place(), WEIGHTS), time=700.0)),
        report(step(inputs=(place(), WEIGHTS), time=700.0), totals={"batch": 64}),
    ),
    "out-of-cache": (
        report(step(bytes=4_000_000, time=400.0, floor=80.0), totals={"batch": 8, "live": 2 << 20}),
        report(step(bytes=4_000_000, time=400.0, floor=80.0), totals={"batch": 8, "live": 2 << 10}),
    ),
}  # fmt: skip


def found(rule, made):
    return [one for one in advice_of(made) if one.rule == rule]


def test_every_rule_has_its_cases():
    assert [lint.name for lint in LINTS] == list(CASES)
    assert len(LINTS) >= 8


@pytest.mark.parametrize("rule", CASES)
def test_rules_speak_where_they_should(rule):
    about, quiet = CASES[rule]
    (one,) = found(rule, about)
    assert one.title and one.hazard and one.remedy
    assert one.title[0].isupper() or one.title[0].isdigit() or one.title.startswith("exact=")
    assert one.gain > 0 and one.share == pytest.approx(one.gain / about.percentiles.p50)
    assert "{" not in one.title + one.hazard + one.remedy
    assert found(rule, quiet) == []


def test_there_is_nothing_to_say_of_a_good_run():
    assert advice_of(report(step(), step("conv2", 800.0))) == ()


def test_nothing_is_said_of_next_to_nothing():
    assert advice_of(report(step(**ELEMENTS, time=4.0))) == ()


def test_the_largest_gain_comes_first():
    made = report(step(**ELEMENTS), step("moved", 500.0, kernel="movement.pad", contracts=False))
    assert [one.rule for one in advice_of(made)] == ["data-movement", "lone-elementwise"]


@pytest.mark.parametrize(
    ("rule", "gain"),
    [
        ("another-kernel", 0.060),  # 100 µs, where 40 are estimated
        ("host-step", 0.099),  # all above the floor
        ("exact-arithmetic", 0.5 * 0.100 * 10 / 18),  # half of the share of operations saved
        ("lone-elementwise", 0.100),
        ("float32-products", 0.050),
        ("double-precision", 0.050),
        ("ragged-channels", 0.100 * 12 / 32),
        ("few-pieces", 0.040),
        ("small-steps", 0.0875),  # seven eighths of the barriers
        ("weights-bound", 0.640 * 7 / 8),  # 6.4 MB at 10 GB/s
        ("idle-cores", 0.97 * 6 / 8),
        ("noisy-runs", 0.250),  # the mean above the median
    ],
)
def test_gains_are_computed(rule, gain):
    (one,) = found(rule, CASES[rule][0])
    assert one.gain == pytest.approx(gain, rel=1e-3)


def test_estimates_are_held_against_what_they_are_off_by():
    """Where all steps take three times as long as estimated, the other kernel would as well."""
    slow = [step(f"conv{i}", 300.0, estimate=100.0) for i in range(3)]
    one = step("odd", 100.0, estimate=33.0, refused=(LATTICE,))
    assert found("another-kernel", report(*slow, one)) == []
    measured = replace(one, refused=(replace(LATTICE, measured=40.0),))
    assert found("another-kernel", report(*slow, measured))


def test_remedies_name_the_steps_and_those_that_lose_most_lead():
    made = report(step("a", 50.0, **ELEMENTS), step("b", 90.0, **ELEMENTS))
    (one,) = found("lone-elementwise", made)
    assert one.steps == (1, 0)
    (moved,) = found("data-movement", report(step("m{0}", kernel="movement.pad", contracts=False)))
    assert "m{0}" in moved.remedy


def test_a_batch_is_asked_for_with_the_names_that_inputs_have():
    made = report(
        step(), totals={"floor_barriers": 100.0},
        about={"command": ("--shape 'a b=1x3x8x8'", "--shape c=1x1x4x4", "--threads 2")},
    )  # fmt: skip
    (one,) = found("small-steps", made)
    words = shlex.split(one.remedy)
    assert [words[i + 1] for i, word in enumerate(words) if word == "--shape"] == [
        "a b=8x3x8x8", "c=8x1x4x4",
    ]  # fmt: skip


def test_pages_that_are_compared_have_names_of_their_own():
    made = report(step(), totals={"floor_barriers": 100.0}, about={"threads": 1})
    remedies = {one.rule: one.remedy for one in in_page(made, "of mine/r1.html").advice}
    for rule, other in (("idle-cores", "threads-2"), ("small-steps", "batch-8")):
        words = shlex.split(remedies[rule])
        assert words[words.index("--against") + 1] == "of mine/r1.html"
        assert words[words.index("-o") + 1] == f"of mine/r1-{other}.html"


def commands():
    for about, _ in CASES.values():
        for one in advice_of(about):
            for line in one.remedy.splitlines():
                if "saccade " in line and not line.startswith(("#", "saccade.")):
                    yield line[line.index("saccade ") :]


@pytest.mark.parametrize("line", sorted(set(commands())))
def test_commands_of_remedies_exist_with_their_options(line):
    _, name, model, *options = shlex.split(line)
    assert model == ABOUT.model
    told = CliRunner(env={"COLUMNS": "200"}).invoke(app, [name, "--help"]).output
    named = {word for word in options if re.fullmatch("--?[a-z][a-z-]*", word)}
    assert named <= set(re.findall(r"--?[a-z][a-z-]*", told))
    given = [word for word in options if word.startswith("--") and word != "--shape"]
    assert len(given) == len(set(given)), "an option twice"


def test_steps_that_are_clocked_longer_than_a_run_save_no_more_than_it_takes():
    """A run of 1 ms, of which the steps take 0.9 and 2.7."""
    found = report(step(refused=(LATTICE,)), step("conv2", 800.0))
    slower = replace(found, steps=tuple(replace(one, time=3 * one.time) for one in found.steps))
    (usual,) = (one for one in advice_of(found) if one.rule == "another-kernel")
    (most,) = (one for one in advice_of(slower) if one.rule == "another-kernel")
    assert usual.gain == pytest.approx(0.06)
    assert most.gain == pytest.approx((0.3 - 3 * 0.04) / 2.7)  # estimates count as thrice, too
