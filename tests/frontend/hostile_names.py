"""Models in which every name is a trap for whoever prints it."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["TRAP", "is_safe", "supported", "unsupported"]

TRAP = "\x1b[2J\x1b]0;owned\x07\nsaccade: error: forged\r\u202e\u2066\x9b31m\u2028"
"""Clears the screen, sets its title, forges a line, turns the direction of writing."""


def is_safe(text: str, lines: int | None = None) -> bool:
    """Whether a terminal shows the text as it is: in so many lines, if that is known."""
    parts = text.removesuffix("\n").split("\n")
    forged = any(part.startswith("saccade: error: forged") for part in parts)
    return all(map(str.isprintable, parts)) and not forged and lines in (None, len(parts))


def supported() -> onnx.ModelProto:
    """Runs, with names of inputs, dims, nodes, values, outputs and weights that are traps."""
    rng = np.random.default_rng(4)
    weights = rng.standard_normal((4, 3, 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", [f"x{TRAP}", f"w{TRAP}"], [f"a{TRAP}"], f"conv{TRAP}"),
        helper.make_node("Softmax", [f"a{TRAP}"], [f"b{TRAP}"], f"soft{TRAP}", axis=1),
        helper.make_node("CumSum", [f"b{TRAP}", f"i{TRAP}"], [f"c{TRAP}"], f"sum{TRAP}"),
        helper.make_node("Relu", [f"c{TRAP}"], [f"y{TRAP}"]),
    ]
    dims = [f"batch{TRAP}", 3, f"rows{TRAP}", 8]
    graph = helper.make_graph(
        nodes,
        f"graph{TRAP}",
        [helper.make_tensor_value_info(f"x{TRAP}", TensorProto.FLOAT, dims)],
        [helper.make_tensor_value_info(f"y{TRAP}", TensorProto.FLOAT, None)],
        [
            numpy_helper.from_array(weights, f"w{TRAP}"),
            numpy_helper.from_array(np.asarray(1), f"i{TRAP}"),
        ],
        doc_string=TRAP,
    )
    opsets = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opsets, producer_name=TRAP, ir_version=8)
    model.metadata_props.add(key=TRAP, value=TRAP)
    return model


def unsupported() -> dict[str, onnx.ModelProto]:
    """Models that are refused, each for a trap in another place."""
    found = {}
    for place in ("op_type", "domain", "attribute", "text", "dangling", "output", "location"):
        model = supported()
        node = model.graph.node[1]
        if place == "op_type":
            node.op_type = TRAP
        elif place == "domain":
            node.domain = TRAP
            model.opset_import.append(helper.make_opsetid(TRAP, 1))
        elif place == "attribute":
            node.attribute.append(helper.make_attribute(TRAP, 1))
        elif place == "text":
            model.graph.node[0].attribute.append(helper.make_attribute("auto_pad", TRAP))
        elif place == "dangling":
            node.input[0] = f"nothing{TRAP}"
        elif place == "output":
            model.graph.output[0].name = f"other{TRAP}"
        else:
            tensor = model.graph.initializer[0]
            tensor.ClearField("raw_data")
            tensor.data_location = TensorProto.EXTERNAL
            tensor.external_data.add(key="location", value=f"file{TRAP}")
        found[place] = model
    strings = supported()
    strings.graph.initializer.append(
        helper.make_tensor(f"s{TRAP}", TensorProto.STRING, [1], [b"a"])
    )
    strings.graph.node.append(helper.make_node("Cast", [f"s{TRAP}"], [f"t{TRAP}"], to=1))
    strings.graph.output.append(helper.make_tensor_value_info(f"t{TRAP}", TensorProto.FLOAT, None))
    found["initializer"] = strings
    twice = supported()
    twice.graph.initializer.append(twice.graph.initializer[0])
    return {**found, "twice": twice}
