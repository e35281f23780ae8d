"""What a model takes on disk: constants that starts pack again, and the bound over all sizes."""

import gc
import json
import shutil
import struct
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from onnx import helper
from runtime_models import compiled, image, model_of, tensor, weights
from test_runtime_bundle import HOW, damage

from saccade.backends.cpu.store import keeping
from saccade.backends.cpu.store import packers as native
from saccade.backends.cpu.store.identity import machine_identity
from saccade.backends.cpu.store.saved import settle

pytestmark = pytest.mark.skipif(machine_identity() is None, reason="no bundles on this machine")

CHANNELS = 64
SIZES = [(1, 3, 40, 40), (1, 3, 9, 11), (1, 3, 57, 33), (2, 3, 21, 64), (1, 3, 80, 24)]
X = image(*SIZES[0])


def deep(layers=6):
    """Convolutions whose spectra are several times as large as their weights; 0.9 MB of these."""
    names = [f"v{i}" for i in range(layers)]
    nodes = [helper.make_node("Conv", ["x", "w"], ["v0"], pads=[1] * 4)]
    for i in range(layers - 1):
        nodes += [
            helper.make_node("Relu", [names[i]], [f"r{i}"]),
            helper.make_node("Conv", [f"r{i}", f"w{i}"], [names[i + 1]], pads=[1] * 4),
        ]
    nodes.append(helper.make_node("Conv", [names[-1], "last"], ["y"]))
    shape = (CHANNELS, CHANNELS, 3, 3)
    return model_of(
        nodes,
        [tensor("x", ["N", 3, "H", "W"])],
        [tensor("y", ["N", CHANNELS, "H", "W"])],
        [
            weights("w", (CHANNELS, 3, 3, 3)),
            *(weights(f"w{i}", shape) for i in range(layers - 1)),
            weights("last", (CHANNELS, CHANNELS, 1, 1)),
        ],
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A cache that a first start filled which had to leave out what it could, and its result."""
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("SACCADE_CACHE_DIR", str(folder))
        patched.setattr(keeping, "_MOST", 1.2)
        patched.setattr(keeping, "_LEAST", 0)
        y = compiled(deep(), threads=2)(X)
    gc.collect()
    return folder, y


@pytest.fixture
def first(cache, made):
    """The result of that start, whose cache this test has to itself."""
    shutil.copytree(made[0], cache, dirs_exist_ok=True)
    return made[1]


def on_disk(cache):
    """Bytes of a model's constants, packed or not."""
    return sum(path.stat().st_size for path in [*of(cache, "graph"), *of(cache, "weights")])


def of(cache, kind):
    return sorted(cache.rglob(f"*.{kind}"))


def header(path):
    """Of a program's entry."""
    content = path.read_bytes()
    content = content[content.index(b"\n") + 1 :]
    (length,) = struct.unpack_from("<Q", content)
    return json.loads(content[8 : 8 + length])


def found_ready(y, x=X, **options):
    """Whether a start finds all that it needs; the result is right in any case."""
    gc.collect()  # constants that a former program still holds would be taken
    model = compiled(deep(), **{"threads": 2, **options})
    assert np.array_equal(model(x), y)
    settle()
    return model._engine is None


def twice(model, x):
    """What comes again is kept."""
    y = model(x)
    assert np.array_equal(model(x), y)
    return y


def test_all_sizes_together_stay_within_the_bound(cache):
    model = compiled(deep(), threads=2)
    wanted = [twice(model, image(*size)) for size in SIZES]
    settle()
    raw = sum(array.nbytes for array in model._started().graph.constants.values())
    assert of(cache, "weights"), "there is space for some"
    assert raw < on_disk(cache) <= 2.2 * raw
    del model
    for size, y in zip(SIZES, wanted, strict=True):
        assert found_ready(y, image(*size))
    assert on_disk(cache) <= 2.2 * raw


def test_whatever_the_bound_no_bit_changes(cache, monkeypatch):
    wanted = compiled(deep(), threads=2, cache=False)(X)
    for most in (1.0, 1.1, 1.5, 2.2, 9.0):
        monkeypatch.setattr(keeping, "_MOST", most)
        monkeypatch.setattr(keeping, "_LEAST", 0)
        shutil.rmtree(cache / "bundles", ignore_errors=True)
        gc.collect()
        assert not found_ready(wanted)
        model = compiled(deep(), threads=2)
        raw = sum(array.nbytes for array in model._started().graph.constants.values())
        assert on_disk(cache) <= max(most, 1.01) * raw
        del model
        assert found_ready(wanted) or most == 1.0  # which may leave no space for what must be there


def test_where_all_fits_nothing_is_derived_or_compiled_for_it(cache, monkeypatch):
    monkeypatch.setattr(keeping, "_MOST", 100.0)
    monkeypatch.setattr(native, "_WORTH_COMPILING", 1 << 40)
    compiled(deep(), threads=2)(X)
    (program,) = of(cache, "program")
    assert "derived" not in header(program)
    assert not [path for path in of(cache, "bin") if path.name.startswith("pack_panels")]


def test_packers_are_compiled_if_programs_are_kept_only_with_them(cache, monkeypatch):
    monkeypatch.setattr(keeping, "_MOST", 1.2)
    monkeypatch.setattr(keeping, "_LEAST", 0)
    monkeypatch.setattr(native, "_WORTH_COMPILING", 1 << 40)
    y = compiled(deep(), threads=2)(X)
    assert [path for path in of(cache, "bin") if path.name.startswith("pack_panels")]
    assert found_ready(y)


def test_a_later_size_may_be_the_first_that_needs_packers(cache, monkeypatch):
    monkeypatch.setattr(keeping, "_MOST", 100.0)
    monkeypatch.setattr(native, "_WORTH_COMPILING", 1 << 40)
    model = compiled(deep(), threads=2)
    model(X)
    assert not [path for path in of(cache, "bin") if path.name.startswith("pack_panels")]
    for path in of(cache, "weights"):
        path.unlink()
    monkeypatch.setattr(keeping, "_MOST", 1.0)
    monkeypatch.setattr(keeping, "_LEAST", 1 << 14)
    other = image(*SIZES[1])
    y = twice(model, other)
    settle()
    del model
    assert found_ready(y, other)
    programs = [header(path) for path in of(cache, "program")]
    assert sum(1 for found in programs if "derived" in found) == 1


def test_checked_code_derives_too(cache, first):
    y = compiled(deep(), threads=2, checked=True)(X)
    assert found_ready(y, checked=True)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("kind", ["graph", "program", "weights"])
def test_damage_changes_no_answer_and_is_mended(cache, first, kind, how):
    assert found_ready(first)
    for path in of(cache, kind):
        damage(how, path)
    ready = found_ready(first)
    # What lies between constants, and constants that nothing is derived from, is not looked at.
    assert not ready or (kind == "graph" and how in ("middle", "last byte"))
    assert found_ready(first), "it was mended"


def test_a_constant_that_is_damaged_in_the_graph_is_noticed(cache, first):
    """Byte by byte over the graph's file: no answer ever changes."""
    (graph,) = of(cache, "graph")
    whole = graph.read_bytes()
    noticed = Counter()
    for at in range(len(whole) // 7, len(whole), len(whole) // 7):
        graph.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        noticed[found_ready(first)] += 1
    assert noticed[False] >= 4


def test_a_graph_of_another_key_or_place_is_not_used(cache, first):
    (graph,) = of(cache, "graph")
    content = graph.read_bytes()
    compiled(deep(layers=3), threads=2)(X)
    (other,) = (path for path in of(cache, "graph") if path != graph)
    graph.write_bytes(other.read_bytes())
    assert not found_ready(first)
    graph.write_bytes(content)
    assert found_ready(first)


def rewritten(bundles, path, change):
    """Seal an entry whose header is another one."""
    content = bundles.read(path.name)
    (length,) = struct.unpack_from("<Q", content)
    found = json.loads(content[8 : 8 + length])
    change(found)
    text = json.dumps(found).encode()
    bundles.write(path.name, struct.pack("<Q", len(text)) + text + content[8 + length :])


def drop_one(found):
    found["derived"]["constants"].pop()


def other_size(found):
    found["derived"]["constants"][0][2] += 4


def other_source(found):
    found["derived"]["constants"][0][1] = "nothing"


def no_packers(found):
    found["derived"]["packers"] = []


def no_symbol(found):
    found["derived"]["packers"][0][2] = "nothing"


def no_graph(found):
    del found["graph"]


def no_such_graph(found):
    found["graph"] = "nothing.graph"


def many_words(found):
    found["derived"]["words"] = 1 << 40


def text_of(found):
    found["derived"] = "constants"


def too_few_words(found):
    for constant in found["derived"]["constants"]:
        for row in constant[4]:
            row[2] = 1 << 30


CHANGES = (
    drop_one, other_size, other_source, no_packers, no_symbol, no_graph, no_such_graph, many_words,
    text_of, too_few_words,
)  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_records_that_do_not_fit_count_as_absent(cache, first, change):
    bundles = compiled(deep(), threads=2)._store
    (path,) = of(cache, "program")
    rewritten(bundles, path, lambda found: None)
    assert found_ready(first)
    rewritten(bundles, path, change)
    assert not found_ready(first)
    assert found_ready(first), "it was mended"


def test_without_room_for_what_cannot_be_derived_nothing_is_kept(cache, monkeypatch):
    def no_panels(*_):
        return ()

    monkeypatch.setattr("saccade.backends.cpu.store.packing.packing.panels_of", no_panels)
    monkeypatch.setattr(keeping, "_MOST", 1.1)
    monkeypatch.setattr(keeping, "_LEAST", 0)
    y = compiled(deep(), threads=2)(X)
    assert not of(cache, "program") and not of(cache, "weights")
    assert not found_ready(y)
    monkeypatch.undo()
    monkeypatch.setenv("SACCADE_CACHE_DIR", str(cache))
    assert not found_ready(y)
    assert found_ready(y)


def test_where_the_graph_cannot_be_kept_nothing_relies_on_it(cache, monkeypatch):
    monkeypatch.setattr(keeping, "_MOST", 1.5)
    monkeypatch.setattr(keeping, "_LEAST", 0)
    model = compiled(deep(), threads=2)
    model._started()
    for path in of(cache, "graph"):
        path.unlink()
    model(X)
    assert not of(cache, "program")


# -- other processes ----------------------------------------------------

SCRIPT = """
import json, sys
sys.path[:0] = {folders!r}
import numpy as np
import saccade
answers = []
model = saccade.compile({path!r}, threads=2)
for size in {sizes!r}:
    x = np.random.default_rng(sum(size)).standard_normal(size).astype(np.float32)
    answers.append(model(x).tobytes().hex())
    model(x)  # what comes again is kept
maps = open("/proc/self/maps").read()
print(json.dumps([answers, model._engine is None, sorted(sys.modules), ".graph" in maps]))
"""
NEEDED = {
    "saccade.kernels.cpu",
    "saccade.kernels.cpu.pack",
    "saccade.kernels.cpu.pack.panels_config",
}


def start(path, sizes):
    folders = [str(Path(__file__).parent)]
    script = SCRIPT.format(folders=folders, path=str(path), sizes=sizes)
    return subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)


def answer(process):
    found = json.loads(process.communicate(timeout=300)[0])
    assert process.returncode == 0
    return found


def test_processes_share_a_folder_and_derive_with_little(cache, tmp_path):
    path = tmp_path / "deep.onnx"
    path.write_bytes(deep().SerializeToString())
    sizes = SIZES[:3]
    orders = (sizes, sizes[::-1], sizes)
    told = [answer(p) for p in [start(path, order) for order in orders]]
    answers = told[0][0]
    assert told[1][0][::-1] == told[2][0] == answers
    assert any("derived" in header(program) for program in of(cache, "program"))
    for size, wanted in zip(sizes, answers, strict=True):
        found, ready, modules, mapped = answer(start(path, [size]))
        assert found == [wanted] and ready
        assert not mapped, "what constants were made of is let go"
        loaded = {name.partition(".")[0] for name in modules}
        assert not loaded & {"onnx", "onnx_ir", "llvmlite", "google", "subprocess", "concurrent"}
        rooms = {name.split(".")[1] for name in modules if name.startswith("saccade.")}
        assert not rooms & {"engine", "lowered", "passes", "layout", "plan", "opdefs", "ir"}
        kernels = {name for name in modules if name.startswith("saccade.kernels.cpu")}
        assert kernels in (set(), NEEDED)
    graph, total = of(cache, "graph")[0].stat().st_size, on_disk(cache)
    assert total <= 2.2 * graph and not list(cache.rglob(".new-*"))


def test_sizes_that_come_but_once_are_not_written(cache):
    """The first program of a process is; of the others those that are asked for again."""
    model = compiled(deep(), threads=2)
    for size in SIZES[:3]:
        model(image(*size))
    settle()
    assert len(of(cache, "program")) == 1
    model(image(*SIZES[1]))
    settle()
    assert len(of(cache, "program")) == 2
    model(image(*SIZES[1]))
    settle()
    assert len(of(cache, "program")) == 2
