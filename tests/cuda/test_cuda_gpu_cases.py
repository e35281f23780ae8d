"""What runs kernels on GPUs, without one: the cases, the file of code, checked code, the tests."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from saccade.backends.cuda.codegen.checked import CheckedCubin, checked_ptx
from saccade.backends.cuda.codegen.compile import Cubin
from saccade.backends.cuda.cubins import CodeKey
from saccade.backends.cuda.fusions import Conv2dPoint, Conv2dSubPixel, Conv2dSum
from saccade.backends.cuda.fusions.cases import CASES as FUSED
from saccade.backends.cuda.gpus import GPUS
from saccade.errors import CompileError, DeviceError, OptionError, OutOfBoundsError
from saccade.ir import DType
from saccade.kernels.cases import CASES
from saccade.kernels.cuda import CUDA_KERNELS, kernel_named
from saccade.testing import gpu_bench, gpu_code
from saccade.testing.cases import compare, stored_as
from saccade.testing.fake_driver import FakeDriver
from saccade.testing.gpu_bench import (
    NOT_A_NUMBER,
    GpuBench,
    expect_maps_inside,
    expect_no_fault,
)
from saccade.testing.gpu_cases import gpu_cases, keys_of, placed, target_of
from saccade.testing.gpu_code import CodeFile, GpuCode, write_code

HERE = Path(__file__).parent
TARGET = target_of(GPUS["h200"])
EVERY = gpu_cases(TARGET, 1000)
HALVES = {Conv2dPoint, Conv2dSubPixel, Conv2dSum}
"""Float32 is not joined: products of it take no tensor cores."""


def small(kernel, variant=0):
    return next(o for o in EVERY if o.kernel == kernel and o.variant == variant)


def interpreted(driver):
    def code(key):
        cubin = driver.code(kernel_named(key.kernel).entry(key.config))
        return GpuCode(cubin, CheckedCubin(cubin, ()))

    return code


def test_every_kernel_runs_in_three_types_under_names_of_their_own():
    names = [one.name for one in EVERY]
    assert len(set(names)) == len(names)
    assert {one.kernel for one in EVERY} == {listed.name for listed in CUDA_KERNELS}
    taken = {(one.kernel.split(".")[0], one.case.name) for one in EVERY}
    done = {op for listed in CUDA_KERNELS for op in listed.ops}
    for family, cases in {**CASES, **FUSED}.items():
        for case in cases:
            if type(case.op).__name__ in done:
                twins = (stored_as(case, DType.F16), stored_as(case, DType.BF16))
                plain = () if type(case.op) in HALVES else (case,)
                names = {one.name for one in (*plain, *twins) if one is not None}
                assert {(family, name) for name in names} <= taken, names


def test_few_variants_are_the_first_the_last_and_some_between():
    kernel, case = next((o.kernel, o.case) for o in EVERY if o.variant == 9)
    last = max(o.variant for o in EVERY if (o.kernel, o.case) == (kernel, case))
    for most, wanted in ((1, [0]), (2, [0, last]), (4, [0, last // 3, 2 * last // 3, last])):
        few = [o.variant for o in gpu_cases(TARGET, most) if (o.kernel, o.case) == (kernel, case)]
        assert few == wanted


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize(
    "one",
    [small("pool.direct"), small("conv2d.split_k"), small("roi.align"), small("softmax.direct", 1)],
    ids=lambda one: one.name,
)
def test_a_variant_runs_on_a_made_up_gpu(one, apart):
    driver = FakeDriver(1 << 27)
    bench = GpuBench(driver, TARGET, interpreted(driver), apart=apart)
    results = bench.run(one)
    compare(one.case, results)
    for how in ({"pattern": NOT_A_NUMBER}, {"checked": True}):
        for result, other in zip(results, bench.run(one, **how), strict=True):
            assert result.tobytes() == other.tobytes()
    driver.memory.check()
    assert driver.memory.blocks == (0 if apart else 1)


def test_a_write_beside_a_buffer_and_a_wrong_result_are_caught(monkeypatch):
    one = small("pointwise.chain")
    driver = FakeDriver(1 << 27)
    bench = GpuBench(driver, TARGET, interpreted(driver))
    real = gpu_bench.placed

    def longer_by(more):
        def wrong(one, target):
            memory, phases = real(one, target)
            rows = phases[0].integers["rows"] + more
            return memory, [phases[0]._replace(integers={**phases[0].integers, "rows": rows})]

        return wrong

    monkeypatch.setattr(gpu_bench, "placed", longer_by(16))
    with pytest.raises(OutOfBoundsError, match=r"pointwise\.chain wrote into a guard band"):
        bench.run(one)
    monkeypatch.setattr(gpu_bench, "placed", longer_by(-1))
    with pytest.raises(AssertionError):
        compare(one.case, bench.run(one))


def test_a_refused_access_is_named():
    table = np.array([2, 1096, 2, 512, 1024, 1040, 1080], np.int64)
    accesses, names = ("ld.global.b32 at a.py:1", "st.global.b16 at b.py:7"), ("w", "x/y")
    says = r"pool\.direct: st\.global\.b16 at b\.py:7 leaves the buffers: byte 56 of the 40 of x/y"
    with pytest.raises(OutOfBoundsError, match=says):
        expect_no_fault("pool.direct", table, accesses, names)
    table[0] = 0
    expect_no_fault("pool.direct", table, accesses, names)


@pytest.mark.parametrize(
    ("kernel", "least"),
    [
        ("conv2d.hopper", 30),
        ("conv2d.hopper_rows", 10),
        ("conv2d.hopper_stationary", 20),
        ("conv2d.hopper_teams", 19),
    ],
)
def test_tensor_maps_reach_no_further_than_their_operands(kernel, least):
    found = [one for one in EVERY if one.kernel == kernel]
    assert len(found) > least
    for one in found:
        (phase,) = placed(one, TARGET)[1]
        described = kernel_named(one.kernel).entry(phase.config).descriptors
        cubin = Cubin("k", b"", (), 4, 0, descriptors=described)
        assert {"x", "w"} <= {descriptor.name for descriptor in described}
        expect_maps_inside(phase, cubin)
        # A map of an image has its rows, one of a matrix all pixels.
        name = "h" if "h" in phase.integers else "rows"
        longer = phase._replace(integers={**phase.integers, name: phase.integers[name] + 1})
        with pytest.raises(OutOfBoundsError, match="the tensor map of x has"):
            expect_maps_inside(longer, cubin)


def test_a_lost_gpu_fails_its_run():
    driver = FakeDriver(1 << 27)
    bench = GpuBench(driver, TARGET, interpreted(driver))
    driver.lose()
    with pytest.raises(DeviceError, match="was lost"):
        bench.run(small("pool.direct"))


# The test file itself, in a process of its own.


def played(*arguments, **environment):
    """What pytest says of the tests of kernels, on a GPU that is made up."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "made_up_gpu", "-p", "no:cacheprovider", "-m", "gpu",
         "-rsf", *arguments, str(HERE / "test_cuda_gpu_kernels.py")],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), *sys.path]), **environment},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert "error" not in done.stderr.lower(), done.stderr
    return done.stdout


