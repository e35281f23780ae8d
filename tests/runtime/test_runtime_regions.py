"""Vision operators between neighbours: convolutions, residuals, concatenations, several readers."""

import numpy as np
import onnx.parser
import onnxruntime
import pytest
from onnx import numpy_helper

import saccade
from saccade.errors import PlanError
from saccade.testing.compare import FP32_TOLERANCE, compare_outputs

BFLOAT16 = 8e-3  # twice what was measured

WEIGHTS = {
    "stem": (16, 3, 3, 3), "offsets": (36, 16, 3, 3), "masks": (18, 16, 3, 3),
    "taps": (16, 8, 3, 3), "bias": (16,), "mix": (8, 16, 1, 1), "wide": (16, 32, 1, 1),
    "deep": (12, 64, 1, 1), "head": (5, 16, 3, 3),
}  # fmt: skip
CONSTANTS = {"channel": np.array([1]), "pixels": np.array([2, 3]), "five": np.array([1])}

SAMPLED = """
    f0 = Conv<pads = [1,1,1,1]>(x, stem)
    f = Relu(f0)
    o = Conv<pads = [1,1,1,1]>(f, offsets)
    m0 = Conv<pads = [1,1,1,1]>(f, masks)
    m = Sigmoid(m0)
    d0 = DeformConv<pads = [1,1,1,1], group = 2, offset_group = 2>(f, taps, o, bias, m)
    d1 = Relu(d0)
    d = Add(d1, f)
    n = LpNormalization<axis = 1, p = 1>(d)
    both = Concat<axis = 1>(d, n)
    y = Conv(both, wide)
    l = ReduceL1<keepdims = 0>(y, pixels)
    r = ReduceL2(d, channel)
    z = Mul(r, d)
"""
POOLED = """
    f0 = Conv<pads = [1,1,1,1]>(x, stem)
    f = Relu(f0)
    a = RoiAlign<output_height = 4, output_width = 3, spatial_scale = 0.5>(f, b, i)
    h = Conv<pads = [1,1,1,1]>(a, head)
    i0 = Cast<to = 1>(i)
    i1 = Unsqueeze(i0, five)
    rois = Concat<axis = 1>(i1, b)
    m = MaxRoiPool<pooled_shape = [4,3], spatial_scale = 0.5>(f, rois)
    s = Add(a, m)
    both = Concat<axis = 1>(s, m)
    y = Conv(both, wide)
    n = LpNormalization(y)
    g = GlobalAveragePool(n)
"""
MOVED = """
    f0 = Conv<pads = [1,1,1,1]>(x, stem)
    f = Relu(f0)
    u = DepthToSpace<blocksize = 2, mode = "CRD">(f)
    v = DepthToSpace<blocksize = 2>(f)
    w = Sub(u, v)
    q = SpaceToDepth<blocksize = 4>(w)
    y = Conv(q, deep)
    l = ReduceL2<keepdims = 0>(w, pixels)
    k = Conv(f, mix)
    p = SpaceToDepth<blocksize = 2>(k)
"""
GRAPHS = {
    "sampled": (
        SAMPLED,
        "",
        "float[N,16,H,W] y, float[N,16] l, float[N,16,H,W] z, float[N,16,H,W] d",
    ),
    "pooled": (
        POOLED,
        ", float[K,F] b, int64[L] i",
        "float[K,5,4,3] h, float[K,16,4,3] y, float[K,16,1,1] g, float[N,16,H,W] f",
    ),
    "moved": (MOVED, "", "float[N,12,P,Q] y, float[N,4] l, float[N,32,R,S] p, float[N,4,T,U] w"),
}  # fmt: skip


def model_of(name):
    body, more, outputs = GRAPHS[name]
    opset = 19 if name == "sampled" else 18
    header = f'<ir_version: 8, opset_import: ["" : {opset}]>'
    model = onnx.parser.parse_model(
        f"{header} g (float[N,C,H,W] x{more}) => ({outputs}) {{ {body} }}"
    )
    rng = np.random.default_rng(3)
    for key, shape in WEIGHTS.items():
        scale = 1 / np.sqrt(np.prod(shape[1:]))
        array = (rng.normal(size=shape) * scale).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, key))
    model.graph.initializer.extend(numpy_helper.from_array(a, k) for k, a in CONSTANTS.items())
    return model


