"""How operators are done: one folder per family, an explicit list of all kernels."""

from saccade.kernels.base import CpuKernel
from saccade.kernels.conv2d.cpu_depthwise import CONV2D_DEPTHWISE
from saccade.kernels.conv2d.cpu_direct import CONV2D_DIRECT
from saccade.kernels.conv2d.cpu_expand import CONV2D_EXPAND
from saccade.kernels.conv2d.cpu_few_inputs import CONV2D_FEW_INPUTS
from saccade.kernels.conv2d.cpu_few_outputs import CONV2D_FEW_OUTPUTS
from saccade.kernels.conv2d.cpu_lattice import CONV2D_LATTICE
from saccade.kernels.conv2d.cpu_separable import CONV2D_SEPARABLE
from saccade.kernels.conv2d.cpu_winograd import CONV2D_WINOGRAD
from saccade.kernels.conv_transpose.cpu_direct import CONV_TRANSPOSE2D_DIRECT
from saccade.kernels.deform.forward import DEFORM_CONV2D
from saccade.kernels.deform.gradient import DEFORM_CONV2D_GRADIENT
from saccade.kernels.excite.direct import EXCITE
from saccade.kernels.matmul.cpu_direct import MATMUL_DIRECT
from saccade.kernels.movement.concat import CONCAT
from saccade.kernels.movement.gather import GATHER
from saccade.kernels.movement.move import COPY
from saccade.kernels.movement.pad import PAD
from saccade.kernels.nms.classes import NMS_CLASSES
from saccade.kernels.nms.direct import NMS
from saccade.kernels.norm.gradient import NORM_GRAD
from saccade.kernels.normalize.local_response import LOCAL_RESPONSE
from saccade.kernels.normalize.lp import LP_NORMALIZE
from saccade.kernels.normalize.statistics import GROUP_NORM, LAYER_NORM
from saccade.kernels.pointwise.chain import CHAIN
from saccade.kernels.pool.direct import POOL
from saccade.kernels.reduce.direct import NORM, REDUCE
from saccade.kernels.reduce.scan import ARG_REDUCE, CUMSUM
from saccade.kernels.resize.direct import RESIZE
from saccade.kernels.roi.align import ROI_ALIGN
from saccade.kernels.roi.align_gradient import ROI_ALIGN_GRADIENT
from saccade.kernels.roi.pool import ROI_POOL
from saccade.kernels.roi.pool_gradient import ROI_POOL_GRADIENT
from saccade.kernels.roi.ps import PS_ROI
from saccade.kernels.roi.ps_gradient import PS_ROI_GRADIENT
from saccade.kernels.softmax.direct import SOFTMAX

__all__ = ["CPU_KERNELS"]

CPU_KERNELS: tuple[CpuKernel, ...] = (
    CONV2D_DIRECT,
    CONV2D_WINOGRAD,
    CONV2D_LATTICE,
    CONV2D_DEPTHWISE,
    CONV2D_EXPAND,
    CONV2D_SEPARABLE,
    CONV2D_FEW_INPUTS,
    CONV2D_FEW_OUTPUTS,
    CONV_TRANSPOSE2D_DIRECT,
    DEFORM_CONV2D,
    DEFORM_CONV2D_GRADIENT,
    MATMUL_DIRECT,
    EXCITE,
    CHAIN,
    COPY,
    POOL,
    REDUCE,
    NORM,
    NORM_GRAD,
    CONCAT,
    PAD,
    GATHER,
    RESIZE,
    SOFTMAX,
    LAYER_NORM,
    GROUP_NORM,
    LOCAL_RESPONSE,
    LP_NORMALIZE,
    CUMSUM,
    ARG_REDUCE,
    NMS,
    NMS_CLASSES,
    ROI_ALIGN,
    ROI_ALIGN_GRADIENT,
    ROI_POOL,
    ROI_POOL_GRADIENT,
    PS_ROI,
    PS_ROI_GRADIENT,
)
