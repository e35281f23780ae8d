from __future__ import annotations

import dataclasses

import pytest
from benchmarks.cases import CASES, STARTS
from benchmarks.record import RecordError, save
from benchmarks.report import IMAGES, PAGES, RESULTS, main, marks, replace_section
from benchmarks.report_cpu import render
from samples import record, results

from benchmarks import headline

BEGIN, END = marks("results")
PAGE = "docs/benchmarks.md"


@pytest.fixture
def folder(tmp_path, complete):
    """Records of made-up times on a CPU, and real ones of all else that pages are made of."""
    save(tmp_path / "results" / "latency.json", complete)
    for name in ("cuda.json", "detectors_gpu.json", "operators.json", "operators_cuda.json"):
        (tmp_path / "results" / name).write_bytes((RESULTS / name).read_bytes())
    return tmp_path / "results"


@pytest.fixture
def root(tmp_path):
    """Pages with nothing but the places of their sections."""
    for page, sections in PAGES.items():
        path = tmp_path / page
        path.parent.mkdir(exist_ok=True)
        places = ["\n".join((marks(name)[0], "old", marks(name)[1])) for name in sections]
        path.write_text("\n\n".join(("# Title", *places, "tail\n")))
    return tmp_path


def run(root, folder, *more):
    return main(["--root", str(root), "--results", str(folder), *more])


def test_the_table_has_every_case_and_the_right_numbers(folder):
    text = render(folder)
    rows = [line for line in text.splitlines() if line.startswith("| ") and "model" not in line]
    assert len(rows) == len(CASES)
    assert text.index("## Latency in float32") < text.index("### Testor 9000 (family 1, model 2)")
    # 0.2 GFLOP in 2 ms: 100 GFLOP/s; the floor is 1.5 ms; the better peer takes 2.5 ms.
    numbers = "2.00 | 3.00 | 2.50 | 1.25x | 100 | 75% |"
    assert rows[0] == f"| resnet50 | 1x3x224x224 | {numbers}"
    assert rows[1] == f"| resnet50 | 8x3x224x224 | {numbers}"
    assert "| resnet50 | 1x3x224x224 | 2.00 | 2.50 | 1.25x | 2.20 | 1.10x | 75% |" in rows
    assert "ncnn 1.2, which has Winograd too, took 3.50 ms for vgg16" in text
    assert "in the same rounds: 1.75x." in text
    told = "2 threads, medians; ONNX Runtime 1.2, OpenVINO 1.2; measured 2026-01-02 at abc."
    assert text.count(told) == 2  # fp32 and bf16


def test_losses_are_shown(tmp_path, complete):
    first = complete.records[0]
    slow = tuple(
        dataclasses.replace(f, median=f.median * 2, q3=f.q3 * 2, p90=f.p90 * 2)
        if f.engine == "saccade"
        else f
        for f in first.figures
    )
    records = (dataclasses.replace(first, figures=slow), *complete.records[1:])
    save(tmp_path / "latency.json", dataclasses.replace(complete, records=records))
    assert "| 4.00 | 3.00 | 2.50 | 0.62x |" in render(tmp_path)


def test_a_missing_case_engine_or_shape_is_an_error(tmp_path, complete):
    first, *rest = complete.records
    path = tmp_path / "latency.json"
    save(path, dataclasses.replace(complete, records=tuple(rest)))
    with pytest.raises(RecordError, match="no latency record of resnet50"):
        render(tmp_path)
    reshaped = dataclasses.replace(first, shape=(2, 3, 224, 224))
    save(path, dataclasses.replace(complete, records=(reshaped, *rest)))
    with pytest.raises(RecordError, match="no latency record of resnet50"):
        render(tmp_path)
    alone = dataclasses.replace(first, figures=first.figures[:2])
    save(path, dataclasses.replace(complete, records=(alone, *rest)))
    with pytest.raises(RecordError, match="no figure of openvino"):
        render(tmp_path)
    workless = dataclasses.replace(first, work={})
    save(path, dataclasses.replace(complete, records=(workless, *rest)))
    with pytest.raises(RecordError, match="does not state 'flops'"):
        render(tmp_path)