def test_the_tests_run(tmp_path):
    said = played("--gpu-variants", "1", "-k", "movement.pad or wrote or write")
    cases = sum(one.kernel == "movement.pad" and one.variant == 0 for one in EVERY)
    assert f"{2 * cases + 1} passed" in said, said


def test_after_a_loss_the_rest_is_skipped_and_says_why():
    said = played("--gpu-variants", "1", "-k", "test_results and movement.pad", LOST_AT="5")
    lost = re.search(r"FAILED (\S+\[movement\.pad-\S+\])", said)
    assert lost is not None, said
    assert f"the GPU was lost in {lost[1]}: run the rest with --deselect" in said
    assert re.search(r"1 failed, 2 passed, \d+ skipped", said), said


def test_without_a_gpu_there_is_one_reason():
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rs", "-m", "gpu",
         str(HERE / "test_cuda_gpu_kernels.py")],
        capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
    )  # fmt: skip
    assert re.search(r"SKIPPED \[1\] .*: there is no GPU", done.stdout), done.stdout


# Files of code.


def test_a_file_of_code(tmp_path, monkeypatch):
    path = tmp_path / "code.zip"
    key = keys_of(small("pool.direct"), TARGET)[0]
    plain = Cubin("kernel", b"plain \x00\xff", ("x", "y"), 4, 512, True)
    code = GpuCode(plain, CheckedCubin(replace(plain, code=b"checked"), ("ld.global.b32 at a:1",)))
    write_code(path, "h200", {key: code})
    file = CodeFile(path)
    assert (file.machine, file[key]) == ("h200", code)
    with pytest.raises(OptionError, match=r"has no code of pool\.direct for"):
        file[CodeKey(key.kernel, key.config, ())]
    monkeypatch.setattr(gpu_code, "_sources", lambda: "others")
    with pytest.raises(OptionError, match=r"other sources: python -m .* build .* --machine h200"):
        CodeFile(path)


BUILD = """
import sys
from saccade.testing.gpu_cases import main
if __name__ == "__main__":
    main(["build", sys.argv[1], "--machine", sys.argv[2], "--variants", "1", "--only", "pool.w"])
"""


