"""The cache of objects on disk, and the processes that compile."""

import contextlib
import importlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import llvmlite
import numpy as np
import pytest
from runtime_models import compiled, convolutions, image

from saccade import forking
from saccade.backends.cpu.runtime.linker import link
from saccade.backends.cpu.runtime.objects import Objects, _imported_version, llvm_version
from saccade.backends.cpu.target import described_target, host_target
from saccade.errors import CompileError
from saccade.processes import Processes
from saccade.testing.logged import warned

X = image(1, 3, 9, 9)
NO_WARNING = contextlib.nullcontext()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("SACCADE_CACHE_DIR", str(tmp_path))
    return tmp_path / "objects"


@pytest.fixture(scope="module")
def keys():
    plan = compiled(convolutions(), threads=1).plan(X.shape)
    found = {(s.kernel, p.config) for s in plan.steps for p in s.phases}
    return sorted(found, key=repr)[:2]


def objects(**options):
    return Objects(host_target(), **options)


def get(found, keys):
    processes = Processes()
    try:
        return found.get(keys, processes)
    finally:
        processes.close()


def test_entries_are_compiled_once_and_read_ever_after(folder, keys):
    first = objects()
    made = get(first, keys)
    assert first.compiled == len(keys) and len(list(folder.glob("*.bin"))) == len(keys)
    assert get(first, keys) == made and first.compiled == len(keys)
    second = objects()
    assert get(second, keys) == made and second.compiled == 0
    assert not list(folder.glob(".new-*"))
    assert all(link([f.code], [f.symbol]).addresses[f.symbol] for f in made.values())


def test_little_is_compiled_here_and_much_by_others(folder, keys):
    made = get(objects(disk=False), keys)

    class Nobody(Processes):
        def map(self, function, arguments):
            raise CompileError("others were asked")

    here = objects(disk=False)
    assert here.get(keys, Nobody(), here=float(len(keys))) == made and here.compiled == len(keys)
    with pytest.raises(CompileError, match="others were asked"):
        objects(disk=False).get(keys, Nobody(), here=len(keys) - 0.5)
    assert here.get(keys, Nobody()) == made, "what is known needs nobody"


def damage(name, path, other):
    whole = path.read_bytes()
    if name == "flipped bit":
        path.write_bytes(whole[:-100] + bytes([whole[-100] ^ 1]) + whole[-99:])
    elif name == "truncated":
        path.write_bytes(whole[: len(whole) // 2])
    elif name == "empty":
        path.write_bytes(b"")
    elif name == "foreign":
        path.write_bytes(b"\x7fELF" + whole)
    elif name == "of another kernel":
        path.write_bytes(other.read_bytes())
    elif name == "longer":
        path.write_bytes(whole + b"\0")
    else:
        path.unlink()
        path.mkdir()


@pytest.mark.parametrize(
    "name",
    ["flipped bit", "truncated", "empty", "foreign", "of another kernel", "longer", "folder"],
)
def test_a_damaged_entry_is_compiled_again(folder, keys, name):
    made = get(objects(), keys)
    path, other = (folder / f"{made[key].symbol}.bin" for key in keys)
    damage(name, path, other)
    again = objects()
    with warned("no regular") if name == "folder" else NO_WARNING:
        assert get(again, keys) == made
    assert again.compiled == 1
    if name != "folder":
        third = objects()
        assert get(third, keys) == made and third.compiled == 0, "the entry was mended"


def test_keys_depend_on_target_and_mode(folder, keys):
    made = get(objects(), keys[:1])
    symbols = {f.symbol for f in (*made.values(), *get(objects(checked=True), keys[:1]).values())}
    described = [described_target(name) for name in ("zen4", "desktop-avx2", "neoverse-n1")]
    symbols |= {Objects(target)._symbol(keys[0]) for target in described}
    # One more for checked code; this machine's may be one of the described ones'.
    assert len(symbols) == 1 + len({objects().target.code, *(one.code for one in described)})
    assert len({one.code for one in described}) == 3


def test_the_version_of_llvm_is_read_as_it_is():
    assert llvm_version() == llvmlite.__version__ == _imported_version()


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777])
def test_a_folder_that_others_can_write_to_is_not_trusted(folder, keys, mode):
    made = get(objects(), keys)
    folder.chmod(mode)
    distrustful = objects()
    with warned(f"objects can be written to by others .mode 0{mode:o}"):
        assert get(distrustful, keys) == made
    assert distrustful.compiled == len(keys)
    folder.chmod(0o700)
    assert folder.stat().st_mode & 0o777 == 0o700


def test_new_folders_are_private(folder, keys):
    get(objects(), keys[:1])
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_read_only_folder_is_read(folder, keys, monkeypatch):
    get(objects(), keys[:1])

    def refuse(*_args, **_more):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("saccade.files.fresh_file", refuse)
    reader = objects()
    assert set(get(reader, keys)) == set(keys)
    assert reader.compiled == len(keys) - 1


