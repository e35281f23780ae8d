"""Every operator has a rule, or is known to need the whole image, or no image's rows."""

from __future__ import annotations

from saccade import opdefs
from saccade.ir import Op
from saccade.tiling.rules import RULES

WHOLE = {
    "Branch": "bodies are not followed",
    "DeformConv": "offsets may lead anywhere",
    "DeformConvGradient": "the same",
    "GatherNd": "indices may lead anywhere",
    "GridSample": "its grid may lead anywhere",
    "GroupNorm": "statistics of the whole image",
    "Highest": "decides sizes, before anything runs",
    "Loop": "bodies are not followed",
    "Nms": "boxes",
    "NonMaxSuppression": "boxes",
    "NonZero": "numbers elements of the whole",
    "OnnxReference": "may be anything",
    "PackedPlaces": "numbers elements of the whole",
    "PsRoi": "boxes",
    "PsRoiGradient": "boxes",
    "Recurrent": "states run along an axis",
    "RoiAlign": "boxes",
    "RoiAlignGradient": "boxes",
    "RoiPool": "boxes",
    "RoiPoolGradient": "boxes",
    "ScatterRows": "indices may lead anywhere",
    "SizeConstant": "follows from the sizes of the whole",
    "TiedNorm": "has two results",
    "TopK": "has two results",
    "Unique": "compares elements of the whole",
    "VectorNorm": "an operator of PyTorch alone",
    "VectorNormGrad": "an operator of PyTorch alone",
    "WeightedSamples": "their places may be anywhere",
}


def test_every_operator_is_sorted():
    named = {name: getattr(opdefs, name) for name in opdefs.__all__}
    operators = {
        name for name, one in named.items() if isinstance(one, type) and issubclass(one, Op)
    }
    ruled = {kind.__name__ for kind in RULES}
    assert not ruled & set(WHOLE)
    assert ruled | set(WHOLE) == operators
