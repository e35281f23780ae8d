"""Every family's folder has the same names of files, as `kernels/<device>/__init__.py` says."""

import ast
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest

import saccade.kernels
from saccade.kernels import cpu, cuda
from saccade.kernels.cpu import packing as cpu_packing
from saccade.kernels.cuda import packing as cuda_packing


@dataclass(frozen=True, eq=False)
class Room:
    """The kernels of a device.

    Attributes:
        device: Name of the folder.
        listed: Its kernels.
        packing: Its table of functions that pack.
        shared: By family, the files that several kernels share.
        several: Files of kernels that share one.
        single_words: Names of shared files that need no second word.
        configs: Shared files that may hold configs of kernels, and what is made of them.
    """

    device: str
    listed: Sequence[cpu.Listed | cuda.CudaListed]
    packing: Collection[object]
    shared: Mapping[str, set[str]]
    several: Mapping[str, set[str]] = field(default_factory=dict)
    single_words: frozenset[str] = frozenset()
    configs: frozenset[str] = frozenset()

    @property
    def root(self):
        return Path(saccade.kernels.__file__).parent / self.device

    @property
    def families(self):
        return sorted(path.name for path in self.root.iterdir() if (path / "__init__.py").exists())

    @property
    def kernels(self):
        """The files of its kernels."""
        return {entry.module for entry in self.listed}

    def stems(self, family):
        return {path.stem for path in (self.root / family).glob("*.py")} - {"__init__"}

    def algorithms(self, family):
        """The names of its kernels, and of files that several of them share."""
        names = {entry.name for entry in self.listed} | set(self.several)
        return {name.split(".")[1] for name in names if name.startswith(f"{family}.")}

    def role(self, family, stem):
        """What a file is by its name: `kernel`, `pack`, `part`, or None."""
        if f"{family}.{stem}" in self.kernels:
            return "kernel"
        if stem.startswith("pack_"):
            return "pack"
        owned = any(stem.startswith(f"{name}_") for name in self.algorithms(family))
        return "part" if owned else None

    def file(self, module):
        """Where a module is, such as `family.file`."""
        return self.root / f"{module.replace('.', '/')}.py"


CPU = Room(
    "cpu",
    cpu.CPU_KERNELS,
    cpu_packing.FUNCTIONS.values(),
    {
        "conv2d": {
            "channel_order", "column_window", "epilogue", "epilogue_spec", "microkernel",
            "register_tiles", "row_bands", "row_groups", "row_sums", "row_walk", "tile_grid",
            "limb_copies", "limb_products", "limb_schedules", "result_pixels", "tile_products",
            "tile_prologue", "tile_schedules",
        },
        "deform": {
            "channel_blocks", "config", "sample_points", "sampled_columns", "tile_product",
            "weight_panels",
        },
        "matmul": {"computed_panels", "operand_panels"},
        "movement": {"loop_nest", "register_shuffles"},
        "nms": {"box_iou", "box_strips", "config", "greedy_suppression", "score_order"},
        "normalize": {"axis_sweep"},
        "pack": {"in_program"},
        "pointwise": {"channel_epilogue", "narrow_elements", "double_elements", "vector_elements"},
        "resize": {"axis_tables"},
        "roi": {
            "bilinear_axis", "bilinear_tables", "bin_ranges", "box_operands", "channel_blocks",
            "plane_blocks", "plane_sums", "window_transpose",
        },
        "sample": {"pixel_places"},
    },
    several={
        "normalize.mean_variance": {"normalize.layer", "normalize.group"},
        "reduce.direct": {"reduce.direct", "reduce.norm"},
        "reduce.scan": {"reduce.scan", "reduce.arg"},
    },
    single_words=frozenset({"config", "epilogue", "microkernel"}),
    configs=frozenset({"config"}),
)  # fmt: skip
CUDA = Room(
    "cuda",
    cuda.CUDA_KERNELS,
    cuda_packing.FUNCTIONS.values(),
    {
        "conv2d": {"fused_operands", "lanes_code", "store_code", "window_config"},
        "deform": {"half_products", "half_products_code"},
        "matmul": {"axes_code", "product_axes", "split_sums", "split_sums_code", "tile_times"},
        "movement": {"loop_axes", "walk_code", "walk_plan", "walk_text"},
        "reduce": {"axis_loops", "axis_loops_code", "axis_tiles"},
        "roi": {
            "box_code", "box_operands", "box_phases", "gradient_steps", "ranges_code",
            "samples_code", "tables_code",
        },
    },
    several={"matmul.hopper": {"matmul.hopper", "matmul.hopper_stationary", "matmul.hopper_teams"}},
    configs=frozenset({"box_phases"}),
)  # fmt: skip
ROOMS = {room.device: room for room in (CPU, CUDA)}