@pytest.mark.parametrize("machine", ["h200", "a100"])
def test_code_is_built_without_a_gpu(tmp_path, machine):
    """Compiled and assembled, plain and checked."""
    script, path = tmp_path / "build.py", tmp_path / "code.zip"
    script.write_text(BUILD)
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, str(script), str(path), machine],
        env=environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    file, target = CodeFile(path), target_of(GPUS[machine])
    cases = [one for one in gpu_cases(target, 1) if one.kernel == "pool.whole_image"]
    keys = {key for one in cases for key in keys_of(one, target)}
    assert f"{len(keys)} of {len(keys)} kernels compiled" in done.stderr
    for key in keys:
        code = file[key]
        for cubin in (code.plain, code.checked.cubin):
            assert cubin.code.startswith(b"\x7fELF") and cubin.shared <= target.shared
        assert all(re.fullmatch(r"\w[\w.:]* at \w+\.py:\d+", a) for a in code.checked.accesses)
        assert len(code.checked.accesses) >= 2


# Checked code.

PTX = """\
.version 8.0
.target sm_80
.address_size 64
.visible .entry kernel(
	.param .u64 .ptr .global .align 16 kernel_param_0,
	.param .u32 kernel_param_1,
	.param .u64 .ptr .global .align 1 kernel_param_2,
	.param .u64 .ptr .global .align 1 kernel_param_3
)
.reqntid 128
{
	.loc	1 12 5                          // code.py:12:5
"""
END = """\
	ret;
}
	.file	1 "/somewhere/code.py"
"""


@pytest.mark.parametrize(
    ("line", "wanted", "nbytes", "address"),
    [
        ("@%p1 ld.global.v4.b32 { %r1, %r2, %r3, %r4 }, [ %rd1 + 16 ];",
         "mov.pred wanted, %p1;", "16", "%rd1, 16"),
        ("@!%p1 st.global.b16 [ %rd5 + -2 ], { %rs1 };",
         "not.pred wanted, %p1;", "2", "%rd5, -2"),
        ("ld.global.L1::evict_last.b64 	%rd4, [%rd3];",
         "setp.eq.s32 wanted, 0, 0;", "8", "%rd3, 0"),
        ("st.global.v2.b64 [ %rd2 + 0 ], { %rd7, %rd8 };",
         "setp.eq.s32 wanted, 0, 0;", "16", "%rd2, 0"),
        ("cp.async.cg.shared.global [ %r8 + 0 ], [ %rd9 + 32 ], 0x10, %r9;",
         "setp.eq.s32 wanted, 0, 0;", "%r9", "%rd9, 32"),
        ("@%p3 cp.async.ca.shared.global [ %r8 + 0 ], [ %rd9 + 0 ], 0x4;",
         "mov.pred wanted, %p3;", "0x4", "%rd9, 0"),
        ("@%p3 atom.global.gpu.relaxed.add.u32 %r14, [ %rd11 + 8 ], %r15;",
         "mov.pred wanted, %p3;", "4", "%rd11, 8"),
        ("@%p1 red.global.add.f64 [%rd1], %fd2;",
         "mov.pred wanted, %p1;", "8", "%rd1, 0"),
    ],
)  # fmt: skip
def test_each_access_is_checked(line, wanted, nbytes, address):
    text, accesses = checked_ptx(f"{PTX}\t{line}\n{END}")
    bare = line.removeprefix("@!%p1 ").removeprefix("@%p1 ").removeprefix("@%p3 ")
    assert accesses == (f"{bare.split()[0]} at code.py:12",)
    block = text[text.index("activemask") :]
    assert [part.strip() for part in block.splitlines()[1:9]] == [
        wanted,
        f"selp.b32 bytes, {nbytes}, 0, wanted;",
        f"add.s64 first, {address};",
        "ld.param.b64 table, [kernel_param_2];",
        "call (inside), within_a_buffer, (table, first, bytes, 1);",
        "setp.ne.and.s32 taken, inside, 0, wanted;",
        "bar.warp.sync together;",
        f"@taken {bare}",
    ]
    assert text.count(bare) == 1 and text.index(".func") < text.index(".visible .entry")


