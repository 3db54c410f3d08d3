"""The command line: from files to files, with the exit codes and words that docs/cli.md promises."""

from __future__ import annotations

import inspect
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mreach
from mreach import HDBSCAN
from mreach.cli.options import FIT_OPTIONS, WITHOUT_OPTION
from mreach.cli.running import run
from mreach.datasets import load_emg_clips

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "cli.md"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder with a small table."""
    monkeypatch.chdir(tmp_path)
    np.save("data.npy", rows())
    return tmp_path


def rows() -> np.ndarray:
    rng = np.random.default_rng(0)
    return np.vstack((rng.normal(0, 1, (40, 3)), rng.normal(20, 1, (30, 3)), [[9.0, 9.0, 9.0]]))


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Run a command and return its exit code, standard output and standard error."""
    code = run(list(arguments))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def cluster_labels(capsys: pytest.CaptureFixture[str], *arguments: str) -> np.ndarray:
    code, _, err = said(capsys, "cluster", *arguments, "--output", "out", "--no-model")
    assert (code, err) == (0, "")
    labels: np.ndarray = np.load("out/labels.npy")
    return labels


# What the commands leave.


def test_a_cluster_command_writes_what_a_fit_gives(capsys: pytest.CaptureFixture[str]) -> None:
    options = "--min-cluster-size 8 --min-samples 3 --cluster-selection-method leaf --alpha 1.5"
    code, out, err = said(capsys, "cluster", "data.npy", *options.split(), "--store-centers", "both")
    assert (code, err) == (0, "")
    model = HDBSCAN(8, 3, alpha=1.5, cluster_selection_method="leaf", store_centers="both").fit(rows())
    made = Path("data-clusters")
    for name in ("labels", "probabilities", "outlier_scores"):
        assert np.load(made / f"{name}.npy").tobytes() == getattr(model, f"{name}_").tobytes()
    again = mreach.load_model(made / "model.npz")
    assert again.predict(rows()[:5] + 0.1).tolist() == model.predict(rows()[:5] + 0.1).tolist()
    assert again.medoids_.tobytes() == model.medoids_.tobytes()
    summary = json.loads((made / "summary.json").read_text())
    assert summary["parameters"]["alpha"] == 1.5
    assert set(summary["files"]) == {one.stem for one in made.iterdir()} - {"summary"}
    assert f"clusters  {model.labels_.max() + 1}, of" in out


def test_every_parameter_of_a_fit_is_an_option() -> None:
    assert {*FIT_OPTIONS, *WITHOUT_OPTION} == set(inspect.signature(HDBSCAN).parameters)
    assert not set(FIT_OPTIONS) & set(WITHOUT_OPTION)


def test_json_is_all_that_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = said(capsys, "cluster", "data.npy", "--json", "--quiet")
    assert (code, err) == (0, "")
    summary = json.loads(out)
    assert summary["n_clusters"] == 2
    sizes = np.bincount(HDBSCAN().fit(rows()).labels_ + 1)[1:]
    assert [one["n_rows"] for one in summary["clusters"]] == sizes.tolist()
    assert summary["parameters"]["cluster_selection_epsilon_max"] == "inf"
    assert said(capsys, "cluster", "data.npy", "--quiet") == (0, "", "")
    assert json.loads(said(capsys, "info", "--json")[1])["backends"]["reference"]["available"] is True


