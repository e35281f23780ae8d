"""Plans of real models: small arenas, no stand-alone reorders, cached, plain data."""

import random

import numpy as np
import pytest
from machine_plans import compiled_by_size

from saccade.backends.cpu.machines import MACHINES
from saccade.plan import Plan

STANDARD = {
    "subpixel_x4": (180, 320),
    "subpixel_x4_fp16": (180, 320),
    "resnet50": (224, 224),
    "mobilenet_v3_large": (224, 224),
    "shufflenet_v2_x1_0": (224, 224),
    "efficientnet_b0": (224, 224),
    "densenet121": (224, 224),
    "deeplabv3_mobilenet": (520, 520),
    "vgg16": (224, 224),
    "resnet50_dynamo": (224, 224),
    "subpixel_x4_dynamo": (180, 320),
}
BATCHES = {"resnet50_dynamo": (1,), "subpixel_x4_dynamo": (1,)}  # what their files fix


@pytest.mark.parametrize("name", STANDARD)
def test_the_arena_is_little_more_than_what_is_live(zoo, name):
    model = zoo.planned(name)
    for batch in BATCHES.get(name, (1, 8)):
        plan = model.plan((batch, 3, *STANDARD[name]))
        assert plan.arena_bytes <= 1.15 * plan.live_bytes, f"batch {batch}"


@pytest.mark.parametrize("name", STANDARD)
def test_json_and_text_lose_nothing(zoo, name, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100000")  # a line for each step
    plan = zoo.planned(name).plan((BATCHES.get(name, (2,))[0], 3, *STANDARD[name]))
    again = Plan.from_json(plan.to_json())
    assert again == plan
    assert again.to_json() == plan.to_json()
    assert hash(again.steps[0].op) == hash(plan.steps[0].op)
    text = str(plan)
    assert str(again) == text
    rows = text.splitlines()
    assert len(rows) > len(plan.steps) + 5
    for row, step in zip(rows[1:], plan.steps, strict=False):
        assert step.op.family in row and (step.kernel or "reference") in row
    monkeypatch.setenv("COLUMNS", "80")
    table = str(plan).partition("\n\n")[0].splitlines()
    assert max(map(len, table)) <= 80 and len(table) >= 2 * len(plan.steps)
    assert f"{len(plan.reorders)} reorder(s)" in text and "floor" in text


@pytest.mark.parametrize("name", STANDARD)
def test_only_what_pays_is_reordered(zoo, name):
    """Storage is searched exactly, costs no more than by rule, and no kernel forces a copy."""
    plan = zoo.planned(name).plan((1, 3, *STANDARD[name]))
    assert plan.searched.gap == 0 and plan.searched.saved >= 0
    assert all("faster" in s.note for s in plan.reorders), [s.note for s in plan.reorders]


@pytest.mark.parametrize("name", STANDARD)
def test_nothing_runs_on_the_host(zoo, name):
    plan = zoo.planned(name).plan((1, 3, *STANDARD[name]))
    assert [(s.name, s.reasons) for s in plan.steps if s.kernel is None] == []


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", ["resnet50", "mobilenet_v3_large"])
def test_another_size_compiles_little(zoo, name, machine):
    """It is planned with the code that is there, but for algorithms that no size took before."""
    sizes = ((2, 3, 224, 224), (1, 3, 256, 320), (1, 3, 200, 200), (1, 3, 201, 203))
    shapes = ((1, 3, *STANDARD[name]), *sizes, *sizes)
    first, *others = compiled_by_size(zoo.path(name), shapes, machine)
    fresh, again = others[: len(sizes)], others[len(sizes) :]
    assert max(fresh) <= first / 4 and sum(fresh) < first / 2
    assert not any(again)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", ["resnet50", "deeplabv3_mobilenet"])
def test_random_sizes_compile_nothing(zoo, name, machine):
    """What they take was compiled beside the first program, but for one in ten."""
    rows, columns = STANDARD[name]
    draw = random.Random(5)
    sizes = [
        (
            1,
            3,
            draw.randrange(rows // 2, rows * 3 // 2),
            draw.randrange(columns // 2, columns * 3 // 2),
        )
        for _ in range(10)
    ]
    first, *others = compiled_by_size(zoo.path(name), ((1, 3, rows, columns), *sizes), machine)
    assert first > 20 and sum(map(bool, others)) <= 1 and sum(others) <= 2


def test_programs_are_kept_by_size(zoo, image):
    model = zoo.compiled("subpixel_x4")
    x = image((1, 3, 9, 9))
    first = model(x)
    program = model._program((x.shape,))
    second = model(x)
    assert model._program((x.shape,)) is program
    assert np.array_equal(first, second) and not np.shares_memory(first, second)


def test_concatenations_of_densenet_cost_nothing(zoo):
    """Every layer writes beside its predecessors: prefixes of one buffer per block, no copies."""
    plan = zoo.planned("densenet121").plan((1, 3, 224, 224))
    assert not [s.name for s in plan.steps if s.op.family == "Concat"]
    assert plan.reorders == ()