def test_the_other_suites_follow(folder):
    startup = [
        record(case, "startup", state, "s", scale=scale)
        for case in STARTS
        for state, scale in (("cold", 1.0), ("warm", 0.1), ("import", 0.01))
    ]
    startup.append(record(STARTS[0], "startup", "kernels", "s", scale=0.5))
    save(folder / "startup.json", results("startup", startup))
    memory = [record(case, "memory", "peak_rss", "MiB", scale=100.0) for case in STARTS]
    save(folder / "memory.json", results("memory", memory))
    threads = [
        record(case, "threads", f"threads={width}", "ms", scale=scale, threads=width)
        for case in CASES
        for width, scale in ((1, 1.8), (2, 1.0))
    ]
    save(folder / "threads.json", results("threads", threads))
    callers = [
        record(case, "concurrency", f"callers={count}", "1/s", scale=scale)
        for case in CASES
        for count, scale in ((1, 100.0), (8, 150.0))
    ]
    save(folder / "concurrency.json", results("concurrency", callers))
    sizes = [
        record(case, "sizes", what, "ms", scale=scale)
        for case in CASES
        for what, scale in (("beyond", 10.0), ("planning", 4.0))
    ]
    save(folder / "sizes.json", results("sizes", sizes))
    text = render(folder)
    assert "| resnet50 | 2.00 | 1.00 | 0.200 | 0.300 | 0.250 |" in text
    assert "| vit_b_16 | 2.00 | - | 0.200 | 0.300 | 0.250 |" in text
    assert "Importing, beyond NumPy: Saccade 0.0200 s, ONNX Runtime 0.0300 s" in text
    assert "| resnet50 | 200 | - | 300 | 250 |" in text
    assert "| resnet50 | 1.80x | 1.80x | 1.80x | 1.25x | 1.25x |" in text
    assert "| resnet50 | 300 (200) | 450 (300) | 375 (250) |" in text
    assert "| deeplabv3_mobilenet | 20.0 (21.6) | 30.0 (32.4) | 25.0 (27.0) | 8.00 |" in text


def other(results):
    """The same of another machine, twice as slow, at another commit."""
    records = tuple(
        dataclasses.replace(
            record,
            commit="def",
            figures=tuple(
                dataclasses.replace(
                    f, median=2 * f.median, min=2 * f.min, q1=2 * f.q1, q3=2 * f.q3, p90=2 * f.p90
                )
                for f in record.figures
            ),
        )
        for record in results.records
    )
    machine = {**results.machine, "cpu": "Another"}
    return dataclasses.replace(results, machine=machine, records=records)


def test_machines_stand_beside_each_other_and_never_in_one_table(folder, complete):
    save(folder / "another" / "latency.json", other(complete))
    section, _, bf16 = render(folder).partition("## Latency in bfloat16")
    first, second = section.split("### ")[1:]
    assert first.startswith("Another (family 1, model 2)\n\n2 threads")
    assert second.startswith("Testor 9000 (family 1, model 2)\n\n2 threads")
    assert "measured 2026-01-02 at def." in first and "| resnet50 | 1x3x224x224 | 4.00 |" in first
    assert "measured 2026-01-02 at abc." in second and "| resnet50 | 1x3x224x224 | 2.00 |" in second
    assert "| 2.00 |" not in first and "abc" not in first
    assert bf16.count("### ") == 2


def test_a_machine_that_multiplies_no_bfloat16_has_no_table_of_it(folder, complete):
    plain = other(complete)
    few = [record for record in plain.records if record.precision == "fp32"]
    machine = {**plain.machine, "flags": ["avx2"]}
    save(
        folder / "another" / "latency.json",
        dataclasses.replace(plain, machine=machine, records=tuple(few)),
    )
    section, _, bf16 = render(folder).partition("## Latency in bfloat16")
    assert "### Another" in section and "### Another" not in bf16 and "### Testor" in bf16
    assert "Another" not in headline.render(folder) + headline.render_all(folder)
    assert [panel.title for panel in headline.all_panels(folder)][:1] == [
        "Another (family 1, model 2), fp32"
    ]
    able = {**machine, "flags": ["avx2", "avx512_bf16"]}
    save(
        folder / "another" / "latency.json",
        dataclasses.replace(plain, machine=able, records=tuple(few)),
    )
    with pytest.raises(RecordError, match="no latency record of resnet50 bf16"):
        render(folder)


def test_a_machine_has_one_file_of_a_suite(folder, complete):
    save(folder / "again" / "latency.json", complete)
    with pytest.raises(RecordError, match=r"again/latency\.json and .* are records of one machine"):
        render(folder)


