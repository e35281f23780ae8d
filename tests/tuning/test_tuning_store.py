"""Measured times survive the process, other writers, and damage."""

import json
import os
import threading
from dataclasses import asdict
from hashlib import sha256

import pytest

from saccade.caches import cache_folder
from saccade.testing.logged import warned
from saccade.tuning import store as module
from saccade.tuning.store import Measured, TimingStore

pytestmark = pytest.mark.usefixtures("cache")
HERE = {"cpu": "this", "code": "1"}


def measured(i=0, micros=80.0):
    return Measured(f"call {i}", "v1", "v0", "conv2d.direct", micros, 100.0, 7)


def the_file(cache):
    (path,) = (cache / "timings").glob("*.jsonl")
    return path


def test_what_was_measured_is_known_in_the_next_process(cache):
    TimingStore("cpu", HERE).add([measured(0), measured(1)])
    again = TimingStore("cpu", HERE)
    assert again.get("call 1", "v1", "v0") == measured(1)
    assert again.get("call 1", "v2", "v0") is None
    assert again.get("call 1", "v1", "v2") is None
    assert measured().ratio == pytest.approx(0.8)
    first, *_ = the_file(cache).read_text().splitlines()
    assert json.loads(first) == {"device": "cpu", "machine": HERE}


def test_the_last_measurement_counts():
    store = TimingStore("cpu", HERE)
    store.add([measured(0, 80.0)])
    store.add([measured(0, 90.0)])
    assert TimingStore("cpu", HERE).get("call 0", "v1", "v0").micros == 90.0


def test_devices_machines_and_code_do_not_mix():
    TimingStore("cpu", HERE).add([measured()])
    assert TimingStore("abacus", HERE).get("call 0", "v1", "v0") is None
    assert TimingStore("cpu", {"cpu": "this", "code": "2"}).get("call 0", "v1", "v0") is None


def test_without_the_disk_times_last_as_long_as_the_store(cache):
    store = TimingStore("cpu", HERE, use=False)
    store.add([measured()])
    assert store.get("call 0", "v1", "v0") == measured()
    assert not (cache / "timings").exists()


BROKEN = [
    "", "{", "[]", "3", "null", '"text"', "\x00\xff", "[" * 100_000,
    json.dumps({"call": "c"}), json.dumps({"machine": {}}),
]  # fmt: skip
WRONG = [
    {"micros": "80"}, {"micros": -1.0}, {"micros": 0.0}, {"before": float("nan")},
    {"before": float("inf")}, {"rounds": 7.0}, {"rounds": True}, {"call": 3}, {"kernel": None},
    {"more": 1},
]  # fmt: skip


@pytest.mark.parametrize("line", BROKEN)
def test_lines_that_make_no_sense_are_passed_over(cache, line):
    store = TimingStore("cpu", HERE)
    store.add([measured(0)])
    with the_file(cache).open("a", encoding="latin-1") as file:
        file.write(line)
    append(cache, line)
    store.add([measured(1)])
    again = TimingStore("cpu", HERE)
    assert again.get("call 0", "v1", "v0") == measured(0)
    assert again.get("call 1", "v1", "v0") == measured(1)


@pytest.mark.parametrize("change", WRONG, ids=str)
def test_records_with_wrong_fields_are_passed_over(cache, change):
    store = TimingStore("cpu", HERE)
    store.add([measured(0)])
    record = asdict(measured(0)) | {"call": "wrong"}
    append(cache, json.dumps(record | change))
    again = TimingStore("cpu", HERE)
    assert again.get("call 0", "v1", "v0") == measured(0)
    assert again.get("wrong", "v1", "v0") is None
    append(cache, json.dumps(record))
    assert TimingStore("cpu", HERE).get("wrong", "v1", "v0").ratio == measured(0).ratio, (
        "but for the fields"
    )


def test_lines_that_others_wrote_are_passed_over(cache):
    store = TimingStore("cpu", HERE)
    store.add([measured(0)])
    append(cache, json.dumps(asdict(measured(1))), lambda text: sha256(text).digest())
    with the_file(cache).open("a") as file:
        file.write(json.dumps(asdict(measured(2))) + "\n")
    again = TimingStore("cpu", HERE)
    assert again.get("call 0", "v1", "v0") == measured(0)
    assert again.get("call 1", "v1", "v0") is None and again.get("call 2", "v1", "v0") is None


def append(cache, text, seal=None):
    with cache_folder("timings").appending(the_file(cache).name) as log:
        seal = (seal or log.seal)(text.encode()).hex()
        os.write(log.file, f"\n{seal} {text}\n".encode())


def test_writers_share_the_file():
    def write(first):
        store = TimingStore("cpu", HERE)
        for i in range(first, first + 40):
            store.add([measured(i)])

    writers = [threading.Thread(target=write, args=(40 * n,)) for n in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    store = TimingStore("cpu", HERE)
    assert all(store.get(f"call {i}", "v1", "v0") == measured(i) for i in range(160))


def test_a_file_that_is_too_long_forgets_the_oldest(cache, monkeypatch):
    monkeypatch.setattr(module, "MOST_BYTES", 4000)
    store = TimingStore("cpu", HERE)
    for i in range(100):
        store.add([measured(i)])
        assert the_file(cache).stat().st_size <= 4200
    again = TimingStore("cpu", HERE)
    assert again.get("call 99", "v1", "v0") == measured(99)
    assert again.get("call 0", "v1", "v0") is None


def test_what_was_measured_again_is_not_old(cache, monkeypatch):
    monkeypatch.setattr(module, "MOST_BYTES", 4000)
    store = TimingStore("cpu", HERE)
    for i in range(100):
        store.add([measured(i)])
        store.add([measured(0)])
    assert TimingStore("cpu", HERE).get("call 0", "v1", "v0") == measured(0)


def test_a_folder_that_cannot_be_used_is_no_error(cache):
    (cache / "timings").write_text("in the way")
    with warned("timings cannot be opened"):
        store = TimingStore("cpu", HERE)
    store.add([measured()])
    assert store.get("call 0", "v1", "v0") == measured()
    assert TimingStore("cpu", HERE).get("call 0", "v1", "v0") is None