def feeds_of(name, n, h, w, count=7):
    rng = np.random.default_rng(n + h)
    feeds = {"x": rng.normal(size=(n, 3, h, w)).astype(np.float32)}
    if name == "pooled":
        corners = rng.uniform(-0.2, 1.0, (count, 2)) * 2 * np.array([w, h])
        sizes = rng.uniform(0, 1.5, (count, 2)) * np.array([w, h])
        feeds["b"] = np.concatenate([corners, corners + sizes], 1).astype(np.float32)
        feeds["i"] = rng.integers(0, n, count)
    return feeds


@pytest.fixture(scope="module")
def truth():
    sessions = {}

    def run(name, feeds):
        if name not in sessions:
            options = onnxruntime.SessionOptions()
            options.log_severity_level = 3
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
            sessions[name] = onnxruntime.InferenceSession(
                model_of(name).SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
        names = [output.name for output in sessions[name].get_outputs()]
        return dict(zip(names, sessions[name].run(names, feeds), strict=True))

    return run


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("name", GRAPHS)
def test_any_size_on_one_thread_and_on_two(name, precision, truth):
    one, two = (saccade.compile(model_of(name), threads=t, precision=precision) for t in (1, 2))
    for size in ((2, 12, 16), (3, 4, 20)):
        feeds = feeds_of(name, *size)
        found = two.run(feeds)
        bound = BFLOAT16 if precision == "bf16" else FP32_TOLERANCE
        wrong = [c for c in compare_outputs(found, truth(name, feeds)) if not c.within(bound)]
        assert not wrong, size
        for key, value in one.run(feeds).items():
            assert value.tobytes() == found[key].tobytes(), (size, key)


def test_every_access_is_inside(truth):
    feeds = feeds_of("sampled", 2, 12, 16)
    model = saccade.compile(model_of("sampled"), threads=1, checked=True)
    compared = compare_outputs(model.run(feeds), truth("sampled", feeds))
    assert all(c.within(FP32_TOLERANCE) for c in compared)


def test_images_that_are_not_there_and_boxes_of_any_contents(truth):
    model = saccade.compile(model_of("pooled"), threads=2, checked=True)
    feeds = feeds_of("pooled", 2, 12, 16)
    wanted = truth("pooled", feeds)
    feeds["i"] = feeds["i"].copy()
    feeds["i"][[1, 2]] = -1, 2**62
    feeds["b"] = feeds["b"].copy()
    feeds["b"][3:6] = [[np.nan] * 4, [-np.inf, 0, np.inf, 9], [3e38, -3e38, -3e38, 3e38]]
    found = model.run(feeds)
    assert np.isfinite(found["y"]).all()
    for name in ("h", "y"):
        assert np.allclose(found[name][[0, 6]], wanted[name][[0, 6]], rtol=1e-4, atol=1e-5), name


@pytest.mark.parametrize("size", [(7, 3), (6, 4)])
def test_operands_that_do_not_fit_each_other(size):
    model = saccade.compile(model_of("pooled"), threads=1)
    feeds = feeds_of("pooled", 2, 12, 16)
    feeds["b"] = np.zeros(size, np.float32)
    with pytest.raises(PlanError, match=f"with .*F={size[1]}.* RoiAlign"):
        model.run(feeds)


def test_channels_that_do_not_make_blocks():
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 13]> g (float[1,C,4,4] x) => (float[1,D,8,8] y) '
        "{ y = DepthToSpace<blocksize = 2>(x) }"
    )
    compiled = saccade.compile(model, threads=1)
    assert compiled(np.zeros((1, 8, 4, 4), np.float32)).shape == (1, 2, 8, 8)
    with pytest.raises(PlanError, match="with C=6"):
        compiled(np.zeros((1, 6, 4, 4), np.float32))