def test_clips_are_kept_and_predicted(capsys: pytest.CaptureFixture[str]) -> None:
    clips = load_emg_clips()[:600]
    np.savez("clips.npz", clips=clips, rate=np.float64(2048))
    code, _, err = said(capsys, "clips", "clips.npz", "--report", "clips.html")
    assert (code, err) == (0, "")
    model = HDBSCAN(min_cluster_size=20).fit(clips)
    kept = np.load("clips-kept/kept.npy")
    assert np.array_equal(kept, model.labels_ >= 0)
    assert np.load("clips-kept/kept_clips.npy").tobytes() == clips[kept].tobytes()
    assert Path("clips.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    new = load_emg_clips()[600:700]
    np.save("new.npy", new)
    assert (
        said(capsys, "predict", "clips-kept/model.npz", "new.npy", "--membership", "--table", "new.tsv")[0]
        == 0
    )
    labels, strengths = model.approximate_predict(new)
    assert np.load("new-predicted/labels.npy").tobytes() == labels.tobytes()
    assert np.load("new-predicted/probabilities.npy").tobytes() == strengths.tobytes()
    assert np.load("new-predicted/membership.npy").tobytes() == model.membership_vector(new).tobytes()
    table = np.genfromtxt("new.tsv", delimiter="\t", names=True)
    assert table["outlier_score"].tobytes() == model.approximate_predict_scores(new).tobytes()


@pytest.mark.parametrize(
    "command",
    [
        "cluster data.npy --report data.npy",
        "cluster data.npy --table data.csv --report data.csv",
        "cluster data.npy --report data-clusters/summary.json",
        "cluster labels.npy --output .",
        "clips kept_clips.npy --output .",
        "clips data.npy --output linked",
        "extract clips.npy --no-preprocess --output .",
        "predict model.npz labels.npy --output .",
        "predict model.npz data.npy --table data.csv --output .",
    ],
)
def test_what_is_read_is_never_written_over(
    folder: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    for name in ("labels.npy", "kept_clips.npy", "clips.npy"):
        np.save(name, rows())
    mreach.save_model(HDBSCAN().fit(rows()), "model.npz")
    (folder / "data.csv").symlink_to("model.npz")
    (folder / "linked").mkdir()
    (folder / "linked" / "kept.npy").symlink_to("../data.npy")
    before = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    code, out, err = said(capsys, *command.split())
    assert (code, out) == (2, "")
    assert re.fullmatch(r"mreach: \S+ (is read, and|would be written over) .*: name another .*\n", err)
    assert {path: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before


def test_nothing_found_is_an_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    np.save("flat.npy", np.random.default_rng(0).normal(size=(30, 4)))
    code, out, err = said(capsys, "cluster", "flat.npy", "--min-cluster-size", "20")
    assert code == 3
    assert "clusters  0" in out
    assert err.count("\n") == 1
    assert "warning: all 30 rows are noise" in err
    code, _, err = said(capsys, "clips", "flat.npy")
    assert code == 3
    assert "all 30 clips are outliers" in err
    assert np.load("flat-kept/kept_clips.npy").shape == (30, 4)
    assert said(capsys, "clips", "flat.npy", "--min-cluster-size", "31")[0] == 3
    code, _, err = said(capsys, "clips", "flat.npy", "--on-problem", "raise", "--output", "none")
    assert code == 3
    assert "all 30 clips are outliers" in err
    assert not Path("none").exists()


# What the commands read.


def test_text_of_many_kinds_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    pandas = pytest.importorskip("pandas")
    expected = HDBSCAN().fit_predict(rows()).tolist()
    frame = pandas.DataFrame(rows(), columns=["x", "y", "z"])
    named = frame.assign(group="a")
    frame.to_csv("named.csv", index=False)
    frame.to_csv("bare.tsv", index=False, header=False, sep="\t")
    frame.to_csv("numbered.csv.gz", index=False, header=["0", "1", "2"])
    frame.to_csv("indexed.csv")
    frame.to_csv("semicolons.csv", index=False, sep=";")
    named.to_csv("text.csv", index=False)
    for name in ("named.csv", "bare.tsv", "numbered.csv.gz", "indexed.csv", "semicolons.csv"):
        assert cluster_labels(capsys, name).tolist() == expected, name
    assert cluster_labels(capsys, "text.csv", "--columns", "x,y", "--columns", "z").tolist() == expected
    code, _, err = said(capsys, "cluster", "text.csv")
    assert (code, err) == (
        2,
        "mreach: text.csv: column 'group' does not hold numbers: choose others with --columns x,y,z\n",
    )
    assert said(capsys, "cluster", "named.csv", "--no-header")[0] == 2


def test_numbers_in_text_are_read_bit_for_bit() -> None:
    pytest.importorskip("pandas")
    from mreach.cli.reading import read_table

    values = np.random.default_rng(0).normal(size=(200, 3)) * 10.0 ** np.arange(-150, 250, 2)[:, None]
    np.savetxt("values.csv", values, delimiter=",", fmt="%.17g")
    assert read_table(Path("values.csv")).data.tobytes() == values.tobytes()


def test_columns_are_found_by_the_names_of_the_model(capsys: pytest.CaptureFixture[str]) -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    frame = pandas.DataFrame(rows(), columns=["x", "y", "z"])
    frame.to_parquet("data.parquet")
    assert said(capsys, "cluster", "data.parquet", "--table", "labels.parquet")[0] == 0
    assert list(pandas.read_parquet("labels.parquet").columns) == [
        "row",
        "label",
        "probability",
        "outlier_score",
    ]
    frame.assign(other=1.0)[["z", "other", "x", "y"]].to_csv("new.csv", index=False)
    code, _, err = said(capsys, "predict", "data-clusters/model.npz", "new.csv")
    assert (code, err) == (0, "")
    assert np.array_equal(np.load("new-predicted/labels.npy"), np.load("data-clusters/labels.npy"))
    frame[["x", "y"]].to_csv("new.csv", index=False)
    code, _, err = said(capsys, "predict", "data-clusters/model.npz", "new.csv")
    assert (code, err) == (2, "mreach: new.csv has no column 'z'; it has x, y\n")


def test_parquet_is_read_and_written(capsys: pytest.CaptureFixture[str]) -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    frame = pandas.DataFrame(rows(), columns=["x", "y", "z"])
    frame.to_parquet("data.parquet")
    assert said(capsys, "cluster", "data.parquet", "--table", "labels.parquet", "--columns", "z,x")[0] == 0
    labels = pandas.read_parquet("labels.parquet")
    assert list(labels.columns) == ["row", "label", "probability", "outlier_score"]
    assert labels["label"].tolist() == HDBSCAN().fit_predict(rows()[:, [2, 0]]).tolist()
    assert list(mreach.load_model("data-clusters/model.npz").feature_names_in_) == ["z", "x"]


def test_arrays_in_hdf5_and_zarr_are_found_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    h5py, zarr = pytest.importorskip("h5py"), pytest.importorskip("zarr")
    expected = HDBSCAN().fit_predict(rows()).tolist()
    with h5py.File("data.h5", "w") as file:
        file["group/rows"] = rows()
        file["group/rate"] = 2048.0
    zarr.save_array("one.zarr", rows())
    root = zarr.open_group("two.zarr", mode="w")
    for name in ("rows", "others"):
        root[name] = rows() if name == "rows" else rows()[::-1]
    assert cluster_labels(capsys, "data.h5").tolist() == expected
    assert cluster_labels(capsys, "data.h5", "--dataset", "/group/rows").tolist() == expected
    assert cluster_labels(capsys, "one.zarr").tolist() == expected
    assert cluster_labels(capsys, "two.zarr", "--dataset", "rows").tolist() == expected
    code, _, err = said(capsys, "cluster", "two.zarr")
    assert code == 2
    assert "holds several arrays: choose one with --dataset; it has others (71, 3), rows (71, 3)" in err
    assert "has group/rate" in said(capsys, "cluster", "data.h5", "--dataset", "nothing")[2]


def test_a_recording_gives_clips_and_templates(capsys: pytest.CaptureFixture[str]) -> None:
    signal = np.random.default_rng(0).normal(size=(9000, 6)).astype(np.float32)
    signal[range(500, 8600, 400), 2] = np.linspace(9, 15, 21)
    np.save("signal.npy", signal)
    code, _, err = said(capsys, "extract", "signal.npy", "--no-preprocess", "--threshold", "7")
    assert (code, err) == (0, "")
    found = mreach.ephys.extract_clips(signal, threshold=7, preprocess=False)
    assert np.load("signal-clips/clips.npy").tobytes() == found.clips.tobytes()
    with np.load("signal-clips/spikes.npz") as spikes:
        assert spikes["samples"].tolist() == found.samples.tolist()
    code, _, err = said(capsys, "templates", "signal-clips/clips.npy", "--n-templates", "2", "--n-pcs", "3")
    assert code == 0
    assert mreach.ephys.load_templates("clips-templates/wTEMP.npz").wTEMP.shape == (2, 61)
    code, out, _ = said(capsys, "extract", "signal.npy", "--no-preprocess", "--threshold", "90", "-o", "none")
    assert code == 3
    assert out.startswith("clips  0")
    assert not Path("none").exists()


def test_folders_of_spikeinterface_are_recordings(capsys: pytest.CaptureFixture[str]) -> None:
    core = pytest.importorskip("spikeinterface.core", reason="needs SpikeInterface")
    signal = np.random.default_rng(0).normal(size=(6000, 3)).astype(np.float32).clip(-4, 4)
    signal[[1000, 3000], [0, 2]] = 9
    recording = core.NumpyRecording([signal], 30_000.0)
    recording.save(folder="one", verbose=False)
    recording.save(folder="two.zarr", format="zarr", verbose=False)
    for name in ("one", "two"):
        capsys.readouterr()
        path = next(Path().glob(f"{name}*"))
        assert said(capsys, "extract", str(path), "--no-preprocess")[0] == 0
        with np.load(f"{name}-clips/spikes.npz") as spikes:
            assert spikes["samples"].tolist() == [1000, 3000]
    Path("empty").mkdir()
    code, _, err = said(capsys, "extract", "empty")
    assert code == 2
    assert "empty is no recording that SpikeInterface can load" in err


# What goes wrong.


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ("cluster nowhere.npy", 2, r"nowhere\.npy: there is no such file"),
        ("cluster data.xyz", 2, r"data\.xyz: there is no such file"),
        ("cluster junk.npy", 2, "junk.npy is no array"),
        ("cluster junk.npz", 2, "junk.npz is no .npz file"),
        ("cluster junk.png", 2, "the ending of the name does not say what it is; known are .npy"),
        ("cluster objects.npy", 2, "objects.npy is no array of numbers"),
        (
            "cluster data.npy --min-cluster-size 1",
            2,
            "min_cluster_size must be .* at least 2, got 1",
        ),
        ("cluster data.npy --min-cluster-size many", 2, "--min-cluster-size"),
        ("cluster data.npy --colour red", 2, "--colour"),
        ("cluster data.npy --metric cosin", 2, "metric"),
        ("cluster data.npy --dataset x", 2, "leave out --dataset"),
        ("cluster data.npy --columns x", 2, "leave out --columns"),
        ("cluster data.npy --output data.npy", 2, "data.npy is a file: name a folder"),
        ("cluster data.npy --table labels.xls", 2, "the ending must be one of .csv"),
        ("cluster data.npy --report nowhere/r.html", 2, "nowhere: there is no such folder"),
        ("cluster data.npy --backend cuda --device 99", 1, "cannot run here"),
        ("cluster data.npy --metric-params {", 2, "--metric-params '{' is no JSON"),
        ("cluster data.npy --metric minkowski --p 0", 2, "p must be"),
        ("predict data.npy data.npy", 2, "data.npy is not a model of mreach"),
        ("frobnicate", 2, "No such command 'frobnicate'"),
        ("cluster", 2, "Missing argument"),
    ],
)
def test_errors_are_one_line(
    capsys: pytest.CaptureFixture[str], arguments: str, code: int, message: str
) -> None:
    for name in ("junk.npy", "junk.npz", "junk.png"):
        Path(name).write_bytes(b"junk")
    np.save("objects.npy", np.array([{}]), allow_pickle=True)
    result, out, err = said(capsys, *shlex.split(arguments))
    assert (result, out) == (code, "")
    assert err.startswith("mreach: ")
    assert err.count("\n") == 1
    assert re.search(message, err, flags=re.IGNORECASE)
    assert not Path("data-clusters").exists()


def test_a_missing_library_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("data.h5").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "h5py", None)
    code, _, err = said(capsys, "cluster", "data.h5")
    assert (code, err) == (1, "mreach: reading HDF5 needs h5py, which is not installed: pip install h5py\n")


