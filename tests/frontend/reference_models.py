"""Models that ONNX's reference implementation runs parts of, held to all of it."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator

import saccade
from saccade.opdefs import OnnxReference

RNG = np.random.default_rng(5)


def model_of(nodes, inputs, outputs, *, initializers=(), opset=18):
    """A model whose sides are (name, element type, shape), or value infos."""
    sides = [
        [
            s if isinstance(s, onnx.ValueInfoProto) else helper.make_tensor_value_info(*s)
            for s in side
        ]
        for side in (inputs, outputs)
    ]
    graph = helper.make_graph(nodes, "g", *sides, list(initializers))
    sets = [helper.make_opsetid("", opset), helper.make_opsetid("ai.onnx.ml", 4)]
    sets.append(helper.make_opsetid("org.example", 1))
    return helper.make_model(graph, opset_imports=sets, ir_version=10)


def floats(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def compiled(model, **options):
    return saccade.compile(model, threads=1, allow_reference=True, **options)


def agrees(model, feeds, *, compile_with=None, exact=True):
    """Run with the option and by the reference evaluator; gives the compiled model."""
    made = compiled(model, **(compile_with or {}))
    expected = ReferenceEvaluator(model).run(None, feeds)
    for found, wanted in zip(made.run(feeds).values(), expected, strict=True):
        same(found, wanted, exact=exact)
    return made


def same(found, wanted, *, exact):
    if isinstance(wanted, list):
        assert isinstance(found, list) and len(found) == len(wanted)
        for one, other in zip(found, wanted, strict=True):
            same(one, other, exact=exact)
        return
    found, wanted = np.asarray(found), np.asarray(wanted)
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    if exact or found.dtype.hasobject:
        np.testing.assert_array_equal(found, wanted)
    else:
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def steps_of(model, **shapes):
    return [s.op.title for s in model.plan(**shapes).steps if isinstance(s.op, OnnxReference)]
