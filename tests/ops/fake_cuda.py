"""Operators on a GPU without one: tensors of the host, `FakeDriver`, Triton's interpreter."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from types import SimpleNamespace

import torch

from saccade.backends.cuda.codegen.compile import Cubin
from saccade.backends.cuda.cubins import CodeKey, Cubins
from saccade.backends.cuda.gpus import gpu
from saccade.backends.cuda.runtime.context import DeviceContext
from saccade.backends.cuda.runtime.driver import PlacedLaunch
from saccade.kernels.cuda import kernel_named
from saccade.ops._cuda_library import Compiler, CudaLibrary
from saccade.testing.fake_driver import FakeDriver

__all__ = ["FakeLibrary", "on_fake_gpu"]

if not torch.cuda.is_available():
    # Before a test of `torch.compile` imports Triton, which decides then what its functions are.
    os.environ["TRITON_INTERPRET"] = "1"


class _Interpreted(Compiler):
    """Gives code that is played in Triton's interpreter."""

    def __init__(self, driver: FakeDriver) -> None:
        super().__init__(gpu("h200"), Cubins(90, disk=False))
        self._driver = driver
        self._known: dict[CodeKey, Cubin] = {}

    def codes(self, keys: Iterable[CodeKey]) -> list[Cubin]:
        wanted = list(keys)
        for key in wanted:
            if key not in self._known:
                entry = kernel_named(key.kernel).entry(key.config)
                self._known[key] = self._driver.code(entry)
        return [self._known[key] for key in wanted]


class _PromptDriver(FakeDriver):
    """Does what it is given at once: the host's allocator knows of no stream that needs memory."""

    def launch_placed(self, launches: Sequence[PlacedLaunch]) -> None:
        super().launch_placed(launches)
        with self.current():
            self.synchronize()


class FakeLibrary(CudaLibrary):
    """The library of a fake GPU whose memory is the host's."""

    def __init__(self, memory: int = 1 << 24) -> None:
        driver = _PromptDriver(memory)
        super().__init__(DeviceContext(driver), _Interpreted(driver), torch.device("cpu"))

    def stream(self) -> int:
        return 0

    def take(self, nbytes: int) -> tuple[int, object]:
        block = torch.full((nbytes,), 0xA5, dtype=torch.uint8)
        return block.data_ptr(), block


def on_fake_gpu(monkeypatch, library: FakeLibrary) -> None:
    """From now on tensors of the host are taken for the fake GPU's."""
    # What stands for the number of threads says where tensors are.
    fake = SimpleNamespace(get_num_threads=lambda: library)
    monkeypatch.setattr("saccade.ops._execute.torch", fake)
