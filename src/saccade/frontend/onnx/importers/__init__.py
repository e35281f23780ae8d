"""Which function imports which ONNX operator."""

from __future__ import annotations

from saccade.frontend.onnx.call import Importer
from saccade.frontend.onnx.importers import (
    convolution,
    deform,
    indexing,
    matrix,
    movement,
    normalization,
    pooling,
    quantisation,
    reduction,
    regions,
    resize,
    selection,
    shape,
)
from saccade.frontend.onnx.importers.pointwise import POINTWISE
from saccade.frontend.onnx.importers.shape import with_contents

__all__ = ["IMPORTERS"]

_DEFAULT: dict[str, Importer] = {
    **POINTWISE,
    **reduction.REDUCTIONS,
    "ArgMax": reduction.import_arg_max,
    "ArgMin": reduction.import_arg_min,
    "AveragePool": pooling.import_average_pool,
    "BatchNormalization": normalization.import_batch_normalization,
    "Concat": with_contents("Concat", movement.import_concat),
    "Constant": shape.import_constant,
    "ConstantOfShape": shape.import_constant_of_shape,
    "Conv": convolution.import_conv,
    "ConvInteger": quantisation.import_conv_integer,
    "ConvTranspose": convolution.import_conv_transpose,
    "CumSum": reduction.import_cumsum,
    "DeformConv": deform.import_deform_conv,
    "DepthToSpace": movement.import_depth_to_space,
    "DequantizeLinear": quantisation.import_dequantize_linear,
    "Expand": with_contents("Expand", movement.import_expand),
    "EyeLike": selection.import_eye_like,
    "Flatten": movement.import_flatten,
    "Gather": indexing.import_gather,
    "GatherElements": selection.import_gather_elements,
    "GatherND": indexing.import_gather_nd,
    "Gemm": matrix.import_gemm,
    "GlobalAveragePool": pooling.import_global_average_pool,
    "GlobalMaxPool": pooling.import_global_max_pool,
    "GroupNormalization": normalization.import_group_normalization,
    "Hardmax": selection.import_hardmax,
    "InstanceNormalization": normalization.import_instance_normalization,
    "IsInf": selection.import_is_inf,
    "LRN": normalization.import_lrn,
    "LayerNormalization": normalization.import_layer_normalization,
    "LogSoftmax": reduction.import_log_softmax,
    "LpNormalization": normalization.import_lp_normalization,
    "MatMul": matrix.import_matmul,
    "MatMulInteger": quantisation.import_matmul_integer,
    "MaxPool": pooling.import_max_pool,
    "MaxRoiPool": pooling.import_max_roi_pool,
    "NonMaxSuppression": regions.import_non_max_suppression,
    "OneHot": selection.import_one_hot,
    "Pad": movement.import_pad,
    "QLinearConv": quantisation.import_qlinear_conv,
    "QLinearMatMul": quantisation.import_qlinear_matmul,
    "QuantizeLinear": quantisation.import_quantize_linear,
    "Range": shape.import_range,
    "ReduceProd": with_contents("ReduceProd", reduction.REDUCTIONS["ReduceProd"]),
    "Reshape": with_contents("Reshape", movement.import_reshape),
    "Resize": resize.import_resize,
    "RoiAlign": regions.import_roi_align,
    "Shape": shape.import_shape,
    "Size": shape.import_size,
    "Slice": indexing.import_slice,
    "Softmax": reduction.import_softmax,
    "SpaceToDepth": movement.import_space_to_depth,
    "Split": with_contents("Split", movement.import_split),
    "Squeeze": with_contents("Squeeze", movement.import_squeeze),
    "Tile": movement.import_tile,
    "Transpose": movement.import_transpose,
    "Trilu": selection.import_trilu,
    "Unsqueeze": with_contents("Unsqueeze", movement.import_unsqueeze),
    "Upsample": resize.import_upsample,
}

IMPORTERS: dict[tuple[str, str], Importer] = {
    **{("", name): importer for name, importer in _DEFAULT.items()},
}
"""Importers by domain and operator; ONNX's own domain is the empty one."""
