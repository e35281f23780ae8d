"""Forks while operators, and new sizes of a model, are compiled: workers of loaders, and others."""

from __future__ import annotations

import numpy as np
import pytest
from runtime_models import convolutions
from runtime_processes import LIMIT, answers

pytest.importorskip("torch")

# What every process computes: each operator for the first time, and a model at new sizes.
WORK = """
import faulthandler, hashlib, os, sys, threading, time, traceback, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12: forks with threads
import numpy as np
import saccade
from saccade import ops
import torch

torch.set_num_threads(2)
FILE = os.environ["MODEL"]
SIZES = (9, 12, 17, 30)
random = np.random.default_rng(0)
x, boxes, offsets, weight = (
    torch.from_numpy(array.astype(np.float32))
    for array in (
        random.standard_normal((2, 8, 12, 14)),
        np.array([[0, 1, 1, 9, 8], [1, 0, 0, 5, 7]]),
        random.standard_normal((2, 18, 10, 12)),
        random.standard_normal((4, 8, 3, 3)),
    )
)

# No gradients: PyTorch's engine has locks of its own, which a fork leaves held.
OPERATORS = (
    lambda: ops.pixel_shuffle(x, 2),
    lambda: ops.roi_align(x, boxes, (3, 3)),
    lambda: ops.deform_conv2d(x, offsets, weight),
    lambda: ops.nms(boxes[:, 1:], torch.tensor([0.5, 0.75]), 0.1),
    lambda: ops.vector_norm(x, dim=1),
    lambda: ops.roi_pool(x, boxes, (3, 3)),
)

def of_operator(i):
    return OPERATORS[i]().numpy().tobytes()

def of_size(model, i):
    return model(np.full((1, 3, SIZES[i], 2 + SIZES[i]), 0.5, np.float32)).tobytes()

def answer(model):
    parts = [of_operator(i) for i in range(len(OPERATORS))]
    parts += [of_size(model, i) for i in range(len(SIZES))]
    return hashlib.sha256(b"".join(parts)).hexdigest()

def work_beside(model):
    threads = [
        threading.Thread(target=lambda: [of_operator(i) for i in range(len(OPERATORS))]),
        threading.Thread(target=lambda: [of_size(model, i) for i in range(len(SIZES))]),
    ]
    for thread in threads:
        thread.start()
    return threads

def compiled(*, first):
    model = saccade.compile(FILE, threads=2)
    if first:  # so that what is compiled beside is another size
        model(np.full((1, 3, 8, 8), 0.5, np.float32))
    return model
"""

FORKS = """
def in_child(model):
    faulthandler.dump_traceback_later({limit}, exit=True)
    try:
        return 0 if answer(model) == sys.argv[1] else 3
    except BaseException:
        traceback.print_exc()
        return 2

model = compiled(first={first})
began = time.perf_counter()
threads = work_beside(model)
children = []
for offset in {offsets}:
    time.sleep(max(0.0, began + offset - time.perf_counter()))
    child = os.fork()
    if not child:
        os._exit(in_child(model))
    children.append(child)
statuses = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
for thread in threads:
    thread.join()
print(*statuses, answer(model) == sys.argv[1])
"""

POOL = """
import multiprocessing

def task(_):
    faulthandler.dump_traceback_later({limit}, exit=True)
    return answer(model)

if __name__ == "__main__":
    model = compiled(first=True)
    threads = work_beside(model)
    with multiprocessing.get_context("fork").Pool(3) as pool:
        print({{*pool.map(task, range(6), chunksize=1)}} == {{sys.argv[1]}}, end=" ")
    for thread in threads:
        thread.join()
    print(answer(model) == sys.argv[1])
"""

LOADER = """
from torch.utils.data import DataLoader, Dataset

class Images(Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, i):
        faulthandler.dump_traceback_later({limit}, exit=True)
        found = of_operator(i) if i < len(OPERATORS) else of_size(model, i % len(SIZES))
        return i, hashlib.sha256(found).hexdigest()

if __name__ == "__main__":
    warnings.filterwarnings("ignore", "This DataLoader will create")  # more workers than cores
    model = compiled(first=False)
    images = Images()
    threads = work_beside(model)
    loader = DataLoader(images, num_workers=3, multiprocessing_context="fork", batch_size=None)
    of_workers = [sorted(map(tuple, loader)) for _ in range(2)]  # each time with workers of its own
    for thread in threads:
        thread.join()
    here = [images[i] for i in range(len(images))]
    print(*(found == here for found in of_workers), answer(model) == sys.argv[1])
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model.onnx"
    path.write_bytes(convolutions().SerializeToString())
    return str(path)


@pytest.fixture(scope="module")
def wanted(file, tmp_path_factory):
    """What a process says that no fork meets."""
    script = WORK + "print(answer(compiled(first=True)))"
    return answers(script, tmp_path_factory.mktemp("cache"), MODEL=file).strip()


def said(text, file, wanted, folder):
    """What a script says whose main module workers may want to import."""
    path = folder / "main.py"
    path.write_text(WORK + text)
    return answers(path, folder / "cache", wanted, MODEL=file)


@pytest.mark.parametrize(
    ("seed", "first"), [(0, True), (1, False)], ids=["another size", "the first size"]
)
def test_a_fork_while_operators_and_sizes_are_compiled(seed, first, file, wanted, tmp_path):
    offsets = sorted(np.random.default_rng(seed).uniform(0, 1.5, 3).tolist())
    text = FORKS.format(limit=LIMIT - 60, offsets=offsets, first=first)
    assert said(text, file, wanted, tmp_path) == "0 0 0 True\n"


def test_a_pool_of_forks_meanwhile(file, wanted, tmp_path):
    assert said(POOL.format(limit=LIMIT - 60), file, wanted, tmp_path) == "True True\n"


def test_the_workers_of_a_loader_meanwhile(file, wanted, tmp_path):
    told = said(LOADER.format(limit=LIMIT - 60), file, wanted, tmp_path)
    assert told == "True True True\n"
