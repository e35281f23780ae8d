"""Importers of what optimisers and exporters write that is not ONNX's own.

`com.microsoft` is ONNX Runtime's: its optimiser fuses standard operators into these, and its
quantiser writes what QOperator files are made of. `mmcv` and `mmdeploy` are OpenMMLab's. What tools
write into ONNX's own domain, older than the standard's or unknown to it, is in `schemas.ADDED` too.
"""

from __future__ import annotations

from saccade.frontend.onnx.call import Importer
from saccade.frontend.onnx.importers.contrib import (
    activations,
    attention,
    fused,
    mmcv,
    norms,
    products,
    quantised,
    standard,
    tensorrt,
)

__all__ = ["ADDED", "OTHER_DOMAINS"]

ADDED: dict[str, Importer] = {
    "EfficientNMS_TRT": tensorrt.import_efficient_nms,
    "LayerNormalization": norms.import_older_layer_normalization,
    "SimplifiedLayerNormalization": norms.import_simplified_layer_normalization,
}
"""Importers of operators that tools write into ONNX's own domain."""

_MICROSOFT: dict[str, Importer] = {
    "Attention": attention.import_attention,
    "BiasAdd": activations.import_bias_add,
    "BiasGelu": activations.import_bias_gelu,
    "BiasSplitGelu": activations.import_bias_split_gelu,
    "DequantizeLinear": standard.import_dequantize_again,
    "DynamicQuantizeLSTM": products.import_dynamic_quantize_lstm,
    "DynamicQuantizeMatMul": products.import_dynamic_quantize_matmul,
    "EmbedLayerNormalization": norms.import_embed_layer_normalization,
    "ExpandDims": standard.import_expand_dims,
    "FastGelu": activations.import_fast_gelu,
    "FusedConv": fused.import_fused_conv,
    "FusedGemm": fused.import_fused_gemm,
    "FusedMatMul": fused.import_fused_matmul,
    "FusedMatMulActivation": fused.import_fused_matmul_activation,
    "GatherND": standard.import_gather_nd_again,
    "Gelu": activations.import_gelu,
    "GemmFastGelu": activations.import_gemm_fast_gelu,
    "GridSample": standard.import_grid_sample_again,
    "GroupNorm": norms.import_group_norm,
    "MatMulIntegerToFloat": products.import_matmul_integer_to_float,
    "MatMulNBits": products.import_matmul_n_bits,
    "MultiHeadAttention": attention.import_multi_head_attention,
    "NhwcConv": fused.import_nhwc_conv,
    "NhwcFusedConv": fused.import_nhwc_fused_conv,
    "NhwcMaxPool": fused.import_nhwc_max_pool,
    "Pad": standard.import_pad_again,
    "QGemm": products.import_qgemm,
    "QLinearAdd": quantised.import_qlinear_add,
    "QLinearAveragePool": quantised.import_qlinear_average_pool,
    "QLinearConcat": quantised.import_qlinear_concat,
    "QLinearConv": quantised.import_qlinear_conv_of_either_order,
    "QLinearGlobalAveragePool": quantised.import_qlinear_global_average_pool,
    "QLinearLeakyRelu": quantised.import_qlinear_leaky_relu,
    "QLinearMul": quantised.import_qlinear_mul,
    "QLinearReduceMean": quantised.import_qlinear_reduce_mean,
    "QLinearSigmoid": quantised.import_qlinear_sigmoid,
    "QLinearSoftmax": quantised.import_qlinear_softmax,
    "QLinearWhere": quantised.import_qlinear_where,
    "QuantizeLinear": standard.import_quantize_again,
    "QuickGelu": activations.import_quick_gelu,
    "Range": standard.import_range_again,
    "SkipGroupNorm": norms.import_skip_group_norm,
    "SkipLayerNormalization": norms.import_skip_layer_normalization,
    "SkipSimplifiedLayerNormalization": norms.import_skip_simplified_layer_normalization,
    "TransposeMatMul": fused.import_transpose_matmul,
    "Trilu": standard.import_trilu_again,
}

_OPENMMLAB: dict[str, Importer] = {
    "MMCVDeformConv2d": mmcv.import_deform_conv_1,
    "MMCVModulatedDeformConv2d": mmcv.import_modulated_deform_conv,
    "MMCVMultiScaleDeformableAttention": mmcv.import_multi_scale_attention,
    "MMCVRoiAlign": mmcv.import_mmcv_roi_align,
    "MSDeformAttn": mmcv.import_multi_scale_attention,
    "MultiScaleDeformableAttn": mmcv.import_multi_scale_attention,
    "NonMaxSuppression": mmcv.import_mmcv_nms,
    "grid_sampler": mmcv.import_grid_sampler,
}

OTHER_DOMAINS: dict[tuple[str, str], Importer] = {
    **{("com.microsoft", name): importer for name, importer in _MICROSOFT.items()},
    **{(d, name): importer for d in ("mmcv", "mmdeploy") for name, importer in _OPENMMLAB.items()},
    ("TRT", "EfficientNMS_TRT"): tensorrt.import_efficient_nms,
}
"""Importers by domain and operator."""
