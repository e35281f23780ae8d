"""Fusions that pay on the CPU alone: their operators, and the rewrites that layout asks for.

    expand, separable, excite     what the operators mean: shape rules, NumPy references, work
    fuse_expand, fuse_separable,  the rewrites, by the field's algebra; which nodes they leave alone
    fuse_excite
    decide                        which of them pay at which sizes: `CpuFusions`, what layout knows

Kernels import the operators from here, `decide` is the backend's. `opdefs` knows none of them: what
reads operators back by name is given `OPERATORS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from saccade.backends.cpu.fusions.excite import Excite, RowSums
from saccade.backends.cpu.fusions.expand import ExpandDepthwise
from saccade.backends.cpu.fusions.separable import SeparableConv2d
from saccade.backends.fusions import Attention, GatheredPointwise
from saccade.ir import Op

__all__ = ["OPERATORS", "Excite", "ExpandDepthwise", "RowSums", "SeparableConv2d"]

_KINDS = (Attention, Excite, ExpandDepthwise, GatheredPointwise, RowSums, SeparableConv2d)
OPERATORS: Mapping[str, type[Op]] = MappingProxyType({kind.__name__: kind for kind in _KINDS})
"""The operators that the CPU adds to `opdefs`, by family."""