def test_a_folder_that_cannot_be_made(tmp_path, monkeypatch, keys):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SACCADE_CACHE_DIR", str(tmp_path / "file"))
    found = objects()
    with warned("file cannot be opened"):
        assert set(get(found, keys[:1])) == set(keys[:1])
    assert found.compiled == 1


def test_without_the_disk_nothing_is_written(folder, keys):
    found = objects(disk=False)
    get(found, keys[:1])
    assert found.compiled == 1 and not folder.exists()


def die(_argument):
    os.abort()


def refuse(argument):
    raise CompileError(f"no code for {argument}")


def double(argument):
    return 2 * argument


def own_number(_argument):
    return os.getpid()


def threads_and_input(_argument):
    return len(list(Path("/proc/self/task").iterdir())), os.read(0, 1)


def take_a_minute():
    time.sleep(60)
    Path(os.environ["SLOW_MODULE_DONE"]).touch()


def interrupt_oneself(argument):
    os.kill(os.getpid(), signal.SIGINT)
    return argument


def setting(name):
    return os.environ.get(name)


def parent(_argument):
    return os.getppid()


def gone(pid):
    """Whether a process, a child's child perhaps, has ended or does so soon."""
    for _ in range(500):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.01)
    return False


@pytest.fixture
def processes(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    monkeypatch.setattr(forking, "_SPARE_SECONDS", 0.2)
    found = Processes()
    yield found
    found.close()


def module_function(name):
    """The function as children import it (this module is one of pytest's)."""
    return getattr(importlib.import_module("test_runtime_objects"), name)


def test_an_abort_in_a_child_is_an_error_and_no_more(processes):
    assert processes.map(module_function("double"), [1, 2, 3]) == [2, 4, 6]
    with pytest.raises(CompileError, match=r"die died \(status -6\)"):
        processes.map(module_function("die"), [1])
    assert processes.map(module_function("double"), list(range(20))) == list(range(0, 40, 2))


def test_an_error_in_a_child_arrives(processes):
    with pytest.raises(CompileError, match="no code for 7"):
        processes.map(module_function("refuse"), [7])
    assert processes.map(module_function("double"), [5]) == [10]


def test_large_results_arrive_whole(processes):
    (found,) = processes.map(module_function("double"), [b"x" * 3_000_001])
    assert found == b"x" * 6_000_002


def test_calls_are_made_in_forks_of_one_process(processes):
    parents = processes.map(module_function("parent"), [0, 0, 0])
    assert len(set(parents)) == 1
    assert processes.start(module_function("parent"), 0)() == parents[0]
    processes.close()
    assert gone(parents[0])
    assert processes.map(module_function("parent"), [0]) != parents[:1]


def test_whoever_needs_a_fork_server_soon_gets_that_of_before(processes, monkeypatch):
    monkeypatch.setattr(forking, "_SPARE_SECONDS", 60)
    (before,) = processes.map(module_function("parent"), [0])
    processes.close()
    other, third = Processes(), Processes()
    assert other.map(module_function("parent"), [0]) == [before]
    # It is nobody else's meanwhile.
    assert third.map(module_function("parent"), [0]) != [before]
    third.close()
    other.close()
    assert processes.map(module_function("parent"), [0]) == [before]
    processes.close()
    # What children inherit is what it is now.
    monkeypatch.setenv("A_SETTING", "1")
    assert processes.map(module_function("parent"), [0]) != [before]
    assert processes.map(module_function("setting"), ["A_SETTING"]) == ["1"]
    processes.close()
    assert gone(before)
    forking.SPARE.end()


def test_one_that_died_or_still_imports_is_nobody_s(processes, monkeypatch):
    monkeypatch.setattr(forking, "_SPARE_SECONDS", 60)
    (before,) = processes.map(module_function("parent"), [0])
    processes.close()
    os.kill(before, signal.SIGKILL)
    os.waitid(os.P_PID, before, os.WEXITED | os.WNOWAIT)
    (then,) = processes.map(module_function("parent"), [0])
    assert then != before
    processes.preload("test_runtime_objects:take_a_minute")
    processes.close()
    assert gone(then)
    assert processes.map(module_function("parent"), [0]) != [then]
    processes.close()
    forking.SPARE.end()


def test_the_working_directory_may_be_gone(processes, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tmp_path.rmdir()
    assert processes.map(module_function("double"), [1]) == [2]


def test_without_a_thread_that_would_end_it_none_is_kept(processes, monkeypatch):
    def refuse(_thread):
        raise RuntimeError("can't start new thread")

    (before,) = processes.map(module_function("parent"), [0])
    monkeypatch.setattr(threading.Timer, "start", refuse)
    processes.close()
    assert gone(before)


def test_a_forked_child_has_a_fork_server_of_its_own(processes, monkeypatch):
    monkeypatch.setattr(forking, "_SPARE_SECONDS", 60)
    (before,) = processes.map(module_function("parent"), [0])
    processes.close()
    child = os.fork()
    if not child:
        (own,) = processes.map(module_function("parent"), [0])
        processes.close()
        forking.SPARE.end()
        os._exit(int(own == before))
    assert os.waitpid(child, 0)[1] == 0
    assert processes.map(module_function("parent"), [0]) == [before]
    forking.SPARE.end()


def test_calls_that_were_begun_run_side_by_side_with_others(processes):
    pending = [processes.start(module_function("double"), n) for n in range(5)]
    assert processes.map(module_function("double"), [9, 8]) == [18, 16]
    assert [finish() for finish in reversed(pending)] == [8, 6, 4, 2, 0]


def test_a_call_that_was_begun_and_failed_says_so_when_it_is_asked_for(processes):
    broken = processes.start(module_function("die"), 1)
    refused = processes.start(module_function("refuse"), 2)
    with pytest.raises(CompileError, match="no code for 2"):
        refused()
    with pytest.raises(CompileError, match=r"die died \(status -6\)"):
        broken()


def test_where_the_fork_server_dies_calls_fail_and_later_ones_get_another(processes):
    assert processes.map(module_function("double"), [1]) == [2]
    (server,) = processes._server
    os.kill(server._process.pid, signal.SIGKILL)
    assert server._process.wait() == -signal.SIGKILL
    with pytest.raises(CompileError, match=r"double died \(status -9\)"):
        processes.map(module_function("double"), [1, 2, 3])
    processes.close()
    assert processes.map(module_function("double"), [1]) == [2]


def test_a_module_that_cannot_be_imported_is_an_error_of_the_call(processes):
    processes.preload("saccade.no_such_module")
    with pytest.raises(CompileError, match=r"double died \(status 1\)"):
        processes.start(module_function("double"), 1)()


def test_closing_does_not_wait_for_what_is_being_imported(processes, tmp_path, monkeypatch):
    monkeypatch.setenv("SLOW_MODULE_DONE", str(tmp_path / "done"))
    processes.preload("test_runtime_objects:take_a_minute")
    time.sleep(0.5)
    processes.close()
    assert not (tmp_path / "done").exists()


def test_an_interrupt_from_the_keyboard_is_left_to_the_user_s_process(processes):
    assert processes.map(module_function("double"), [1]) == [2]
    (server,) = processes._server
    os.kill(server._process.pid, signal.SIGINT)
    assert processes.map(module_function("interrupt_oneself"), [3]) == [3]


def test_children_have_one_thread_and_no_input(processes):
    assert processes.map(module_function("threads_and_input"), [0]) == [(1, b"")]


def test_an_abort_inside_the_compiler_reaches_the_caller(folder, monkeypatch):
    """The process survives; the next call compiles again."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    model = compiled(convolutions(), threads=1)
    with monkeypatch.context() as planted:
        planted.setattr(
            "saccade.backends.cpu.runtime.objects.compile_kernel", module_function("die")
        )
        with pytest.raises(CompileError, match="died"):
            model(X)
    assert model(X).shape == (1, 5, 9, 9)


def test_children_end_with_what_started_them(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    found = Processes()
    assert found.map(len, ["abc"]) == [3]
    (server,) = found._server
    pids = [server._process.pid, *found.map(module_function("own_number"), [0, 0])]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found.start(module_function("double"), 1)  # and nobody asks for the result
        del found
    assert not caught
    for pid in pids:
        assert gone(pid)


SCRIPT = """
import sys
sys.path.insert(0, {folder!r})
from runtime_models import compiled, convolutions, image
y = compiled(convolutions(), threads=1)(image(1, 3, 9, 9))
sys.stdout.write(y.tobytes().hex())
"""


def test_processes_share_a_folder(folder):
    script = SCRIPT.format(folder=str(Path(__file__).parent))
    running = [
        subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    results = {process.communicate(timeout=120)[0] for process in running}
    assert len(results) == 1
    model = compiled(convolutions(), threads=1)
    assert model(X).tobytes().hex() == results.pop()
    assert model._engine is None, "everything was found ready"
    assert not list(folder.parent.rglob(".new-*"))


def test_a_second_start_compiles_nothing(folder):
    first = compiled(convolutions(), threads=1)
    y = first(X)
    assert first._started().backend.objects.compiled > 0
    shutil.rmtree(folder.parent / "bundles")
    second = compiled(convolutions(), threads=1)
    assert np.array_equal(second(X), y)
    assert second._started().backend.objects.compiled == 0
