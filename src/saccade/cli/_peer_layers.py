"""Times by layer of a peer engine, taken in a process of its own."""

# ruff: noqa: PLC0415 - the peer's package is imported only where it runs

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from saccade.cli._engines import Arrays, EngineSpec, OpenVINOEngine, import_engine
from saccade.errors import OptionError
from saccade.profile import PeerLayer, PeerLayers

__all__ = ["owners", "peer_layers"]

_PEERS = ("openvino",)


def peer_layers(
    engine: str,
    path: Path,
    feeds: Arrays,
    *,
    threads: int,
    precision: str,
    device: str,
    repeat: int,
) -> PeerLayers:
    """Mean microseconds by layer over `repeat` runs after a few to warm up.

    Raises:
        OptionError: The engine is unknown, not installed, does not time its layers, or does not
            run there.
    """
    if engine not in _PEERS:
        raise OptionError(f"--against {engine!r} is not one of {', '.join(_PEERS)}")
    if device != "cpu":
        raise OptionError(f"{engine} is timed on the cpu only, not on {device!r}")
    from saccade.processes import Processes

    shapes = {name: array.shape for name, array in feeds.items()}
    spec = EngineSpec(engine, str(path), shapes, threads=threads, precision=precision)
    # Its threads end with its process, before anything of ours is timed.
    processes = Processes()
    try:
        (found,) = processes.map(_openvino_layers, [(spec, feeds, repeat)])
    finally:
        processes.close()
    return found


def _openvino_layers(task: tuple[EngineSpec, Arrays, int]) -> PeerLayers:
    spec, feeds, repeat = task
    import_engine(spec.engine)
    engine = OpenVINOEngine(spec, timed_layers=True)
    for _ in range(3 + repeat):
        engine.run(feeds)
    layers = (_layer(op.get_friendly_name(), op.get_rt_info()) for op in engine.layers())
    return PeerLayers(
        f"openvino {engine.version}", tuple(layer for layer in layers if layer is not None)
    )


def _layer(name: str, info: Mapping[str, Any]) -> PeerLayer | None:
    """None for what took no time of its own: constants, and what was fused into others."""
    text = info["execTimeMcs"].astype(str) if "execTimeMcs" in info else ""
    if not text.isdigit() or text == "0":
        return None
    originals = info["originalLayersNames"].astype(str) if "originalLayersNames" in info else ""
    # OpenVINO splits off a convolution's bias, and names the rest of it so.
    names = [one.strip().removesuffix("/WithoutBiases") for one in originals.split(",") if one]
    kind = info["primitiveType"].astype(str) if "primitiveType" in info else ""
    return PeerLayer(tuple(dict.fromkeys(names)) or (name,), kind, float(text))


def owners(path: Path, steps: Collection[str]) -> dict[str, str]:
    """For each node of the file, the step that it became part of.

    A step bears the name of the last node that it computes; nodes before that one, back to those
    that are steps themselves, were fused into it.
    """
    import onnx

    nodes = onnx.load(str(path), load_external_data=False).graph.node
    makers = {result: node for node in nodes for result in node.output}
    found: dict[str, str] = {}
    for last in nodes:
        step = _name(last)
        if step not in steps:
            continue
        found[step] = step
        waiting = list(last.input)
        while waiting:
            node = makers.get(waiting.pop())
            # What several steps read goes to the first of them.
            if node is None or _name(node) in steps or _name(node) in found:
                continue
            found[_name(node)] = step
            waiting += node.input
    return found


def _name(node: Any) -> str:  # noqa: ANN401 - a NodeProto, whose package is imported late
    name: str = node.name or node.output[0]
    return name
