"""Compiled kernels, a file for each processor: see `saccade.backends.cpu.runtime.prebuilt`."""