def test_headlines_and_plot_have_every_machine(folder, complete):
    save(folder / "another" / "latency.json", other(complete))
    text = headline.render_all(folder)
    parts = text.split("**")
    assert parts[1::2] == ["Another (family 1, model 2)", "Testor 9000 (family 1, model 2)",
                           "NVIDIA H200"]  # fmt: skip
    row = "| resnet50 1x3x224x224, fp32 | 4.00 ms | OpenVINO 5.00 ms | 1.25x |"
    assert row in parts[2] and row not in parts[4]
    panels = headline.all_panels(folder)
    assert [panel.title for panel in panels] == [
        "Another (family 1, model 2), fp32", "Testor 9000 (family 1, model 2), fp32",
        "NVIDIA H200, fp16",
    ]  # fmt: skip
    assert all(bar.ratio == pytest.approx(1.25) for panel in panels[:2] for bar in panel.bars)
    assert [bar.name for bar in panels[0].bars][:2] == ["resnet50", "resnet50, batch 8"]


def test_the_readme_has_the_newest_processor_of_each_maker_and_the_newest_gpu(folder, complete):
    """Side by side, a table each; what is left out stands with the others."""
    later = tuple(
        dataclasses.replace(r, taken="2031-12-31T00:00:00+00:00") for r in complete.records
    )
    machine = {**complete.machine, "cpu": "Testor 8000", "model": "1"}
    save(
        folder / "old" / "latency.json",
        dataclasses.replace(complete, machine=machine, records=later),
    )
    save(folder / "another" / "latency.json", other(complete))
    (folder / "h100").mkdir()
    (folder / "h100" / "cuda.json").write_bytes((RESULTS / "h100" / "cuda.json").read_bytes())
    parts = headline.render(folder).split("**")
    assert parts[1::2] == ["Another (family 1, model 2)", "Testor 9000 (family 1, model 2)",
                           "NVIDIA H200"]  # fmt: skip
    rows = [
        [line for line in part.splitlines() if line.startswith("| ")][1:] for part in parts[2::2]
    ]
    assert [len(one) for one in rows] == [3, 3, 4]
    assert "4.00 ms" in rows[0][0] and "2.00 ms" in rows[1][0] and "deform_conv2d" in rows[2][3]
    shown = headline.panels(folder)
    assert [panel.title.rpartition(",")[0] for panel in shown] == parts[1::2]
    assert shown[0].bars and not any("batch" in bar.name for panel in shown for bar in panel.bars)
    others = headline.render_all(folder)
    assert "**Testor 8000 (family 1, model 1)**" in others and "**NVIDIA H100 80GB HBM3**" in others


def test_sections_are_replaced_and_nothing_else(root, folder):
    assert run(root, folder) == 0
    text = (root / PAGE).read_text()
    first, last = marks("headlines")
    glance = f"{first}\n\n{headline.render_all(folder)}\n\n{last}"
    assert text == f"# Title\n\n{glance}\n\n{BEGIN}\n\n{render(folder)}\n\n{END}\n\ntail\n"
    assert headline.render(folder) in (root / "README.md").read_text()
    assert all("old" not in (root / page).read_text().split() for page in PAGES)


@pytest.mark.parametrize("stale", [*PAGES, *IMAGES])
def test_check_fails_until_all_is_up_to_date(root, folder, capsys, stale):
    before = (root / PAGE).read_text()
    assert run(root, folder, "--check") == 1
    assert "is out of date" in capsys.readouterr().err
    assert (root / PAGE).read_text() == before
    assert not any((root / image).exists() for image in IMAGES)
    assert run(root, folder) == 0
    assert run(root, folder, "--check") == 0
    text = (root / stale).read_text()
    (root / stale).write_text(text.replace("1.", "9.", 1))
    assert run(root, folder, "--check") == 1
    assert capsys.readouterr().err == (
        f"benchmarks: {root / stale} is out of date: run python -m benchmarks.report\n"
    )


@pytest.mark.parametrize("text", ["", BEGIN, f"{END}{BEGIN}", f"{BEGIN}{END}{BEGIN}{END}"])
def test_a_page_without_its_markers_is_refused(text):
    with pytest.raises(RecordError, match="needs one"):
        replace_section(text, "table", (BEGIN, END))


@pytest.mark.parametrize(
    "missing", ["latency", "cuda", "detectors_gpu", "operators", "operators_cuda"]
)
def test_without_records_nothing_is_written(root, folder, capsys, missing):
    (folder / f"{missing}.json").unlink()
    before = {page: (root / page).read_text() for page in PAGES}
    assert run(root, folder) == 1
    assert f"no {missing}.json" in capsys.readouterr().err
    assert {page: (root / page).read_text() for page in PAGES} == before