def test_debug_shows_where_an_error_comes_from(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = said(capsys, "cluster", "data.npy", "--alpha", "0", "--debug")
    assert code == 2
    assert "Traceback" in err
    assert err.splitlines()[-1].startswith("mreach: alpha must be above 0")


def test_a_full_disk_leaves_what_was_there(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert said(capsys, "cluster", "data.npy", "--quiet")[0] == 0
    before = {one: one.read_bytes() for one in Path("data-clusters").iterdir()}
    np.save("data.npy", rows()[::-1])

    def disk_full(*arguments: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("mreach.files.os.fsync", disk_full)
    code, out, err = said(capsys, "cluster", "data.npy")
    assert (code, out) == (1, "")
    path = Path("data-clusters") / "labels.npy"
    assert err == (
        f"mreach: {path}: No space left on device: free some space, or name another folder with --output\n"
    )
    assert {one: one.read_bytes() for one in Path("data-clusters").iterdir()} == before


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = said(capsys, "--version")
    assert (code, out) == (0, f"{mreach.__version__}\n")
    code, out, _ = said(capsys, "clips", "--help")
    assert code == 0
    assert "--cluster-selection-epsilon-max" in out
    code, out, err = said(capsys)
    assert (code, out) == (2, "")
    assert "Commands:" in err


# A process of its own.


def process(*arguments: str, **options: Any) -> subprocess.Popen[str]:
    path = os.pathsep.join(os.path.abspath(one) for one in sys.path if one)
    return subprocess.Popen(
        [sys.executable, "-m", "mreach", *arguments],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        **options,
    )


def test_interrupted_and_closed_pipes_are_quiet(folder: Path) -> None:
    rng = np.random.default_rng(0)
    np.save("many.npy", rng.normal(size=(60_000, 40)))  # a fit of many seconds
    read, write = os.pipe()
    os.close(read)
    piped = process("info", stdout=write)
    os.close(write)
    fit = process("cluster", "many.npy", "--n-jobs", "1", "--progress", stdout=subprocess.DEVNULL)
    assert fit.stderr is not None
    assert fit.stderr.read(1)  # the bar: the fit has begun
    time.sleep(0.2)
    fit.send_signal(signal.SIGINT)
    err = fit.communicate(timeout=60)[1]
    assert fit.returncode == 130
    assert err.splitlines()[-1] == "mreach: interrupted: nothing was left half written"
    assert "Traceback" not in err
    assert sorted(one.name for one in folder.iterdir()) == ["data.npy", "many.npy"]
    assert piped.communicate(timeout=60)[1] == ""
    assert piped.returncode == 141


# The documentation.


def examples() -> list[tuple[str, str]]:
    """Return command and output of each example in the document, in order."""
    if not DOCUMENT.is_file():  # installed without its repository
        return []
    blocks = re.findall(r"```console\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), flags=re.DOTALL)
    found = re.findall(r"^\$ mreach (.*)\n((?:[^$].*\n)*)", "".join(blocks), flags=re.MULTILINE)
    assert len(found) == "".join(blocks).count("$ mreach")
    return found


@pytest.mark.skipif(sys.platform == "win32", reason="closes standard streams by the shell")
@pytest.mark.parametrize("closed", ["1>&-", "2>&-", "<&- >&- 2>&-"])
def test_streams_that_are_closed_hold_nothing_up(folder: Path, closed: str) -> None:
    command = f"{shlex.quote(sys.executable)} -m mreach cluster data.npy {closed}"
    assert subprocess.run(command, shell=True, capture_output=True).returncode == 0
    assert Path("data-clusters/summary.json").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="names of files are any bytes there")
def test_names_that_are_no_text_are_shown(folder: Path) -> None:
    os.rename(b"data.npy", b"d\xff.npy")
    command = [sys.executable, "-m", "mreach", "cluster", b"d\xff.npy", "--report", "page.html"]
    # Strict, as it is by default in most languages, but not in "C".
    ran = subprocess.run(command, capture_output=True, env=os.environ | {"PYTHONIOENCODING": "utf-8:strict"})
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert b"d\\udcff-clusters" in ran.stdout
    assert "d\\udcff.npy" in Path("page.html").read_text()


def test_options_are_named_as_they_are_typed(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = said(capsys, "extract", "data.npy")
    assert (code, "--sampling-frequency" in err, "--no-preprocess" in err) == (2, True, True)
    os.mkdir("folder")
    assert (
        said(capsys, "predict", "folder", "data.npy")[2]
        == "mreach: folder: Is a directory: name a file in it\n"
    )
    Path("half.npz").write_bytes(b"PK\x03\x04")
    _, _, err = said(capsys, "cluster", "half.npz")
    assert err.startswith("mreach: half.npz is no .npz file")
    assert err.count("\n") == 1


def test_the_document_says_what_happens(capsys: pytest.CaptureFixture[str]) -> None:
    pandas = pytest.importorskip("pandas")
    np.save("clips.npy", load_emg_clips())
    signal = np.random.default_rng(0).normal(size=(3000, 4)).astype(np.float32).clip(-4, 4)
    signal[[800, 1500, 2200], [0, 3, 1]] = [9, -12, 15]
    np.save("signal.npy", signal)
    rng = np.random.default_rng(0)
    points = np.vstack((rng.normal(0, 1, (60, 2)), rng.normal(30, 1, (59, 2)), [[15.0, 15.0]]))
    pandas.DataFrame(points, columns=["x", "y"]).assign(group="a").to_csv("table.csv", index=False)
    pandas.DataFrame({"y": [0.0, 30.0, 15.0], "x": [0.0, 30.0, 99.0]}).to_csv("new.csv", index=False)
    for command, expected in examples():
        _, out, err = said(capsys, *shlex.split(command))
        pattern = re.escape(expected).replace(r"\.\.\.", r"[^\n]*")
        assert re.fullmatch(pattern, out + err), f"$ mreach {command}\n{out}{err}"
