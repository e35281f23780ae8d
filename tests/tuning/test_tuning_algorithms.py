"""The file of algorithms: written, read back, refused."""

import dataclasses
import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tuning_fakes import MACHINE

from saccade.backends.cpu.processor import this_machine
from saccade.errors import OptionError
from saccade.testing.logged import warned
from saccade.tuning import Algorithms, TunedCall, keep, kept, load

ENTRY = TunedCall("conv1", "Conv2d(): ...", "conv2d.direct", "0a1b", 3, 81.2, 97.0, ({"rows": 6},))
OTHER = dataclasses.replace(ENTRY, step="conv2", call="MatMul(): ...")
ALGORITHMS = Algorithms("cpu", MACHINE, (ENTRY, OTHER))


def test_what_is_written_is_read():
    assert Algorithms.parse(ALGORITHMS.to_json(), "f") == ALGORITHMS
    assert Algorithms.parse(Algorithms("cpu", MACHINE, ()).to_json(), "f") == Algorithms(
        "cpu", MACHINE, ()
    )


def test_files_name_the_device_and_those_of_before_are_for_the_cpu():
    elsewhere = Algorithms("abacus", MACHINE, (ENTRY,))
    assert Algorithms.parse(elsewhere.to_json(), "f") == elsewhere
    assert json.loads(elsewhere.to_json())["device"] == "abacus"
    assert Algorithms.parse(changed(lambda r: r.pop("device")), "f") == ALGORITHMS


def test_people_can_read_it():
    lines = ALGORITHMS.to_json().splitlines()
    assert sum('"step": "conv1"' in line for line in lines) == 1
    assert sum("conv2d.direct" in line for line in lines) == 2


def test_replacing_the_entries_of_some_calls():
    newer = dataclasses.replace(ENTRY, rank=9)
    merged = ALGORITHMS.replaced([ENTRY.call], Algorithms("cpu", MACHINE, (newer,)))
    assert merged.entries == (OTHER, newer)
    assert ALGORITHMS.replaced([ENTRY.call], Algorithms("cpu", MACHINE, ())).entries == (OTHER,)
    elsewhere = Algorithms("cpu", {"cpu": "another"}, (newer,))
    assert ALGORITHMS.replaced([], elsewhere) == elsewhere
    another = Algorithms("abacus", MACHINE, (newer,))
    assert ALGORITHMS.replaced([], another) == another


def changed(change):
    record = json.loads(ALGORITHMS.to_json())
    change(record)
    return json.dumps(record)


def at_root(**fields):
    return lambda record: record.update(fields)


def in_entry(**fields):
    return lambda record: record["entries"][1].update(fields)


MALFORMED = {
    "not a file of algorithms": ["", "{", "nonsense", "[" * 100_000, '{"version": 1'],
    "version 1": ["[]", "3", "null", "{}", changed(at_root(version=2))],
    "which device": [changed(at_root(device=d)) for d in (None, 3, ["cpu"])],
    "which machine": [changed(at_root(machine=m)) for m in (None, [], {"cpu": 3})],
    "no list of entries": [changed(at_root(entries=e)) for e in (None, {}, "x")],
    "entry 1 must have exactly": [
        changed(in_entry(more=1)),
        changed(lambda r: r["entries"][1].pop("rank")),
        changed(lambda r: r["entries"].insert(1, 7)),
    ],
    "entry 1: kernel is not a text": [changed(in_entry(kernel=None))],
    "entry 1: variant is not a text": [changed(in_entry(variant=["a"]))],
    "entry 1: micros is not a time": [
        changed(in_entry(micros=v)) for v in ("1", True, -1, float("nan"), float("inf"), 10**400)
    ],
    "entry 1: rank is not a place": [changed(in_entry(rank=v)) for v in (-1, 1.0, True, "0")],
    "entry 1: config is not a list": [changed(in_entry(config=v)) for v in ({}, [3], None)],
}


@pytest.mark.parametrize(
    ("reason", "text"), [(reason, text) for reason, texts in MALFORMED.items() for text in texts]
)
def test_malformed_files_are_one_clear_error(reason, text):
    with pytest.raises(OptionError) as caught:
        Algorithms.parse(text, "my.json")
    message = str(caught.value)
    assert message.startswith("my.json")
    assert reason in message
    assert len(message.splitlines()) == 1


def survives(text):
    try:
        found = Algorithms.parse(text, "f")
    except OptionError:
        return
    assert Algorithms.parse(found.to_json(), "f") == found


@given(st.text())
def test_any_text_is_read_or_refused(text):
    survives(text)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
PLACES = [
    (), ("version",), ("device",), ("machine",), ("machine", "cpu"), ("entries",), ("entries", 0),
    *(("entries", 0, name) for name in TunedCall.__slots__), ("entries", 0, "config", 0),
]  # fmt: skip


@given(st.sampled_from(PLACES), JSON)
def test_any_value_in_any_place_is_read_or_refused(place, value):
    record = {"root": json.loads(ALGORITHMS.to_json())}
    at, name = record, "root"
    for step in place:
        at, name = at[name], step
    at[name] = value
    survives(json.dumps(record["root"]))


@given(st.integers(0, len(ALGORITHMS.to_json()) - 1), st.characters(max_codepoint=127))
def test_any_damaged_character_is_read_or_refused(place, character):
    text = ALGORITHMS.to_json()
    survives(text[:place] + character + text[place + 1 :])


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(OptionError, match="No such file"):
        load(tmp_path / "missing.json")
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(OptionError, match="not text"):
        load(tmp_path / "binary.json")
    with pytest.raises(OptionError, match="a folder, not a regular file"):
        load(tmp_path)
    os.mkfifo(tmp_path / "pipe.json")
    with pytest.raises(OptionError, match="a pipe, not a regular file"):
        load(tmp_path / "pipe.json")


def test_kept_by_model(cache):
    mine = Algorithms("cpu", this_machine(), (ENTRY,))
    assert kept("model a", this_machine()) is None
    keep("model a", mine)
    assert kept("model a", this_machine()) == mine
    assert kept("model b", this_machine()) is None
    (path,) = (cache / "algorithms").glob("*.json")
    path.write_bytes(path.read_bytes()[:-20])
    assert kept("model a", this_machine()) is None
    keep("model a", mine)
    assert kept("model a", this_machine()) == mine


def test_an_unusable_folder_keeps_nothing(cache):
    (cache / "algorithms").write_text("in the way")
    with warned("algorithms cannot be opened"):
        keep("model a", ALGORITHMS)
    assert kept("model a", this_machine()) is None
