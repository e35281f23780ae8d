"""What lies where in a serialised model, seen without parsing it: skips over the weights.

Searching 100 MB of weights for a name takes 40 ms, and parsing them longer; a warm start wants
neither.
"""

from __future__ import annotations

from mmap import mmap

__all__ = ["field", "mentions_external_data", "varint"]

_EXTERNAL = 13
_INSIDE: dict[str, dict[int, str]] = {
    "model": {7: "graph", 25: "function"},
    "graph": {1: "node", 5: "tensor"},
    "function": {7: "node"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph"},
    "tensor": {},
}
"""Numbers of the fields of each message that lead to tensors."""


def mentions_external_data(data: mmap | bytes) -> bool:
    """Whether some tensor of a serialised `ModelProto` names an external place.

    A file that this walk does not understand counts as one that does: the parser will tell.
    """
    waiting = [("model", 0, len(data))]
    try:
        while waiting:
            # A stack, not recursion: nothing has bounded yet how deep graphs are nested.
            kind, at, end = waiting.pop()
            inside = _INSIDE[kind]
            while at < end:
                tag, at = varint(data, at)
                start, at = field(data, at, tag & 7)
                if at > end or (kind == "tensor" and tag >> 3 == _EXTERNAL):
                    return True
                if tag >> 3 in inside:
                    waiting.append((inside[tag >> 3], start, at))
    except (IndexError, ValueError):
        return True
    return False


def varint(data: mmap | bytes, at: int) -> tuple[int, int]:
    """A number of variable length and the position behind it."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        # A 64-bit number takes ten bytes of 7 bits; a file could go on for ever.
        if shift > 63:
            raise ValueError("a number of more than ten bytes")


def field(data: mmap | bytes, at: int, wire_type: int) -> tuple[int, int]:
    """Start of the field's contents and the position behind it."""
    if wire_type == 0:
        return at, varint(data, at)[1]
    if wire_type == 2:
        length, at = varint(data, at)
        return at, at + length
    if wire_type in (1, 5):
        return at, at + (8 if wire_type == 1 else 4)
    # Groups (3 and 4) have no length to skip by; no message of ONNX has any.
    raise ValueError(f"wire type {wire_type}")
