"""Two runs: what changed, whether it is beyond the noise, and step by step."""

from dataclasses import replace

import pytest
from report_samples import place, report, step

from saccade.report.diff import diff

BEFORE = report(step("a", 300.0), step("b", 500.0), step("gone", 50.0))


def test_the_same_run_is_no_different():
    found = diff(BEFORE, BEFORE)
    assert (found.settings, found.comparable, found.change, found.real) == ((), True, 0.0, False)
    assert all(one.change == 0 and one.what == () for one in found.steps)


def test_steps_are_matched_by_name_and_sorted_by_change():
    after = report(step("a", 310.0), step("new", 80.0), step("b", 200.0))
    found = diff(BEFORE, after)
    assert [(one.name, one.change) for one in found.steps] == [
        ("b", -300.0), ("new", 80.0), ("gone", -50.0), ("a", 10.0),
    ]  # fmt: skip
    by_name = {one.name: one for one in found.steps}
    assert (by_name["b"].before, by_name["b"].after) == (1, 2)
    assert by_name["new"].before is None and by_name["new"].what == ("only after",)
    assert by_name["gone"].after is None and by_name["gone"].what == ("only before",)


def test_steps_of_one_name_keep_their_order_and_copies_are_apart():
    parts = (step("cat", 1.0), step("cat", 2.0), step("cat", 3.0, reorder=True))
    moved = (step("cat", 3.0, reorder=True), step("cat", 1.5), step("cat", 2.0))
    found = diff(report(*parts), report(*moved))
    assert sorted((one.before, one.after, one.change) for one in found.steps) == [
        (0, 1, 0.5), (1, 2, 0.0), (2, 0, 0.0),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"kernel": "conv2d.winograd"}, "kernel: conv2d.direct → conv2d.winograd"),
        ({"config": "rows 8 whole"}, "config: rows 4 → 8 whole"),
        ({"config": "rows 4 (relu($0))"}, "config: another expression"),
        ({"outputs": (place(layout="NCHW"),)}, "results stored as: NHWC → NCHW"),
        ({"inputs": (place(dtype="bfloat16"),)}, "types of operands: float32 → bfloat16"),
        ({"tuned": True}, "chosen by measurement"),
        ({"op": "Conv2dSum"}, "operator: Conv2d → Conv2dSum"),
    ],
)
def test_what_else_changed_is_told(change, told):
    after = replace(BEFORE, steps=(replace(BEFORE.steps[0], **change), *BEFORE.steps[1:]))
    first = next(one for one in diff(BEFORE, after).steps if one.name == "a")
    assert first.what == (told,)


def test_settings_are_told_and_other_machines_do_not_compare():
    there = {"threads": 4, "machine": {"cpu": "Another"}, "versions": {}}
    found = diff(BEFORE, report(*BEFORE.steps, about=there))
    assert found.settings == (
        "threads: 2 → 4", "cpu: Made up → Another", "python: 3.11 → none",
    )  # fmt: skip
    assert not found.comparable
    assert diff(BEFORE, report(*BEFORE.steps, about={"threads": 4})).comparable


def test_a_change_within_the_noise_is_none():
    noisy = [1.0 + 0.1 * (i % 5) for i in range(40)]
    before, near = report(step(), times=noisy), report(step(), times=[t + 0.02 for t in noisy])
    far = report(step(), times=[t + 0.5 for t in noisy])
    assert not diff(before, near).real
    assert diff(before, far).real and diff(before, far).change == pytest.approx(0.5)
    # However sure, a hundredth is not worth a word.
    assert not diff(report(step(), times=[1.0] * 40), report(step(), times=[1.005] * 40)).real