rooms = pytest.mark.parametrize("room", ROOMS.values(), ids=ROOMS)
rooms_and_families = pytest.mark.parametrize(
    ("room", "family"),
    [
        pytest.param(room, family, id=f"{room.device}-{family}")
        for room in ROOMS.values()
        for family in room.families
    ],
)


@cache
def imported(room, module):
    """The room's modules that one imports, or whose functions its entries name."""
    tree = ast.parse(room.file(module).read_text())
    names = (*imports(room, tree), *entries(module, tree))
    return frozenset(name for name in names if room.file(name).exists())


def imports(room, tree):
    """What may be modules of the room, and everything else."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for name in (node.module, *(f"{node.module}.{alias.name}" for alias in node.names)):
                yield name.removeprefix(f"saccade.kernels.{room.device}.")


def entries(module, tree):
    """Files of the Triton functions that entries name: only compiling imports them."""
    for node in ast.walk(tree):  # some leave out the family
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            for family, file in re.findall(r"^(?:(\w+)\.)?(\w+_code):", node.value):
                yield f"{family or module.split('.')[0]}.{file}"


@cache
def needs(room, module):
    found, left = set(), [module]
    while left:
        at = left.pop()
        left += imported(room, at) - found
        found |= imported(room, at)
    return frozenset(found)


@pytest.mark.parametrize(
    ("room", "entry"),
    [
        pytest.param(room, entry, id=f"{room.device}-{entry.name}")
        for room in ROOMS.values()
        for entry in room.listed
    ],
)
def test_a_kernel_is_where_its_name_says(room, entry):
    assert entry.name.split(".")[0] in room.families
    if entry.module != entry.name:
        assert entry.name in room.several[entry.module]
    kernel = (cpu if room is CPU else cuda).kernel_named(entry.name)
    for made in (kernel.config, kernel.emit if room is CPU else kernel.entry):
        _, family, stem = made.__module__.removeprefix("saccade.kernels.").split(".")
        places = room.configs | {
            name + end for name in room.algorithms(family) for end in ("", "_code", "_config")
        }
        assert stem in places, made


@rooms_and_families
def test_every_file_is_a_kernel_its_part_packing_or_shared(room, family):
    unnamed = {stem for stem in room.stems(family) if room.role(family, stem) is None}
    assert unnamed == room.shared.get(family, set())


@pytest.mark.parametrize(
    ("room", "family", "stem"),
    [
        pytest.param(room, family, stem, id=f"{room.device}-{family}.{stem}")
        for room in ROOMS.values()
        for family in room.shared
        for stem in sorted(room.shared[family])
    ],
)
def test_what_is_shared_has_several_users_and_says_what_it_is(room, family, stem):
    users = {module for module in room.kernels if f"{family}.{stem}" in needs(room, module)}
    assert len(users) > 1, f"{users} alone: name it after the algorithm"
    assert "_" in stem or stem in room.single_words


@rooms
def test_files_that_pack_are_those_that_the_table_of_packing_functions_names(room):
    prefix = f"saccade.kernels.{room.device}."
    files = {
        f"{family}.{stem}"
        for family in room.families
        for stem in room.stems(family)
        if room.role(family, stem) == "pack"
    }
    made = {function.__module__.removeprefix(prefix) for function in room.packing}
    assert made == files | {"saccade.kernels.size_constant"}  # which is of no device


@rooms
def test_files_that_several_kernels_share_are_theirs(room):
    shared = {}
    for entry in room.listed:
        shared.setdefault(entry.module, set()).add(entry.name)
    assert {module: names for module, names in shared.items() if len(names) > 1} == room.several


@pytest.mark.parametrize("family", CUDA.families)
def test_files_of_triton_functions_are_imported_by_one_another_alone(family):
    for stem in CUDA.stems(family):
        if not stem.endswith("_code"):
            tree = ast.parse(CUDA.file(f"{family}.{stem}").read_text())
            found = {name for name in imports(CUDA, tree) if CUDA.file(name).exists()}
            assert not {name for name in found if name.endswith("_code")}, stem


def test_a_bare_noun_is_no_name():
    assert CPU.role("roi", "axis") is None and "axis" not in CPU.shared["roi"]
    assert CPU.role("roi", "align_gradient_bands") == "part"
    assert CPU.role("movement", "pack_element") == "pack"
    assert CPU.role("softmax", "sideways") is None
    assert CUDA.role("deform", "columns_phases") == "part"
    assert CUDA.role("attention", "attention_axes") is None


def test_functions_that_entries_name_count_as_used():
    assert "movement.walk_code" in needs(CUDA, "pointwise.chain")
    assert "roi.tables_code" in needs(CUDA, "roi.pool_gradient")
    assert "roi.tables_code" not in needs(CUDA, "roi.align")
