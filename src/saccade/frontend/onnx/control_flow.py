"""If, Loop, Scan and SequenceMap: nodes that have bodies.

A condition, a number of turns or a length that is known leaves no control flow: bodies become part
of the graph around them, and everything is planned as one (`branches`, `loops`). What data decide
runs as programs of their own (`opdefs.control`).
"""

from __future__ import annotations

from saccade.frontend.onnx.branches import BranchNodes
from saccade.frontend.onnx.call import OnnxNode
from saccade.frontend.onnx.loops import LoopNodes

__all__ = ["ControlFlow"]


class ControlFlow(BranchNodes, LoopNodes):
    """What a lowering does with nodes that have bodies."""

    def _controlled(self, call: OnnxNode) -> None:
        """Import a node that has bodies.

        Raises:
            Refusal: If what it does cannot be planned.
        """
        importers = {
            "If": self._if,
            "Loop": self._loop,
            "Scan": self._scan,
            "SequenceMap": self._sequence_map,
        }
        results = importers[call.node.op_type](call)
        if len(results) < len(call.node.outputs):
            raise call.broken(f"{len(results)} results for {len(call.node.outputs)} outputs")
        for value, result in zip(call.node.outputs, results, strict=False):
            if result is None:
                self.lost.add(value)
            else:
                self.found[value] = result
