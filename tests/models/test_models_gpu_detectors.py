"""Whole detectors on a real GPU against onnxruntime.

python -m pytest -m gpu tests/models/test_models_gpu_detectors.py
"""

import numpy as np
import onnxruntime as ort
import pytest
from test_models_detectors import assert_same_detections, sharpened

import saccade
from saccade.backends.cuda.runtime.bindings import devices
from saccade.errors import DeviceError

try:
    devices()
except DeviceError:
    pytest.skip("there is no GPU", allow_module_level=True)

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("ssdlite320_mobilenet", [(3, 320, 320)]),
        ("fasterrcnn_resnet50_fpn", [(3, 90, 120), (3, 480, 640)]),
    ],
)
def test_detections_are_onnxruntimes(zoo, name, shapes):
    model = sharpened(zoo.path(name))
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    compiled = saccade.compile(model, device="cuda")
    for seed, shape in enumerate(shapes):
        x = np.random.default_rng(seed).random(shape, np.float32)
        theirs = dict(zip(names, session.run(None, {"input": x}), strict=True))
        first, second = (compiled.run({"input": x}) for _ in range(2))
        assert_same_detections({n: np.asarray(a) for n, a in first.items()}, theirs)
        for one in names:  # no result depends on which programs came first
            assert np.asarray(first[one]).tobytes() == np.asarray(second[one]).tobytes()
