"""A serialised model without its weights: they stay where they lie in the file.

Protobuf copies weights when it parses and again whenever they are looked at, 0.4 s for 100 MB. Here
large initializers become what ONNX calls external data, in the model's own file, and
only the rest, some kilobytes, is parsed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from mmap import mmap

from saccade.frontend.onnx.wire import field, varint

__all__ = ["OWN_FILE", "skeleton"]

OWN_FILE = "\0the model itself"
"""The location of weights that lie in the model's file. No file can be called that."""

_GRAPH, _INITIALIZER = 7, 5  # fields of ModelProto, GraphProto
_DATA_TYPE, _RAW_DATA, _EXTERNAL_DATA, _DATA_LOCATION = 2, 9, 13, 14  # of TensorProto
_KEY, _VALUE = 1, 2  # of StringStringEntryProto
_PLAIN = {1, 7, 10, 11}  # float, int64, float16, double: NumPy reads them where they lie
_LEAST = 4096  # bytes worth it

_Rewrite = Callable[[mmap, int, int], bytes]


def skeleton(data: mmap) -> bytes | None:
    """The serialised `ModelProto` with large initializers as external data in `OWN_FILE`.

    None for what this walk does not understand: the parser will tell what is wrong. The model must
    have no external data (`mentions_external_data`).
    """
    try:
        return _replaced(data, 0, len(data), _GRAPH, _graph)
    except (IndexError, ValueError):
        return None


def _graph(data: mmap, start: int, end: int) -> bytes:
    return _replaced(data, start, end, _INITIALIZER, _tensor)


def _replaced(data: mmap, start: int, end: int, number: int, rewrite: _Rewrite) -> bytes:
    """A message whose fields of this number, messages themselves, are rewritten."""
    parts = []
    for tag, begin, inside, after in _fields(data, start, end):
        # With another wire type it is no message, whatever its number.
        if tag == number << 3 | 2:
            parts.append(_message(number, rewrite(data, inside, after)))
        else:
            parts.append(data[begin:after])
    return b"".join(parts)


def _fields(data: mmap, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Of a message's fields the tag, where they begin, where their content does, and their end."""
    at = start
    while at < end:
        begin = at
        tag, at = varint(data, at)
        inside, at = field(data, at, tag & 7)
        if at > end:
            raise ValueError("a field is longer than what it is in")
        yield tag, begin, inside, at


def _tensor(data: mmap, start: int, end: int) -> bytes:
    """A `TensorProto`, its raw data left where it is if that is large and plain."""
    parts, kind, raw = [], 0, []
    for tag, begin, inside, after in _fields(data, start, end):
        if tag == _RAW_DATA << 3 | 2:
            raw.append((inside, after - inside))
            continue
        if tag == _DATA_TYPE << 3:
            kind = varint(data, inside)[0]
        elif tag >> 3 == _DATA_LOCATION:
            # The file says itself where the data lies: that is for the check.
            return data[start:end]
        parts.append(data[begin:after])
    # Of a field that is there twice protobuf takes the last one: left to the parser.
    if kind not in _PLAIN or len(raw) != 1 or raw[0][1] < _LEAST:
        return data[start:end]
    ((offset, length),) = raw
    place = {"location": OWN_FILE, "offset": str(offset), "length": str(length)}
    entries = [_message(_EXTERNAL_DATA, _entry(key, value)) for key, value in place.items()]
    # 1 is EXTERNAL.
    return b"".join([*parts, *entries, _encoded(_DATA_LOCATION << 3), _encoded(1)])


def _entry(key: str, value: str) -> bytes:
    return _message(_KEY, key.encode()) + _message(_VALUE, value.encode())


def _message(number: int, content: bytes) -> bytes:
    return _encoded(number << 3 | 2) + _encoded(len(content)) + content


def _encoded(number: int) -> bytes:
    """A varint."""
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)
