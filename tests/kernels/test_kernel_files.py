"""Every family's folder has the same names of files, as `kernels/cpu/__init__.py` says them."""

import ast
from functools import cache
from pathlib import Path

import pytest

import saccade.kernels.cpu
from saccade.kernels.cpu import CPU_KERNELS, kernel_named, packing

ROOT = Path(saccade.kernels.cpu.__file__).parent
FAMILIES = sorted(path.name for path in ROOT.iterdir() if (path / "__init__.py").exists())
KERNELS = {entry.module for entry in CPU_KERNELS}

# Files of kernels that share one.
SEVERAL = {
    "normalize.mean_variance": {"normalize.layer", "normalize.group"},
    "reduce.direct": {"reduce.direct", "reduce.norm"},
    "reduce.scan": {"reduce.scan", "reduce.arg"},
}
SINGLE_WORDS = {"config", "epilogue", "microkernel"}
# What several kernels share.
SHARED = {
    "conv2d": {
        "channel_order", "column_window", "epilogue", "epilogue_spec", "microkernel",
        "register_tiles", "row_bands", "row_groups", "row_sums", "tile_grid",
    },
    "deform": {
        "channel_blocks", "config", "sample_points", "sampled_columns", "tile_product",
        "weight_panels",
    },
    "matmul": {"operand_panels"},
    "movement": {"loop_nest", "register_shuffles"},
    "nms": {"box_iou", "box_strips", "config", "greedy_suppression", "score_order"},
    "normalize": {"axis_sweep"},
    "pointwise": {"channel_epilogue", "vector_elements"},
    "resize": {"axis_tables"},
    "roi": {
        "bilinear_axis", "bilinear_tables", "bin_ranges", "box_operands", "channel_blocks",
        "plane_blocks", "plane_sums", "window_transpose",
    },
}  # fmt: skip


def stems(family):
    return {path.stem for path in (ROOT / family).glob("*.py")} - {"__init__"}


def algorithms(family):
    """The names of its kernels, and of files that several of them share."""
    named = {
        entry.name.split(".")[1] for entry in CPU_KERNELS if entry.name.startswith(f"{family}.")
    }
    return named | {module.split(".")[1] for module in SEVERAL if module.startswith(f"{family}.")}


def role(family, stem):
    """What a file is by its name: `kernel`, `pack`, `part`, or None."""
    if f"{family}.{stem}" in KERNELS:
        return "kernel"
    if stem.startswith("pack_"):
        return "pack"
    owned = any(stem.startswith(f"{name}_") for name in algorithms(family))
    return "part" if owned else None


@cache
def imported(module):
    """The modules of kernels that one imports, as `family.file`."""
    found = set()
    for node in ast.walk(ast.parse((ROOT / f"{module.replace('.', '/')}.py").read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            inner = [name.removeprefix("saccade.kernels.cpu.") for name in names]
            found |= {i for i in inner if (ROOT / f"{i.replace('.', '/')}.py").exists()}
    return frozenset(found)


@cache
def needs(module):
    found, left = set(), [module]
    while left:
        at = left.pop()
        left += imported(at) - found
        found |= imported(at)
    return frozenset(found)


@pytest.mark.parametrize("entry", CPU_KERNELS, ids=lambda entry: entry.name)
def test_a_kernel_is_where_its_name_says(entry):
    assert entry.name.split(".")[0] in FAMILIES
    if entry.module != entry.name:
        assert entry.name in SEVERAL[entry.module]
    kernel = kernel_named(entry.name)
    for made in (kernel.config, kernel.emit):
        _, family, stem = made.__module__.removeprefix("saccade.kernels.").split(".")
        places = {"config"} | {
            name + end for name in algorithms(family) for end in ("", "_code", "_config")
        }
        assert stem in places, made


@pytest.mark.parametrize("family", FAMILIES)
def test_every_file_is_a_kernel_its_part_packing_or_shared(family):
    unnamed = {stem for stem in stems(family) if role(family, stem) is None}
    assert unnamed == SHARED.get(family, set())


@pytest.mark.parametrize(
    ("family", "stem"), [(family, stem) for family in SHARED for stem in sorted(SHARED[family])]
)
def test_what_is_shared_has_several_users_and_says_what_it_is(family, stem):
    users = {module for module in KERNELS if f"{family}.{stem}" in needs(module)}
    assert len(users) > 1, f"{users} alone: name it after the algorithm"
    assert "_" in stem or stem in SINGLE_WORDS


def test_files_that_pack_are_those_that_the_table_of_packing_functions_names():
    named = {f.__module__.removeprefix("saccade.kernels.cpu.") for f in packing.FUNCTIONS.values()}
    files = {
        f"{family}.{s}" for family in FAMILIES for s in stems(family) if role(family, s) == "pack"
    }
    assert named == files


def test_files_that_several_kernels_share_are_theirs():
    shared = {}
    for entry in CPU_KERNELS:
        shared.setdefault(entry.module, set()).add(entry.name)
    assert {module: names for module, names in shared.items() if len(names) > 1} == SEVERAL


def test_a_bare_noun_is_no_name():
    assert role("roi", "axis") is None and "axis" not in SHARED["roi"]
    assert role("roi", "align_gradient_bands") == "part"
    assert role("movement", "pack_element") == "pack"
    assert role("softmax", "sideways") is None
