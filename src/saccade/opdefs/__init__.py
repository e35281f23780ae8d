"""What every operator family means: attributes, shape rule, NumPy reference, flops and bytes."""

from saccade.opdefs._store_maps import DepthToSpaceStore, InterleaveStore, StoreMap
from saccade.opdefs.bits import BitCast
from saccade.opdefs.control import Branch, Loop
from saccade.opdefs.conv import Conv2d, ConvTranspose2d
from saccade.opdefs.deform import DeformConv, DeformConvGradient
from saccade.opdefs.grid_sample import GridSample
from saccade.opdefs.highest import Highest
from saccade.opdefs.matmul import MatMul
from saccade.opdefs.movement import Concat, Gather, GatherNd, Move, Pad
from saccade.opdefs.nms import Nms, NonMaxSuppression
from saccade.opdefs.norm import TiedNorm, VectorNorm, VectorNormGrad
from saccade.opdefs.normalize import GroupNorm, LayerNorm, LocalResponseNorm, LpNormalize
from saccade.opdefs.onnx_reference import OnnxReference
from saccade.opdefs.packed import PackedPlaces
from saccade.opdefs.pointwise import Pointwise
from saccade.opdefs.pool import Pool2d
from saccade.opdefs.ps_roi import PsRoi, PsRoiGradient
from saccade.opdefs.recurrent import Recurrent
from saccade.opdefs.reduce import ArgReduce, CumSum, Reduce, Softmax
from saccade.opdefs.resample import Resample
from saccade.opdefs.resize import Resize
from saccade.opdefs.roi_align import RoiAlign, RoiAlignGradient
from saccade.opdefs.roi_pool import RoiPool, RoiPoolGradient
from saccade.opdefs.scatter import ScatterRows
from saccade.opdefs.select import NonZero, TopK, Unique
from saccade.opdefs.size_constant import SizeConstant
from saccade.opdefs.weighted_samples import WeightedSamples

__all__ = [
    "ArgReduce",
    "BitCast",
    "Branch",
    "Concat",
    "Conv2d",
    "ConvTranspose2d",
    "CumSum",
    "DeformConv",
    "DeformConvGradient",
    "DepthToSpaceStore",
    "Gather",
    "GatherNd",
    "GridSample",
    "GroupNorm",
    "Highest",
    "InterleaveStore",
    "LayerNorm",
    "LocalResponseNorm",
    "Loop",
    "LpNormalize",
    "MatMul",
    "Move",
    "Nms",
    "NonMaxSuppression",
    "NonZero",
    "OnnxReference",
    "PackedPlaces",
    "Pad",
    "Pointwise",
    "Pool2d",
    "PsRoi",
    "PsRoiGradient",
    "Recurrent",
    "Reduce",
    "Resample",
    "Resize",
    "RoiAlign",
    "RoiAlignGradient",
    "RoiPool",
    "RoiPoolGradient",
    "ScatterRows",
    "SizeConstant",
    "Softmax",
    "StoreMap",
    "TiedNorm",
    "TopK",
    "Unique",
    "VectorNorm",
    "VectorNormGrad",
    "WeightedSamples",
]
