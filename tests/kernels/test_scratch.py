"""Memory that is meant for each thread is each thread's own."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from saccade.kernels.base import Launch, Out, Scratch
from saccade.testing.kernels import check_scratch, compile_launch
from saccade.testing.targets import ZEN4


@dataclass(frozen=True)
class _Kernel:
    """Declares its scratch as it is told to."""

    how: str

    def emit(self, k, config):
        del config
        k.pointer("y")
        getattr(k, self.how)("space")
        with k.chunks(k.integer("chunks")):
            pass


@pytest.mark.parametrize(("how", "chunks"), [("scratch", 2), ("scratch", 1), ("pointer", 1)])
def test_what_one_thread_uses_is_its_own(how, chunks):
    launch = Launch(None, {"y": Out(0), "space": Scratch(64)}, {"chunks": chunks}, chunks)
    compiled = compile_launch(_Kernel(how), launch, ZEN4, False)
    assert compiled.parameters.pointers == ("y", "space")
    check_scratch(launch, compiled)


def test_what_threads_would_share_is_told():
    launch = Launch(None, {"y": Out(0), "space": Scratch(64)}, {"chunks": 2}, 2)
    with pytest.raises(AssertionError, match="'space'"):
        check_scratch(launch, compile_launch(_Kernel("pointer"), launch, ZEN4, False))