def test_a_copy_that_is_left_out_keeps_nobody_waiting():
    copy = "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r1], [%rd1], 16, [%r2];"
    text, accesses = checked_ptx(f"{PTX}\t@%p70001 {copy}\n{END}")
    assert accesses == (f"{copy.split(maxsplit=1)[0]} at code.py:12",)
    block = [part.strip() for part in text[text.index("activemask") :].splitlines()]
    assert block[1:4] == [
        "mov.pred wanted, %p70001;", "selp.b32 bytes, 16, 0, wanted;", "add.s64 first, %rd1, 0;",
    ]  # fmt: skip
    assert block[8:12] == [
        f"@taken {copy}", "setp.eq.and.s32 taken, inside, 0, wanted;",
        "@taken mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r2], 16;", "}",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "line",
    [
        "ld.b32 %r1, [%rd1];",
        "atom.add.u32 %r1, [%rd1], %r2;",
        "@%p2 st.v2.f32 [%rd1], {%f1, %f2};",
        "cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r1], 16;",
        "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.bulk_group [%rd1, {%r2}], [%r1];",
        "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r1], [%rd1], %r3, [%r2];",
        "ld.global.b32 %r1, [kernel_base];",
    ],
)
def test_an_access_without_a_check_is_an_error(line):
    with pytest.raises(CompileError, match="checked code has no check for"):
        checked_ptx(f"{PTX}\t{line}\n{END}")


@pytest.mark.parametrize(
    "line",
    ["ld.shared.b32 %r1, [%r2];", "ld.param.b64 %rd1, [kernel_param_0];", "cp.async.commit_group;",
     "@%p1 st.shared.v2.b32 [%r1], {%r2, %r3};", "redux.sync.add.s32 	%r1, %r2, %r3;",
     "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r1, %r2, %r3, %r4}, [%r5];",
     "@%p7 cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes [%r1], "
     "[%rd9, {%r2, %r3}], [%r4];",
     "@%p7 cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd1, {%r2, %r3}], [%r1];",
     "cp.async.bulk.commit_group;", "cp.async.bulk.wait_group.read 	0;"],
)  # fmt: skip
def test_other_instructions_stay(line):
    text, accesses = checked_ptx(f"{PTX}\t{line}\n{END}")
    assert accesses == () and f"\t{line}\n" in text and "activemask" not in text


def looked_up(first, nbytes, table):
    """What `within_a_buffer` gives, its text run line by line; the table is changed."""
    text = checked_ptx(PTX + END)[0]
    body = text[text.index("\tmov.b32 inside, 1;") : text.index(".visible .entry")]
    lines = [line.strip().rstrip(";:") for line in body.splitlines() if line.strip() not in "{}"]
    words = {"table": 0, "first": first, "bytes": nbytes, "access": 5}
    mask, at = (1 << 64) - 1, 0

    def value(name):
        return words[name] if name in words else int(name)

    def place(name):
        base, _, offset = name.strip("[]").partition("+")
        return (words[base] + int(offset or 0)) // 8

    compare_by = {"eq": int.__eq__, "ne": int.__ne__, "lo": int.__lt__, "hi": int.__gt__}
    for _ in range(1000):
        line = lines[at]
        at += 1
        guard = re.match(r"@(%p\d) ", line)
        if guard and not words[guard[1]]:
            continue
        verb, *operands = re.sub(r"^@%p\d ", "", line).replace(",", "").split()
        name = verb.split(".")
        if name[0] == "ret":
            return words["inside"]
        if name[0] == "bra":
            at = lines.index(operands[0])
        elif name[0] in ("mov", "cvt"):
            words[operands[0]] = value(operands[1])
        elif name[0] in ("add", "sub"):
            sign = 1 if name[0] == "add" else -1
            words[operands[0]] = (value(operands[1]) + sign * value(operands[2])) & mask
        elif name[0] == "setp":
            words[operands[0]] = compare_by[name[1]](value(operands[1]), value(operands[2]))
        elif name[0] == "ld":
            words[operands[0]] = table[place(operands[1])]
        elif name[0] == "st":
            table[place(operands[0])] = value(operands[1])
        elif name[0] == "atom":
            words[operands[0]] = table[place(operands[1])]
            if words[operands[0]] == value(operands[2]):
                table[place(operands[1])] = value(operands[3])
        else:
            assert not operands, line  # a label
    raise AssertionError("it does not end")


HIGH = 1 << 63  # an address that is negative as a signed number


@pytest.mark.parametrize(
    ("first", "nbytes", "inside"),
    [(1000, 4, 1), (996, 4, 0), (999, 1, 0), (1036, 4, 1), (1037, 4, 0), (1040, 1, 0),
     (2000, 16, 1), (2016, 0, 1), (0, 0, 1), (1990, 16, 0), (HIGH, 8, 1), (HIGH - 8, 8, 0),
     ((1 << 64) - 4, 8, 0)],
)  # fmt: skip
def test_what_is_within_a_buffer(first, nbytes, inside):
    buffers = [1000, 1040, 1500, 1500, 2000, 2016, HIGH, HIGH + 8]
    table = [0, 0, 4, *buffers]
    assert looked_up(first, nbytes, table) == inside
    assert table == ([0, 0] if inside else [5, first]) + [4, *buffers]
    if not inside:  # the first one is kept
        table[0] = 3
        assert looked_up(first, nbytes, table) == 0 and table[0] == 3
