"""Fusions that pay on GPUs alone: their operators, and the rewrites that layout asks for.

    attention        what the operator means: shape rule, NumPy reference, work
    fuse_attention   the rewrite, by the field's algebra; which nodes it leaves alone, and why
    decide           what layout knows: `CudaFusions`

Kernels import the operators from here, `decide` is the backend's. `opdefs` knows none of them: what
reads operators back by name is given `OPERATORS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from saccade.backends.cuda.fusions.attention import Attention
from saccade.ir import Op

__all__ = ["OPERATORS", "Attention"]

OPERATORS: Mapping[str, type[Op]] = MappingProxyType({"Attention": Attention})
"""The operators that GPUs add to `opdefs`, by family."""
