"""A plugin of pytest: tests that want a GPU get one that is made up (`python -m pytest -p …`).

Kernels run in Triton's interpreter. The launch that `LOST_AT` counts to takes the GPU with it.
"""

import os

from saccade.backends.cuda.codegen.checked import CheckedCubin
from saccade.backends.cuda.runtime import bindings
from saccade.kernels.cuda import kernel_named
from saccade.testing import gpu_cases
from saccade.testing.fake_driver import FakeDriver
from saccade.testing.gpu_code import GpuCode


class LossyDriver(FakeDriver):
    """Is lost in one of its launches, if at all."""

    def launch(self, launch, stream):
        super().launch(launch, stream)
        if self.counts["launch"] == int(os.environ.get("LOST_AT", "0")):
            self.lose()


DRIVER = LossyDriver(1 << 27, name="NVIDIA H200")


class InterpretedCode(dict):
    """Code that is made when it is asked for."""

    def __missing__(self, key):
        cubin = DRIVER.code(kernel_named(key.kernel).entry(key.config))
        self[key] = GpuCode(cubin, CheckedCubin(cubin, ()))
        return self[key]


bindings.devices = lambda: (DRIVER.facts,)
bindings.BoundDriver = lambda _ordinal: DRIVER
gpu_cases.codes_of = lambda *_: InterpretedCode()
