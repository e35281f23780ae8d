"""Fusions that pay on CPUs and GPUs: their operators, and the rewrites that layout asks for.

    attention, gathered_pointwise   the operators: shape rule, NumPy reference, work
    attention_parts                 what an attention is recognised by
    fuse_attention                  the rewrite; what it leaves alone, and why
    counted_walks                   operators that are told how much of their result is true
    cases                           for the tests of kernels

What pays on one device alone is in that device's room (`cpu/fusions`, `cuda/fusions`), as is what
decides where any of them is taken.
"""

from __future__ import annotations

from saccade.backends.fusions.attention import Attention
from saccade.backends.fusions.gathered_pointwise import GatheredPointwise, counted_axes

__all__ = ["Attention", "GatheredPointwise", "counted_axes"]
