"""The quicker interpreter of Triton gives what Triton's own gives: bits, types, refusals."""

from __future__ import annotations

import json
import os
import subprocess
import sys

CODE = """
import os
os.environ["TRITON_INTERPRET"] = "1"
import hashlib, itertools, json, operator, sys
import numpy as np
import triton.language as tl
from triton.runtime import interpreter
from triton.runtime.interpreter import TensorHandle, _get_np_dtype, interpreter_semantic as lang

if sys.argv[1] == "quick":
    from saccade.testing.quick_triton import quicken
    quicken()

interpreter._patch_lang(lambda: tl)  # the operators of tensors become the interpreter's

KINDS = (tl.int1, tl.int8, tl.uint8, tl.int16, tl.int32, tl.uint32, tl.int64, tl.float16,
         tl.bfloat16, tl.float32, tl.float64, tl.pointer_type(tl.float32))
SHAPES = ((), (1,), (4,), (4, 1), (1, 4), (2, 4), (2, 2, 4), (8,))
NUMBERS = (0, 1, -3, 300, 2**31, 2**40, True, 0.0, -0.0, 0.5, float("inf"), 1e300)
RANDOM = np.random.default_rng(0)

def tensor(kind, shape):
    data = RANDOM.integers(-9, 10, shape or (1,)).astype(np.int64)
    handle = TensorHandle(data.astype(_get_np_dtype(kind)), kind)
    return tl.tensor(handle, tl.block_type(kind, list(shape)) if shape else kind)

def told(operation, *operands):
    try:
        found = operation(*operands)
    except Exception as error:
        return [type(error).__name__, str(error)]
    several = found if isinstance(found, tuple) else (found,)
    return [[str(one.type), str(one.dtype), [size.value for size in one.shape], one.numel.value,
             str(one.handle.data.shape), one.handle.data.tobytes().hex()] for one in several]

BINARY = [lang.truediv, lang.floordiv, lang.mod, lang.shl, lang.broadcast_impl_value,
           lambda a, b: lang.minimum(a, b, tl.PropagateNan.NONE),
           lambda a, b: lang.where(lang.less_than(a, b), a, b),
           lambda a, b: lang.where(tensor(tl.int1, (2, 4)), a, b)]
BINARY += [operator.add, operator.sub, operator.mul, operator.and_, operator.or_, operator.xor,
           operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne]
BINARY += [lambda a, b, f=f: f(b, f(a, b)) for f in (operator.add, operator.lt, operator.and_)]
BINARY += [lambda a, b: lang.cast(operator.lt(a, b), tl.float32)]
ALL = slice(None)
INDICES = (None, ALL, (None, ALL), (ALL, None), (ALL, None, ALL), (None, None),
           (ALL, ALL, None, ALL), (None, slice(0, 1)), (ALL, 0), (None, ALL, ALL, ALL, None))
found, said = {}, set()
with np.errstate(all="ignore"):
    plain = [tensor(kind, shape) for kind in KINDS for shape in SHAPES]
    pairs = [(a, b) for a in plain[::3] for b in plain[1::7]]
    pairs += [(a, b) for a in plain[::5] for b in NUMBERS]
    pairs += [(b, a) for a in plain[::9] for b in NUMBERS]
    for turn in range(2):  # what was found out is used in the second
        for (i, (a, b)), (j, operation) in itertools.product(enumerate(pairs), enumerate(BINARY)):
            RANDOM = np.random.default_rng(j)
            what = told(operation, a, b)
            said.add(isinstance(what[0], str))
            found[f"{turn}:{i}:{j}"] = hashlib.sha256(json.dumps(what).encode()).hexdigest()[:12]
        for (i, a), kind in itertools.product(enumerate(plain), KINDS):
            found[f"{turn}:cast:{i}:{kind}"] = told(lang.cast, a, kind)
        for (i, a), (j, index) in itertools.product(enumerate(plain), enumerate(INDICES)):
            found[f"{turn}:index:{i}:{j}"] = told(lambda x: x[index], a)
assert said == {True, False}  # some are refused
print(json.dumps(found))
"""


def found(how):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CODE, how],
        capture_output=True, text=True, timeout=300, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_it_gives_what_tritons_own_gives():
    own, quick = found("own"), found("quick")
    assert len(own) > 15000 and own.keys() == quick.keys()
    assert [key for key in own if own[key] != quick[key]] == []
