"""``python -m benchmarks gpu`` with an engine that needs no GPU. No timings."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]
if not (ROOT / "benchmarks").is_dir():
    pytest.skip("the benchmarks are not part of an installed package", allow_module_level=True)
sys.path.insert(0, str(ROOT))

from benchmarks import cli, gpu, gpu_cases, gpu_first, gpu_report  # noqa: E402
from benchmarks.gpu_engine import CudaEngine, Stages, checksum  # noqa: E402
from benchmarks.peers import Result, get_peer  # noqa: E402
from benchmarks.workloads import get_workload  # noqa: E402

STATISTICS = {
    "stage_seconds": {"upload": 0.001, "filter": 0.010},
    "tile_pairs_share": np.float64(0.5),
    "hits_per_row": 55.5,
    "overflow_rows": 7,
    "tier": "fp16",
    "peak_bytes": 1_500_000_000,
    "rounds": [
        {
            "components": 60,
            "settled": 40,
            "active_rows": 25,
            "tile_pairs_share": 0.125,
            "exact_distances": 99,
        },
        {"components": 6, "settled": 0, "active_rows": 5, "tile_pairs_share": 0.0, "exact_distances": 3},
    ],
}
DEVICE = {
    "name": "Imaginary H200",
    "compute_capability": "9.0",
    "multiprocessors": 132,
    "memory_bytes": 141_000_000_000,
    "driver": 13000,
    "cuda": 13000,
    "cupy": "14.0",
}


class FakeEngine(CudaEngine):
    """Fits with the reference in place of both backends, and makes the statistics up."""

    def __init__(self):
        super().__init__(1)
        self.log = []
        self.spoil = lambda count, backend, result: result

    def missing(self):
        return None

    def describe(self):
        return DEVICE

    def prepare(self, rows, settings):
        run, collect = get_peer("mreach").prepare(rows, settings._replace(backend="reference"))

        def run_and_note():
            self.log.append((settings.backend, len(rows)))
            return run()

        def collect_and_spoil(model):
            return self.spoil(len(self.log), settings.backend, collect(model))

        return run_and_note, collect_and_spoil

    def stages(self, rows, settings):
        self.log.append(("stages", len(rows)))
        return Stages(0.012, 0.003, STATISTICS)

    def first_fit(self, rows, settings, *, empty_caches=False):
        self.log.append(("compiled" if empty_caches else "cached", len(rows)))
        parts = {"sklearn": 1.0, "cupy": 0.5, "context": 0.25, "mreach": 0.01, "fit": 0.04, "beyond": 0.05}
        labels = self.fit_labels(rows, settings)
        return {f"{name}_seconds": seconds for name, seconds in parts.items()} | {"labels": labels}

    def fit_labels(self, rows, settings):
        import hashlib

        run, collect = get_peer("mreach").prepare(rows, settings._replace(backend="reference"))
        return hashlib.sha256(collect(run()).labels.tobytes()).hexdigest()


@pytest.fixture
def engine(monkeypatch):
    monkeypatch.setattr(gpu, "GATE_ROWS", 60)
    monkeypatch.setattr(gpu, "FIRST_FIT_ROWS", 50)
    return FakeEngine()


def parse(*argv):
    return cli.build_parser().parse_args(["gpu", *argv])


def run(engine, *argv):
    return gpu.main(parse(*argv), engine)


def wrong(result):
    return replace(result, arrays=result.arrays | {"labels_": result.arrays["labels_"] + 1})


def test_options():
    arguments = parse()
    assert arguments.workloads == ["main"]
    assert arguments.sizes is arguments.seed is arguments.repeats is arguments.json is None
    assert arguments.stop_after == float("inf")
    assert not arguments.check_all
    arguments = parse("--sizes", "20_000", "5", "--workloads", "clips", "--stop-after", "30", "--check-all")
    assert arguments.sizes == [20_000, 5]
    assert arguments.stop_after == 30.0
    assert arguments.check_all
    with pytest.raises(SystemExit):
        parse("--repeats", "0")


def test_an_unknown_workload_ends_the_command(capsys):
    with pytest.raises(SystemExit):
        cli.main(["gpu", "--workloads", "nonsense"])
    assert "unknown workload 'nonsense'" in capsys.readouterr().err


def test_no_gpu_is_said(engine, capsys):
    engine.missing = lambda: "no driver"
    assert run(engine, "--workloads", "blobs2d") == 1
    assert capsys.readouterr().out == "no GPU to measure: no driver\n"
    assert engine.log == []


def test_cases_are_those_of_the_table():
    main = {workload.name: sizes for workload, sizes in gpu_cases.select(["main"], None, None)}
    assert main == {
        "clips": [20_000, 50_000, 200_000, 500_000, 1_000_000, 5_000_000],
        "blobs2d": [1_000_000],
        "blobs8d": [1_000_000],
        "wide384": [200_000],
        "wide768": [100_000],
    }
    assert gpu_cases.target_of("clips", 500_000) == gpu_cases.Target(0.25, 0.13, 5.94, 7.87)
    assert gpu_cases.target_of("clips", 500_001).reach is None
    chosen = gpu_cases.select(["worst", "lattice"], [9, 7, 9], 3)
    assert [workload.name for workload, _ in chosen] == [*gpu_cases.WORST, "lattice"]
    assert all(sizes == [7, 9] and workload.seed == 3 for workload, sizes in chosen)
    assert all((workload.min_cluster_size, workload.min_samples) == (20, 20) for workload, _ in chosen)
    assert len(gpu_cases.select(["all", "main"], None, None)) == 10


def test_every_size_is_gated_before_any_is_timed(engine, capsys):
    assert run(engine, "--workloads", "blobs2d", "--sizes", "90", "40", "--first", "0", "--repeats", "2") == 0
    gated = [("cuda", 40), ("cpu", 40), ("cuda", 60), ("cpu", 60)]
    timed = [[("cuda", n)] * 3 + [("stages", n)] * 3 for n in (40, 90)]
    assert engine.log == [*gated, *timed[0], *timed[1]]
    text = capsys.readouterr().out
    assert "- blobs2d, 60 rows: every array, cuda against cpu: ok (equal bit for bit)" in text


def test_nothing_is_timed_that_differs_from_the_cpu(engine, capsys):
    engine.spoil = lambda count, backend, result: wrong(result) if backend == "cuda" else result
    assert run(engine, "--workloads", "blobs2d", "--sizes", "40", "90", "--first", "0") == 1
    assert engine.log == [("cuda", 40), ("cpu", 40), ("cuda", 60), ("cpu", 60)]
    assert (
        "FAILED: blobs2d n=90: refused by the gate: differs in labels_ at 40 rows" in capsys.readouterr().out
    )


def test_check_all_compares_checksums_of_larger_sizes(engine, tmp_path):
    argv = ["--workloads", "blobs2d", "--sizes", "90", "--first", "0", "--json", str(tmp_path / "one.json")]
    assert run(engine, *argv, "--check-all") == 0
    (record,) = json.loads((tmp_path / "one.json").read_text())["records"]
    assert record["checks"][-1] == {"rows": 90, "how": "checksum", "passed": True, "detail": "equal"}
    engine.spoil = lambda count, backend, result: (
        wrong(result) if backend == "cpu" and len(result.labels) == 90 else result
    )
    assert run(engine, *argv, "--check-all") == 1
    (record,) = json.loads((tmp_path / "one.json").read_text())["records"]
    assert record["seconds"] == []
    assert run(engine, *argv) == 0


def test_repeats_that_differ_are_no_measurement(engine, capsys):
    engine.spoil = lambda count, backend, result: wrong(result) if count > 5 else result
    assert run(engine, "--workloads", "blobs2d", "--sizes", "40", "--first", "0") == 1
    assert "failed: repeats of one fit differ" in capsys.readouterr().out


def test_a_failing_fit_does_not_end_the_others(engine, capsys, monkeypatch):
    def fail(rows, settings):
        raise MemoryError("no room")

    prepare = engine.prepare
    monkeypatch.setattr(
        engine, "prepare", lambda rows, settings: (fail if len(rows) == 90 else prepare)(rows, settings)
    )
    argv = ["--workloads", "blobs2d", "blobs8d", "--sizes", "40", "90", "--first", "0"]
    assert run(engine, *argv) == 1
    text = capsys.readouterr().out
    assert text.count("FAILED: ") == 2
    assert "FAILED: blobs2d n=90: failed: MemoryError: no room" in text
    assert ("stages", 40) in engine.log


def test_time_is_up(engine, capsys):
    assert run(engine, "--workloads", "blobs2d", "clips", "--sizes", "40", "--stop-after", "0") == 0
    assert engine.log == []
    assert "clips 40 x 61" in capsys.readouterr().out

    now = iter(range(1000))
    options = gpu.Options(first_fits=0)
    benchmark = gpu.Benchmark(engine, options, gpu.Deadline(4.5, lambda: next(now)))
    benchmark.run(get_workload("blobs2d"), [40])
    (record,) = benchmark.records
    assert record.status == "timed"
    assert len(record.seconds) == 3  # one look at the clock before the gate, one before timing, one a repeat
    assert record.device_seconds is None


def test_first_fits_are_compared_and_told_apart(engine, capsys):
    argv = ["--workloads", "blobs2d", "--sizes", "40", "--first", "2", "--compile"]
    assert run(engine, *argv) == 0
    assert engine.log[-4:] == [("cuda", 50), ("cached", 50), ("cached", 50), ("compiled", 50)]
    text = capsys.readouterr().out
    assert "| kernels compiled" in text
    assert cells(text, "clips 50: first fit of a new process")[1:4] == ["<= 500 ms", "50 ms", "yes"]
    engine.fit_labels = lambda rows, settings: "other"
    assert run(engine, *argv) == 1
    assert (
        "FAILED: first fit: RuntimeError: the first fit of a new process found other labels"
        in capsys.readouterr().out
    )


def make_document(**changed):
    record = {
        "workload": "clips",
        "n": 500_000,
        "n_features": 61,
        "dtype": "float32",
        "seed": 0,
        "min_cluster_size": 20,
        "min_samples": 20,
        "status": "timed",
        "checks": [{"rows": 50_000, "how": "every array", "passed": True, "detail": "equal bit for bit"}],
        "warm_up_seconds": 0.3,
        "seconds": [0.2, 0.18, 0.3, 0.19, 0.21],
        "checksum": "abc",
        "clusters": 5,
        "noise": 17,
        "device_seconds": 0.15,
        "tail_seconds": 0.06,
        "statistics": STATISTICS,
    }
    machine = {
        "time": "2026-12-01T10:00:00+00:00",
        "cpu": "some processor",
        "cores": 16,
        "instruction_sets": [],
        "memory_bytes": None,
        "system": "Linux",
        "python": "3.12",
        "libraries": {},
        "commit": "c0ffee",
    }
    return {"machine": machine, "device": DEVICE, "records": [record | changed], "first": {}}


def cells(text, start):
    line = next(line for line in text.splitlines() if line.startswith(f"| {start}"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_report_by_value():
    text = gpu_report.text(make_document())
    assert cells(text, "clips 500000 x 61") == [
        *("clips 500000 x 61", "0", "5.94 s", "7.87 s", "250 ms", "130 ms"),
        *("200 ms", "180 ms - 300 ms of 5", "yes", "NO", "5 / 17"),
    ]
    assert cells(gpu_report.stages_text(make_document()["records"]), "clips") == [
        *("clips 500000 x 61", "1.00", "10.00", "150.00", "60.00")
    ]
    assert cells(gpu_report.work_text(make_document()["records"]), "clips") == [
        *("clips 500000 x 61", "fp16", "50.0 %", "55.5", "7", "1.50 GB", "-", "-")
    ]
    rounds = gpu_report.rounds_text(make_document()["records"]).splitlines()
    assert [cell.strip() for cell in rounds[2].strip("|").split("|")] == [
        *("clips 500000 x 61", "1", "60", "40", "25", "12.500 %", "99")
    ]
    assert len(rounds) == 4
    assert cells(text, "clips 500000: peak device memory")[1:4] == ["<= 2 GB", "1.5 GB", "yes"]
    assert cells(text, "clips 500000: host tail, tree to labels")[1:4] == ["<= 50 ms", "60 ms", "NO"]
    assert "Imaginary H200, compute capability 9.0" in text
    assert "commit c0ffee" in text
    assert "0.2000 0.1800 0.3000 0.1900 0.2100 s; checksum abc" in text


def test_filter_is_held_against_the_peak():
    document = make_document(workload="wide384", n=200_000, n_features=384)
    (record,) = document["records"]
    assert gpu_report.filter_flops(record) == pytest.approx(2 * 200_000**2 * 384 * 0.5 / 0.010)
    # 1536 TFLOP/s is more than there is: the seconds are made up
    assert cells(gpu_report.work_text(document["records"]), "wide384")[-2:] == ["1536", "155.2 %"]
    assert gpu_report.filter_flops(record | {"statistics": {}}) is None


def test_what_was_not_measured_is_said():
    document = make_document(
        status="not run: stopped after 5 s",
        seconds=[],
        statistics={},
        warm_up_seconds=None,
        device_seconds=None,
        tail_seconds=None,
        clusters=None,
        checks=[],
    )
    text = gpu_report.text(document)
    assert cells(text, "clips 500000 x 61")[6:] == ["not run: stopped after 5 s", "-", "-", "-", "-"]
    assert "not measured" in text
    assert "failed: ValueError: x" in gpu_report.text(make_document(statistics={"error": "ValueError: x"}))


def test_runs_are_joined(tmp_path, capsys):
    early, late = make_document(seconds=[9.0]), make_document()
    late["records"].append(late["records"][0] | {"n": 50_000, "seconds": [], "status": "not run: stopped"})
    early["records"].append(early["records"][0] | {"n": 50_000})
    early["first"] = {"rows": 20_000, "cached": [], "compiled": []}
    paths = []
    for name, document in (("early", early), ("late", late)):
        paths.append(tmp_path / f"{name}.json")
        paths[-1].write_text(gpu_report.json_text(document))
    assert gpu.main(parse("--join", *map(str, paths), "--output", str(tmp_path / "results"))) == 0
    written = tmp_path / "results" / "2026-12-01_gpu_imaginary-h200.json"
    joined = json.loads(written.read_text())
    assert [(record["n"], record["seconds"]) for record in joined["records"]] == [
        (500_000, [0.2, 0.18, 0.3, 0.19, 0.21]),
        (50_000, [9.0]),
    ]
    assert joined["first"]["rows"] == 20_000
    assert written.with_suffix(".md").read_text() in capsys.readouterr().out
    late["machine"]["commit"] = "dead"
    with pytest.raises(ValueError, match="different commits"):
        gpu_report.joined([early, late])


def test_checksum_sees_every_bit():
    one = Result(np.zeros(3, np.int64), arrays={"labels_": np.zeros(3), "core_distances_": np.ones(2)})
    same = Result(np.zeros(3, np.int64), arrays={"core_distances_": np.ones(2), "labels_": np.zeros(3)})
    assert checksum(one) == checksum(same)
    for name, value in (
        ("labels_", np.array([0.0, -0.0, 0.0])),
        ("labels_", np.zeros((3, 1))),
        ("labels_", np.zeros(3, np.int64)),
        ("more", np.zeros(1)),
    ):
        assert checksum(one) != checksum(replace(one, arrays=one.arrays | {name: value}))


def test_first_fit_reports_its_parts(tmp_path):
    np.save(tmp_path / "rows.npy", get_workload("blobs2d").rows(40))
    opened = []
    parts = gpu_first.first_fit(
        str(tmp_path / "rows.npy"),
        {"min_cluster_size": 5, "backend": "reference"},
        device_modules=("json",),
        context=lambda: opened.append(True),
    )
    assert opened == [True]
    assert parts["beyond_seconds"] == pytest.approx(parts["mreach_seconds"] + parts["fit_seconds"])
    assert len(parts["labels"]) == 64
