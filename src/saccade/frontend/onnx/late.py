"""Modules that are only executed once something in them is asked for."""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

__all__ = ["put_off_sympy"]


def put_off_sympy() -> None:
    """Let `onnx_ir` start without `sympy`, half of its import, until it computes with a named dim.

    Saccade has dims of its own and never makes it do that. What `onnx_ir` looks up in `sympy` at
    once is in one small module, which is put off with it. Where a version keeps it elsewhere,
    `sympy` is imported as usual. For processes with one thread.
    """
    package = importlib.util.find_spec("onnx_ir")
    places = package.submodule_search_locations if package else None
    # An `onnx_ir` that is there has its `sympy` already.
    if "onnx_ir" in sys.modules or places is None:
        return
    name = "onnx_ir._symbolic_shapes"
    for found in (importlib.util.find_spec("sympy"), PathFinder.find_spec(name, list(places))):
        if found is not None and found.name not in sys.modules:
            _put_off(found)


class _Late(ModuleType):
    """A module that is executed when an attribute is missing in it.

    `importlib.util.LazyLoader` looks alike, but executes modules when they are imported again.
    """

    def __getattr__(self, name: str) -> object:
        spec = self.__spec__
        assert spec is not None and spec.loader is not None
        # First: the module's code may look up what it lacks, and must not run a second time.
        _make_plain(self)
        spec.loader.exec_module(self)
        found: object = getattr(self, name)
        return found


def _make_plain(module: ModuleType) -> None:
    """From now on it looks up attributes as any module."""
    module.__class__ = ModuleType


def _put_off(spec: ModuleSpec) -> None:
    module = importlib.util.module_from_spec(spec)
    module.__class__ = _Late
    # An import finds it here, and executes nothing.
    sys.modules[spec.name] = module
