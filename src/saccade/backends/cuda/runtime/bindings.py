"""CUDA's driver through `cuda.bindings`, with every return code looked at."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

from saccade.backends.cuda.runtime.direct import launch_directly
from saccade.backends.cuda.runtime.driver import (
    DeviceFacts,
    FunctionFacts,
    KernelLaunch,
    LaunchGraph,
    PlacedLaunch,
    gone,
    no_room,
)
from saccade.backends.cuda.runtime.queries import checked, queried_device, queried_function
from saccade.backends.cuda.runtime.statuses import FATAL, FOREIGN, FORKED
from saccade.backends.cuda.runtime.tensor_maps import Encoders
from saccade.errors import DeviceError, OutOfMemoryError
from saccade.locks import cached_property, forkless

__all__ = ["BoundDriver", "devices"]

_OLDEST = 13  # major version of the package
_NOT_READY, _OUT_OF_MEMORY = "CUDA_ERROR_NOT_READY", "CUDA_ERROR_OUT_OF_MEMORY"


@cache
def _api() -> Any:  # noqa: ANN401 - the bindings carry no types
    """The initialised module.

    Raises:
        DeviceError: If it, or the driver, is missing.
    """
    with forkless:
        try:
            from cuda.bindings import __version__, driver  # noqa: PLC0415 - needed by no other device
        except ImportError as error:
            raise DeviceError(
                "device cuda needs the package cuda-bindings: pip install 'saccade[cuda]'"
            ) from error
    if int(__version__.partition(".")[0]) < _OLDEST:
        raise DeviceError(
            f"device cuda needs cuda-bindings {_OLDEST}, installed is {__version__}: "
            "pip install 'saccade[cuda]'"
        )
    try:
        status = driver.cuInit(0)[0]
    except RuntimeError as error:
        raise DeviceError(
            "device cuda needs NVIDIA's driver, which this machine does not have: libcuda.so.1 is "
            "not found"
        ) from error
    if status.name == "CUDA_ERROR_NO_DEVICE":
        raise DeviceError("device cuda needs an NVIDIA GPU, and the driver shows none")
    if status.name != "CUDA_SUCCESS":
        raise DeviceError(f"device cuda cannot be used: the driver says {status.name}")
    return driver


def devices() -> tuple[DeviceFacts, ...]:
    """The GPUs that this process sees; makes no context.

    Raises:
        DeviceError: If there is none, or they cannot be asked.
    """
    api = _api()
    status, count = api.cuDeviceGetCount()
    checked(status, "cuDeviceGetCount")
    if not count:
        raise DeviceError("device cuda needs an NVIDIA GPU, and the driver shows none")
    return tuple(queried_device(api, ordinal) for ordinal in range(count))


class BoundDriver:
    """A `CudaDriver` of one GPU; keeps its primary context, which other libraries share.

    Raises:
        DeviceError: If there is no such GPU or no context can be had.
    """

    def __init__(self, ordinal: int) -> None:
        known = devices()
        if not 0 <= ordinal < len(known):
            raise DeviceError(f"there is no GPU cuda:{ordinal}, only {len(known)} of them")
        self._api = _api()
        self._process = os.getpid()
        self.facts = known[ordinal]
        self.lost: str | None = None
        self._device = self._do("cuDeviceGet", ordinal)
        self._context = self._do("cuDevicePrimaryCtxRetain", self._device)
        self._address = int(self._context)

    def _do(self, name: str, *arguments: object, nbytes: int = 0) -> Any:  # noqa: ANN401
        """The result of a call of the driver."""
        if self.lost is not None:
            raise DeviceError(self.lost)
        status, *results = getattr(self._api, name)(*arguments)
        if status != 0:
            self._fail(name, status.name, nbytes)
        return results[0] if results else None

    def _fail(self, call: str, status: str, nbytes: int) -> None:
        product = self.facts.name
        if status == _OUT_OF_MEMORY:
            raise no_room(product, nbytes, *self._unused())
        if status in FOREIGN:
            raise DeviceError(
                f"the code is damaged, or for another GPU than this {product} "
                f"(sm_{self.facts.arch}): build it with --arch sm_{self.facts.arch}"
            )
        if status in FATAL:
            self.lost = gone(product, f"{call} says {status}")
            raise DeviceError(self.lost)
        raise DeviceError(f"{product}: {call} says {status}")

    def _unused(self) -> tuple[int, int]:
        # Not by `_do`, whose failure would come back here.
        status, free, total = self._api.cuMemGetInfo()
        return (int(free), int(total)) if status == 0 else (0, self.facts.memory)

    @contextmanager
    def current(self) -> Iterator[None]:
        """As the protocol says; refused in a forked child, where no context works."""
        if os.getpid() != self._process:
            raise DeviceError(FORKED)
        self._do("cuCtxPushCurrent", self._context)
        try:
            yield
        finally:
            if not sys.is_finalizing():
                # Not by `_do`: once the GPU is lost it would raise in place of the block's error.
                self._api.cuCtxPopCurrent()

    def synchronize(self) -> None:
        """As the protocol says."""
        self._do("cuCtxSynchronize")

    def load(self, code: bytes, symbol: str, shared: int) -> int:
        """As the protocol says; modules stay for as long as the context does."""
        module = self._do("cuModuleLoadData", code)
        function = self._do("cuModuleGetFunction", module, symbol.encode())
        if shared > self.facts.shared:
            has = f"{self.facts.name} has {self.facts.shared}"
            raise DeviceError(f"a kernel needs {shared} bytes of shared memory, {has}")
        # Beyond 48 KB the driver refuses launches unless the function was told beforehand.
        kinds = self._api.CUfunction_attribute
        most = kinds.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        self._do("cuFuncSetAttribute", function, most, shared)
        return int(function)

    def describe(self, function: int, threads: int, shared: int) -> FunctionFacts:
        """As the protocol says."""
        handle = self._api.CUfunction(function)
        return queried_function(self._api, self._do, handle, threads, shared)

    def available(self) -> int:
        """As the protocol says."""
        return self._unused()[0]

    def allocate(self, nbytes: int) -> int:
        """As the protocol says."""
        return int(self._do("cuMemAlloc", nbytes, nbytes=nbytes))

    def free(self, address: int) -> None:
        """As the protocol says."""
        self._do("cuMemFree", address)

    @cached_property
    def _properties(self) -> Any:  # noqa: ANN401
        """Of memory that is mapped: on this GPU."""
        api, made = self._api, self._api.CUmemAllocationProp()
        # The GPU's own memory, which stays where it is; not what the host calls pinned.
        made.type = api.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        made.location.type = api.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        made.location.id = self.facts.ordinal
        return made

    @cached_property
    def granularity(self) -> int:
        """As the protocol says."""
        kinds = self._api.CUmemAllocationGranularity_flags
        least = kinds.CU_MEM_ALLOC_GRANULARITY_RECOMMENDED
        return int(self._do("cuMemGetAllocationGranularity", self._properties, least))

    def reserve(self, nbytes: int) -> int:
        """As the protocol says."""
        return int(self._do("cuMemAddressReserve", nbytes, 0, 0, 0, nbytes=nbytes))

    def release(self, address: int, nbytes: int) -> None:
        """As the protocol says."""
        self._do("cuMemAddressFree", address, nbytes)

    def back(self, address: int, nbytes: int) -> int:
        """As the protocol says."""
        api, access = self._api, self._api.CUmemAccessDesc()
        access.location = self._properties.location
        access.flags = api.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        handle = self._do("cuMemCreate", nbytes, self._properties, 0, nbytes=nbytes)
        try:
            self._do("cuMemMap", address, nbytes, 0, handle, 0, nbytes=nbytes)
            # Mapped memory may not be touched before.
            self._do("cuMemSetAccess", address, nbytes, [access], 1, nbytes=nbytes)
        except OutOfMemoryError:
            api.cuMemUnmap(address, nbytes)  # which fails where nothing was mapped
            api.cuMemRelease(handle)
            raise
        return int(handle)

    def unback(self, address: int, nbytes: int, handle: int) -> None:
        """As the protocol says."""
        self._do("cuMemUnmap", address, nbytes)
        self._do("cuMemRelease", self._api.CUmemGenericAllocationHandle(handle))

    def pin(self, nbytes: int) -> int:
        """As the protocol says."""
        return int(self._do("cuMemHostAlloc", nbytes, 0, nbytes=nbytes))

    def unpin(self, address: int) -> None:
        """As the protocol says."""
        self._do("cuMemFreeHost", address)

    def upload(self, target: int, source: int, nbytes: int, stream: int) -> None:
        """As the protocol says."""
        self._do("cuMemcpyHtoDAsync", target, source, nbytes, stream)

    def download(self, target: int, source: int, nbytes: int, stream: int) -> None:
        """As the protocol says."""
        self._do("cuMemcpyDtoHAsync", target, source, nbytes, stream)

    def copy(self, target: int, source: int, nbytes: int, stream: int) -> None:
        """As the protocol says."""
        self._do("cuMemcpyDtoDAsync", target, source, nbytes, stream)

    def copy_rows(self, target: int, source: int, rows: tuple[int, int, int], stream: int) -> None:
        """As the protocol says."""
        count, nbytes, pitch = rows
        if count == 1 or nbytes == pitch:  # for which a two-dimensional copy has limits
            self.copy(target, source, count * nbytes, stream)
            return
        asked = self._api.CUDA_MEMCPY2D()
        memory = self._api.CUmemorytype.CU_MEMORYTYPE_DEVICE
        asked.srcMemoryType = asked.dstMemoryType = memory
        asked.srcDevice, asked.srcPitch = source, pitch
        asked.dstDevice, asked.dstPitch = target, nbytes
        asked.WidthInBytes, asked.Height = nbytes, count
        self._do("cuMemcpy2DAsync", asked, stream)

    def fill(self, address: int, byte: int, nbytes: int, stream: int) -> None:
        """As the protocol says."""
        self._do("cuMemsetD8Async", address, byte, nbytes, stream)

    def make_stream(self) -> int:
        """As the protocol says."""
        # Others wait for the legacy stream, and it for them.
        flags = self._api.CUstream_flags.CU_STREAM_NON_BLOCKING
        return int(self._do("cuStreamCreate", flags))

    def wait_stream(self, stream: int) -> None:
        """As the protocol says."""
        self._do("cuStreamSynchronize", stream)

    def make_event(self, *, timed: bool = False) -> int:
        """As the protocol says."""
        flags = self._api.CUevent_flags
        # Events without clock readings are cheaper to record and to wait for.
        kind = flags.CU_EVENT_DEFAULT if timed else flags.CU_EVENT_DISABLE_TIMING
        return int(self._do("cuEventCreate", kind))

    def record(self, event: int, stream: int) -> None:
        """As the protocol says."""
        self._do("cuEventRecord", event, stream)

    def order(self, stream: int, event: int) -> None:
        """As the protocol says."""
        self._do("cuStreamWaitEvent", stream, event, 0)

    def happened(self, event: int) -> bool:
        """As the protocol says."""
        if self.lost is not None:
            raise DeviceError(self.lost)
        # Not by `_do`, which would take "not ready" for a failure.
        status = self._api.cuEventQuery(event)[0]
        if status.name not in ("CUDA_SUCCESS", _NOT_READY):
            self._fail("cuEventQuery", status.name, 0)
        return bool(status.name != _NOT_READY)

    def wait_event(self, event: int) -> None:
        """As the protocol says."""
        self._do("cuEventSynchronize", event)

    def milliseconds(self, start: int, end: int) -> float:
        """As the protocol says."""
        return float(self._do("cuEventElapsedTime", start, end))

    def free_event(self, event: int) -> None:
        """As the protocol says."""
        self._do("cuEventDestroy", event)

    @cached_property
    def encoders(self) -> Encoders:
        """The library's own: the bindings' copy would be copied once more."""
        library: Encoders = ctypes.CDLL("libcuda.so.1")
        return library

    def launch(self, launch: KernelLaunch, stream: int) -> None:
        """As the protocol says."""
        api, config = self._api, self._api.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = launch.programs, launch.rows, 1
        config.blockDimX, config.blockDimY, config.blockDimZ = launch.threads, 1, 1
        config.sharedMemBytes, config.hStream = launch.shared, api.CUstream(stream)
        if launch.chained:
            attribute = api.CUlaunchAttribute()
            kinds = api.CUlaunchAttributeID
            attribute.id = kinds.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
            attribute.value.programmaticStreamSerializationAllowed = 1
            config.attrs, config.numAttrs = [attribute], 1
        arguments = launch.table.ctypes.data
        self._do("cuLaunchKernelEx", config, api.CUfunction(launch.function), arguments, 0)

    def launch_placed(self, launches: Sequence[PlacedLaunch]) -> None:
        """As the protocol says."""
        if self.lost is not None:
            raise DeviceError(self.lost)
        if os.getpid() != self._process:
            raise DeviceError(FORKED)
        failed = launch_directly(self._address, launches)
        if failed is not None:
            self._fail(failed[0], self._api.CUresult(failed[1]).name, 0)

    def _fill_node(self, node: Any, launch: KernelLaunch) -> Any:  # noqa: ANN401
        node.func = self._api.CUfunction(launch.function)
        node.gridDimX, node.gridDimY, node.gridDimZ = launch.programs, launch.rows, 1
        node.blockDimX, node.blockDimY, node.blockDimZ = launch.threads, 1, 1
        node.sharedMemBytes = launch.shared
        # The driver copies the values while the node is made or set, so that they may change later.
        node.kernelParams = launch.table.ctypes.data
        return node

    def make_graph(
        self, launches: Sequence[KernelLaunch], waits: Sequence[Sequence[int]]
    ) -> LaunchGraph:
        """As the protocol says: explicit nodes, so that their order is the launches'."""
        api = self._api
        graph = self._do("cuGraphCreate", 0)
        nodes: list[Any] = []
        try:
            for launch, earlier in zip(launches, waits, strict=True):
                made = api.CUgraphNodeParams()
                made.type = api.CUgraphNodeType.CU_GRAPH_NODE_TYPE_KERNEL
                made.kernel = self._fill_node(made.kernel, launch)
                before = [nodes[number] for number in earlier]
                edges = [self._edge(launch, alone=len(before) == 1) for _ in before]
                nodes.append(self._do("cuGraphAddNode", graph, before, edges, len(before), made))
            executable = self._do("cuGraphInstantiate", graph, 0)
        except BaseException:
            # Not by `_do`, whose own error would take this one's place.
            api.cuGraphDestroy(graph)
            raise
        return LaunchGraph(int(graph), int(executable), tuple(int(node) for node in nodes))

    def _edge(self, launch: KernelLaunch, *, alone: bool) -> Any:  # noqa: ANN401
        """From a launch ahead to this one, which waits for no other if it is alone."""
        api, edge = self._api, self._api.CUgraphEdgeData()
        if launch.chained and alone:
            # Met once all programs ahead have called `gdc_launch_dependents`; else once they ended.
            edge.type = api.CUgraphDependencyType.CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC
            edge.from_port = int(api.CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC)
        return edge

    def update(self, graph: LaunchGraph, index: int, launch: KernelLaunch) -> None:
        """As the protocol says."""
        api = self._api
        params = self._fill_node(api.CUDA_KERNEL_NODE_PARAMS(), launch)
        executable = api.CUgraphExec(graph.executable)
        node = api.CUgraphNode(graph.nodes[index])
        self._do("cuGraphExecKernelNodeSetParams", executable, node, params)

    def launch_graph(self, graph: LaunchGraph, stream: int) -> None:
        """As the protocol says."""
        self._do("cuGraphLaunch", graph.executable, stream)

    def free_graph(self, graph: LaunchGraph) -> None:
        """As the protocol says."""
        self._do("cuGraphExecDestroy", self._api.CUgraphExec(graph.executable))
        self._do("cuGraphDestroy", self._api.CUgraph(graph.graph))
