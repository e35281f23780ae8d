"""Forks at any moment of a first compilation: the child compiles and runs, and ends cleanly."""

from __future__ import annotations

import numpy as np
import pytest
from runtime_models import convolutions, image
from runtime_processes import LIMIT, answers

import saccade


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model.onnx"
    path.write_bytes(convolutions().SerializeToString())
    return path


X = image(1, 3, 14, 14)


@pytest.fixture(scope="module")
def wanted(file):
    return saccade.compile(file, threads=1, cache=False)(X)


# Every module's finder is asked while the importing thread holds what forks wait for, or not.
UNGUARDED = """
import sys
import numpy as np
import saccade
from saccade.locks import forkless
{before}
class Watch:
    @staticmethod
    def find_spec(name, path, target=None):
        frame, names = sys._getframe(1), set()
        while frame is not None:
            names.add(frame.f_code.co_name)
            frame = frame.f_back
        guarded = forkless._is_owned() or name in sys.builtin_module_names
        if not guarded and "_find_and_load" in names:
            print(name)
sys.meta_path.insert(0, Watch)
{then}
"""
MODEL = "x = np.ones((1, 3, 14, 14), np.float32)\nmodel = saccade.compile({source})\nmodel(x)\n"


@pytest.mark.parametrize(
    ("before", "then"),
    [
        ("", MODEL.format(source="{file!r}")),
        ("", MODEL.format(source="{file!r}, cache=False")),
        ("", MODEL.format(source="{file!r}, device='reference'")),
        ("source = open({file!r}, 'rb').read()", MODEL.format(source="source")),
        ("", MODEL.format(source="{file!r}") + "model.profile(x); str(model.plan(x.shape))"),
        ("", MODEL.format(source="{file!r}") + "model.graph(model.stages[0])"),
        ("", MODEL.format(source="{file!r}") + "model.tune(x, seconds=0.1)"),
        ("", MODEL.format(source="{file!r}") * 2),
    ],
    ids=["file", "no cache", "reference", "bytes", "profile", "trace", "tune", "twice"],
)
def test_no_fork_can_cut_an_import_of_ours_in_two(before, then, file, tmp_path):
    script = UNGUARDED.format(before=before, then=then).format(file=str(file))
    assert answers(script, tmp_path) == ""


def test_neither_at_a_warm_start(file, tmp_path):
    first = "import numpy as np, saccade\n" + MODEL.format(source="{file!r}")
    answers(first.format(file=str(file)), tmp_path)
    script = UNGUARDED.format(before="", then=MODEL.format(source="{file!r}"))
    assert answers(script.format(file=str(file)), tmp_path) == ""


FORKS = """
import os, random, signal, sys, threading, time, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12: forks with threads
import numpy as np
import saccade
x, wanted = (np.load(name) for name in {arrays!r})
models, done = [], []

def compile_and_run():
    model = saccade.compile({file!r}, threads=2)
    models.append(model)
    assert np.allclose(model(x), wanted, atol=1e-4)
    done.append(True)

def in_child():
    signal.alarm({limit})
    for model in models:  # whose engine, or program, may have been in the making
        assert np.allclose(model(x), wanted, atol=1e-4)
    again = saccade.compile({file!r}, threads=2)
    assert np.allclose(again(x), wanted, atol=1e-4)
    assert again(np.ones((2, 3, 9, 9), np.float32)).shape == (2, 5, 9, 9)

compiling = threading.Thread(target=compile_and_run)
began = time.perf_counter()
compiling.start()
children = []
for offset in {offsets!r}:
    time.sleep(max(0.0, began + offset - time.perf_counter()))
    child = os.fork()
    if not child:
        in_child()
        sys.exit(0)  # as a process ends that has not done anything special
    children.append(child)
statuses = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
compiling.join()
assert done
print(*statuses)
"""


@pytest.mark.parametrize("seed", range(2))
def test_a_fork_while_the_first_model_is_compiled(seed, file, wanted, tmp_path):
    arrays = [str(tmp_path / "x.npy"), str(tmp_path / "wanted.npy")]
    for path, array in zip(arrays, (X, wanted), strict=True):
        np.save(path, array)
    offsets = sorted(np.random.default_rng(seed).uniform(0, 1.5, 2).tolist())
    script = FORKS.format(arrays=arrays, file=str(file), limit=LIMIT - 60, offsets=offsets)
    assert answers(script, tmp_path).split() == ["0", "0"]


POOL = """
import multiprocessing, sys, threading, warnings
warnings.simplefilter("ignore", DeprecationWarning)
import numpy as np
import saccade

def result(size):
    return saccade.compile({file!r}, threads=1)(np.ones((1, 3, size, size), np.float32)).shape

if __name__ == "__main__":
    others = [threading.Thread(target=result, args=(20 + i,)) for i in range(2)]
    for other in others:
        other.start()
    with multiprocessing.get_context({method!r}).Pool(2) as pool:
        print(pool.map(result, [9, 10, 11, 12]) == [(1, 5, n, n) for n in (9, 10, 11, 12)])
    for other in others:
        other.join()
"""


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_workers_compile_while_their_parent_does(method, file, tmp_path):
    script = tmp_path / "main.py"
    script.write_text(POOL.format(file=str(file), method=method))
    assert answers(script, tmp_path) == "True\n"


LEFT = """
import os, sys, threading, time, warnings
warnings.simplefilter("ignore", DeprecationWarning)
sys.path.insert(0, {folder!r})
from runtime_calls import double
from saccade.processes import Processes
stop = []

def keep_starting():
    while not stop:
        processes = Processes()
        assert processes.map(double, [1, 2]) == [2, 4]
        processes.close()

def sockets():
    found = []
    for number in os.listdir("/proc/self/fd"):
        try:
            found += ["socket" in os.readlink("/proc/self/fd/" + number)]
        except OSError:
            pass
    return sum(found)

starting = threading.Thread(target=keep_starting)
starting.start()
left = 0
for _ in range(150):
    time.sleep(0.002)
    child = os.fork()
    if not child:
        os._exit(min(sockets(), 99))
    left += os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
stop.append(True)
starting.join()
print(left)
"""


def test_a_forked_child_keeps_no_socket_of_its_parents_children(tmp_path):
    """Whose end would otherwise never be noticed while the child lives."""
    (tmp_path / "runtime_calls.py").write_text("def double(number):\n    return 2 * number\n")
    assert answers(LEFT.format(folder=str(tmp_path)), tmp_path).strip() == "0"
