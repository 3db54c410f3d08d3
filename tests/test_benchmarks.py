"""The benchmarks' own parts: workloads drawn again by seed, the correctness gate, ties. No timings."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import mreach

ROOT = Path(__file__).resolve().parents[1]
if not (ROOT / "benchmarks").is_dir():
    pytest.skip("the benchmarks are not part of an installed package", allow_module_level=True)
sys.path.insert(0, str(ROOT))

from benchmarks import case_runner, cases, cli, clips, figures, gate, machine, measure, report, worker  # noqa: E402
from benchmarks.peers import PEERS, Result, Settings, get_peer  # noqa: E402
from benchmarks.runner import Measurement, Run, run_workload  # noqa: E402
from benchmarks.ties import differing_rows, find_ties  # noqa: E402
from benchmarks.workers import Options, open_workers  # noqa: E402
from benchmarks.workloads import WORKLOADS, get_workload, select_workloads  # noqa: E402

SHAPES = {
    "clips": (61, "float32"),
    "blobs2d": (2, "float32"),
    "blobs8d": (8, "float32"),
    "emg": (61, "float32"),
    "lattice": (2, "float64"),
    "integer_pairs": (2, "int64"),
    "tight_groups": (61, "float64"),
    "one_huge_row": (61, "float32"),
    "lattice3d": (3, "int64"),
    "copies": (61, "float32"),
    "outliers30": (61, "float32"),
    "wide384": (384, "float32"),
    "wide5": (5, "float32"),
    "gauss16": (16, "float32"),
    "gauss61": (61, "float32"),
    "gauss7": (7, "float32"),
}


@pytest.mark.parametrize("name", SHAPES)
def test_workload_is_a_function_of_rows_and_seed(name):
    workload = get_workload(name)
    rows = workload.rows(331)
    assert rows.shape == (331, SHAPES[name][0])
    assert str(rows.dtype) == SHAPES[name][1]
    assert rows.flags.c_contiguous
    assert np.isfinite(rows).all()
    assert rows.tobytes() == workload.rows(331).tobytes()
    assert not np.array_equal(rows, workload.make(331, workload.seed + 1))


def test_every_registered_workload_is_tested_and_selected():
    assert set(WORKLOADS) <= set(SHAPES)
    assert select_workloads(["main", "worst"]) == select_workloads(["all"]) == list(WORKLOADS.values())
    with pytest.raises(ValueError, match="unknown workload 'nonsense'"):
        select_workloads(["nonsense"])
    with pytest.raises(ValueError, match="at least one row"):
        get_workload("clips").rows(0)


def test_clips_are_scaled_by_one_number():
    energies = (get_workload("clips").rows(2000).astype(np.float64) ** 2).sum(axis=1)
    assert energies.std() == pytest.approx(1.0, rel=1e-4)


def test_many_clips_are_drawn_in_blocks_whatever_the_number_of_cores(monkeypatch):
    monkeypatch.setattr(clips, "ONE_STREAM_ROWS", 100)
    monkeypatch.setattr(clips, "BLOCK_ROWS", 64)
    drawn = clips.make_clips(331, 0)
    monkeypatch.setattr(clips, "usable_cores", lambda: 1)
    assert drawn.tobytes() == clips.make_clips(331, 0).tobytes()
    assert len(np.unique(drawn, axis=0)) == 331  # no block repeats another
    assert (drawn.astype(np.float64) ** 2).sum(axis=1).std() == pytest.approx(1.0, rel=1e-4)


def test_copies_and_outliers_have_their_shares():
    distinct = np.unique(get_workload("copies").rows(1000), axis=0)
    assert len(distinct) == 700
    rows = get_workload("lattice3d").rows(1000)
    assert len(np.unique(rows, axis=0)) == 1000
    assert rows.max() == 9
    few, many = (clips.make_clips(5000, 0, share) for share in (0.0, 1.0))
    assert not np.array_equal(few, many)


def test_integer_pairs_have_the_promised_repeats():
    rows = get_workload("integer_pairs").rows(77_911)
    assert len(np.unique(rows, axis=0)) == 10_167


def test_emg_has_no_more_rows_than_there_are():
    assert get_workload("emg").rows(10**6).shape == (5247, 61)


def fit_reference(rows, min_cluster_size=5):
    settings = Settings(min_cluster_size, min_cluster_size, n_threads=1, backend="reference")
    run, collect = get_peer("mreach").prepare(rows, settings)
    return collect(run())


@pytest.fixture(scope="module")
def fitted():
    return fit_reference(get_workload("blobs2d").rows(150))


def test_gate_lets_equal_results_pass(fitted):
    assert gate.check_reference(fitted, fitted).passed
    ties = gate.ties_of(fitted, 5)
    verdict = gate.check_peer(fitted, fitted, "twin", "exact", ties)
    assert verdict.passed
    assert "same partition" in verdict.detail


@pytest.mark.parametrize("name", ["labels_", "probabilities_", "core_distances_", "minimum_spanning_tree_"])
def test_gate_refuses_one_wrong_bit(fitted, name):
    wrong = fitted.arrays[name].copy()
    wrong.view(np.uint8).ravel()[-8] ^= 1
    verdict = gate.check_reference(replace(fitted, arrays=fitted.arrays | {name: wrong}), fitted)
    assert not verdict.passed
    assert name in verdict.detail


def test_gate_refuses_a_missing_array_and_an_empty_reference(fitted):
    rest = {name: value for name, value in fitted.arrays.items() if name != "labels_"}
    assert not gate.check_reference(replace(fitted, arrays=rest), fitted).passed
    assert not gate.check_reference(fitted, replace(fitted, arrays={})).passed


def test_gate_refuses_another_tree_of_an_exact_peer_only(fitted):
    ties = gate.ties_of(fitted, 5)
    heavier = replace(fitted, weights=fitted.weights * (1.0 + 1e-8))
    assert not gate.check_peer(fitted, heavier, "peer", "exact", ties).passed
    shorter = replace(fitted, weights=fitted.weights[1:])
    assert not gate.check_peer(fitted, shorter, "peer", "exact", ties).passed
    assert not gate.check_peer(fitted, replace(fitted, weights=None), "peer", "exact", ties).passed
    for exactness in ("unverified", "float32", "approximate"):
        verdict = gate.check_peer(fitted, heavier, "peer", exactness, ties)
        assert verdict.passed
        assert exactness in verdict.detail


def test_gate_refuses_another_partition_without_a_tie(fitted):
    ties = find_ties(np.arange(149), np.arange(1, 150), np.arange(1.0, 150.0), 5)
    assert not ties.tied.any()
    assert ties.inventing_nodes == 0
    labels = fitted.labels.copy()
    labels[np.flatnonzero(labels >= 0)[0]] = -1
    verdict = gate.check_peer(fitted, replace(fitted, labels=labels), "peer", "exact", ties)
    assert not verdict.passed
    assert "1 rows differ without a tie" in verdict.detail


def test_mreach_equals_scikit_learn_through_the_gate():
    rows = get_workload("clips").rows(400)
    run, collect = get_peer("scikit-learn").prepare(rows, Settings(5, 5, n_threads=1))
    ours = fit_reference(rows)
    verdict = gate.check_peer(ours, collect(run()), "scikit-learn", "exact", gate.ties_of(ours, 5))
    assert verdict.passed, verdict.detail


def test_ties_are_found():
    # Two groups of three points, and one point equally far from both.
    sources, targets = np.array([0, 1, 3, 4, 2, 6]), np.array([1, 2, 4, 5, 6, 3])
    ties = find_ties(sources, targets, np.array([1.0, 1.0, 1.0, 1.0, 5.0, 5.0]), 3)
    assert ties.tied.tolist() == [False] * 6 + [True]
    assert ties.inventing_nodes == 2  # the two groups themselves
    assert find_ties(np.arange(5), np.arange(1, 6), np.ones(5), 7).inventing_nodes == 0
    assert find_ties(np.empty(0, int), np.empty(0, int), np.empty(0), 5).tied.tolist() == [False]


def test_partitions_are_compared_up_to_renaming():
    labels = np.array([0, 0, 0, 1, 1, -1, 2])
    assert not differing_rows(labels, np.array([2, 2, 2, 0, 0, -1, 1])).any()
    assert differing_rows(labels, np.array([0, 0, -1, 1, 1, -1, 2])).tolist() == [0, 0, 1, 0, 0, 0, 0]
    merged = differing_rows(labels, np.array([0, 0, 0, 0, 0, -1, 2]))
    assert merged.tolist() == [0, 0, 0, 1, 1, 0, 0]


def test_subsample_keeps_order_and_the_largest_row():
    rows = get_workload("one_huge_row").rows(300)
    sample = gate.subsample(rows, 20)
    assert sample.shape == (20, 61)
    assert sample.max() == rows.max()
    assert gate.subsample(rows, 300) is rows


def test_repeats_follow_the_duration():
    assert measure.repeats_for(1e-3) == measure.MAX_REPEATS
    assert measure.repeats_for(3.0) == measure.FEW_REPEATS
    assert measure.repeats_for(30.0) == 0
    assert measure.repeats_for(30.0, 4) == 4


def test_results_survive_the_file(fitted, tmp_path):
    worker.save_result(tmp_path / "result.npz", fitted)
    back = worker.load_result(tmp_path / "result.npz")
    assert worker.same_results(back, fitted)
    assert back.notes == fitted.notes
    assert back.weights.tobytes() == fitted.weights.tobytes()


def test_peers_say_what_is_missing():
    peer = replace(get_peer("hdbscan"), modules=("no_such_module_anywhere",))
    assert peer.missing() == "not installed (pip install hdbscan)"
    assert get_peer("scikit-learn").missing() is None
    assert get_peer("fast-hdbscan").exactness(61) == "approximate"
    assert not get_peer("fast-hdbscan").counts_for_ratio(61)
    with pytest.raises(ValueError, match="unknown peer 'nobody'"):
        get_peer("nobody")


def make_run(seconds):
    entries = [
        Measurement(name, "exact", "timed", median_seconds=value, min_seconds=value, repeats=1)
        for name, value in seconds.items()
    ]
    return Run("clips", 20_000, 61, "float32", 0, 20, 20, 2, [], entries)


def test_figures_compare_with_the_fastest_exact_peer():
    run = make_run({"mreach": 0.1, "scikit-learn": 9.0, "quitefastmst": 1.5, "fast-hdbscan": 0.01})
    sklearn, fastest = figures.speed_figures(run, 20_000)
    assert sklearn.reached
    assert sklearn.measured == pytest.approx(90.0)
    assert fastest.reached is False
    assert fastest.measured == pytest.approx(15.0)
    large = figures.large_figures(make_run({"mreach": 0.5, "numpy-product": 1.0}), 50_000)
    assert [figure.reached for figure in large] == [True, None]
    assert "not measured" in report.figures_text([figure.line() for figure in large])


def test_machine_and_files_name_no_host(tmp_path):
    described = machine.describe()
    assert described["cores"] >= 1
    assert machine.slug("AMD EPYC 9B14 (64-Core)") == "amd-epyc-9b14-64-core"
    json_path, text_path = report.write(tmp_path, "run", described, [make_run({"mreach": 0.1})], [])
    document = json.loads(json_path.read_text())
    assert document["runs"][0]["measurements"][0]["median_seconds"] == 0.1
    assert "| mreach" in text_path.read_text()
    assert machine.platform.node() not in json_path.name


def test_list_names_everything(capsys):
    assert cli.main(["list"]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in (*WORKLOADS, *PEERS))


def test_a_run_in_processes_of_its_own():
    with open_workers(Options(peers=(), backend="reference", threads=1, repeats=1, cold=False)) as workers:
        run = run_workload(get_workload("blobs2d"), 60, workers)
        assert run.passed
        assert run.measurement("mreach").timed
        workers.options = replace(workers.options, backend="nonsense")
        refused = run_workload(get_workload("blobs2d"), 60, workers)
        assert not refused.passed
        assert not refused.measurements


def test_a_wrong_result_ends_the_command_with_an_error(monkeypatch, capsys):
    def wrong(ours, reference):
        return gate.Verdict("mreach", "reference", 60, False, "differs in labels_")

    monkeypatch.setattr(gate, "check_reference", wrong)
    argv = ["gate", "--workloads", "blobs2d", "--sizes", "60", "--backend", "reference", "--peers"]
    assert cli.main(argv) == 1
    assert "gate FAILED: blobs2d n=60" in capsys.readouterr().out


def test_result_has_no_arrays_by_default():
    assert Result(np.zeros(3, dtype=np.int64)).arrays == {}


@pytest.mark.parametrize("case", cases.CASES.values(), ids=cases.CASES)
def test_a_case_gives_the_same_arrays_again_and_all_its_checks_hold(case):
    if case.run is cases.run_chain:
        pytest.importorskip("matplotlib")
    n = case.gate_rows if case.min_cluster_size > 20 else 240
    settings = Settings(case.min_cluster_size, case.min_samples, 1, "cpu")
    probes = [cases.Probe(settings, 1), cases.Probe(settings._replace(n_threads=2), 1, ())]
    first, second = (case.run(probe, n, case.seed) for probe in probes)
    assert probes[0].checks or case.run is cases.run_manhattan
    assert [entry for probe in probes for entry in probe.checks if not entry[1]] == []
    assert all(step["repeats"] == 1 for step in probes[0].steps.values())
    assert first.keys() == second.keys()
    assert all(cases.same(first[name], second[name]) for name in first)


def test_memberships_beyond_the_budget_are_refused_by_size(monkeypatch):
    monkeypatch.setattr(mreach.prediction, "VECTORS_BYTES", 5000)  # of 14 400
    probe = cases.Probe(Settings(100, 10, 1, "cpu"), 1)
    arrays = cases.run_memberships(probe, 600, 0)
    assert "vectors" not in arrays
    assert [passed for _, passed, _ in probe.checks] == [True, True, True]
    assert "600 rows" in probe.checks[0][2]


def test_a_depth_is_that_of_the_deepest_cluster():
    tree = mreach.HDBSCAN(2, min_samples=1).fit([[0.0], [0.1], [1.0], [1.1], [3.0], [3.1]]).condensed_tree_
    assert cases._depth(np.asarray(tree)) == 2


def case_run(seconds, case="new-rows", n=600, peaks=None):
    steps = {
        name: {
            "median_seconds": value,
            "min_seconds": value,
            "repeats": 1,
            "peak_bytes": (peaks or {}).get(name),
        }
        for name, value in seconds.items()
    }
    verdict = gate.Verdict("mreach[cpu]", "reference", 600, True, "equal bit for bit")
    return case_runner.CaseRun(case, "rows", n, 0, 20, 20, 2, [0.5, 0.0, 0.0], [verdict], steps)


def test_figures_of_cases():
    figure = case_runner.FIGURES["new-rows"]([case_run({"fit": 4.0, "new rows": 1.0})])[0]
    assert (figure.measured, figure.reached) == (0.25, True)
    cut = case_runner.FIGURES["cut"]([case_run({"fit": 4.0, "cut, leaf": 0.3, "cut, epsilon": 0.1})])[0]
    assert (cut.measured, cut.reached) == (0.3, False)
    sizes = [case_run({"fit": 1.0}, n=n, peaks={"fit": 100 * n}) for n in (1000, 2000)]
    assert case_runner.FIGURES["memory"](sizes)[0].measured == 1.0
    cosine = case_run({"cosine": 3.0, "euclidean": 2.0})
    shown = case_runner.FIGURES["cosine"]([cosine])[0].line()
    assert (shown["target"], shown["measured"], shown["reached"]) == ("-", "1.5 x", "-")


@pytest.mark.parametrize("name", cases.CASES)
def test_a_case_without_times_has_figures_that_say_so(name):
    run = replace(case_run({}, name), verdicts=[])
    assert not run.passed
    assert [figure.line()["measured"] for figure in case_runner.FIGURES[name]([run])] == ["not measured"]
    assert "gate FAILED" in run.lines()


def test_the_command_writes_cases_with_the_load_of_the_machine(tmp_path, capsys):
    argv = ["cases", "--cases", "new-rows", "--divisor", "1000000", "--repeats", "1", "--peers"]
    assert cli.main([*argv, "--output", str(tmp_path)]) == 0
    document = json.loads(next(tmp_path.glob("*.json")).read_text())
    assert len(document["machine"]["load_average"]) == 3
    (run,) = document["cases"]
    assert run["passed"]
    assert run["steps"]["new rows"]["median_seconds"] > 0
    assert {verdict["against"] for verdict in run["verdicts"]} >= {"reference"}
    assert "load average" in next(tmp_path.glob("*.md")).read_text()
    capsys.readouterr()


def test_a_case_that_differs_from_the_reference_is_not_timed(monkeypatch):
    monkeypatch.setattr(
        gate, "check_reference", lambda *_: gate.Verdict("mreach", "reference", 600, False, "differs")
    )
    with open_workers(Options(peers=(), threads=1, repeats=1)) as workers:
        (run,), (figure,) = case_runner.measure_cases(workers, ["cosine"], divisor=1000)
    assert not run.passed
    assert run.steps == {}
    assert figure.measured is None
