"""Fitted models as files: the same bits in another process, and plain words about files that are broken."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mreach import HDBSCAN, load_model, save_model
from mreach.datasets import load_emg_clips

ARRAYS = (
    "labels_",
    "probabilities_",
    "core_distances_",
    "minimum_spanning_tree_",
    "single_linkage_tree_",
    "condensed_tree_",
    "cluster_persistence_",
    "outlier_scores_",
)


def lattice() -> np.ndarray:
    """Return two equal squares, whose labels only their rows can order, and rows with NaN and infinity."""
    side = np.array([(x, y) for x in range(6) for y in range(6)], float)
    return np.vstack(([[np.nan, 0]], side + 100, [[0, np.inf]], side, [[50, 50]]))


def same(one: Any, other: Any) -> None:
    for name in ARRAYS:
        left, right = getattr(one, name), getattr(other, name)
        assert type(left) is type(right)
        assert left.dtype == right.dtype
        assert left.tobytes() == right.tobytes(), name
    for name, value in one.get_params().items():
        np.testing.assert_equal(other.get_params()[name], value)
    assert one.n_features_in_ == other.n_features_in_


MODELS = {
    "clips": lambda: HDBSCAN(min_cluster_size=20, store_centers="both").fit(load_emg_clips()[:1200]),
    "lattice": lambda: HDBSCAN(min_cluster_size=np.int64(9), alpha=np.float32(1.5), min_samples=3).fit(
        lattice()
    ),
    "one row": lambda: HDBSCAN(min_samples=1, allow_single_cluster=True).fit([[1.0, 2.0]]),
    "weights": lambda: HDBSCAN(min_cluster_size=9).fit(lattice(), sample_weight=np.arange(75) % 4),
    "seuclidean": lambda: HDBSCAN(metric="seuclidean").fit(lattice()[1:37]),
    "minkowski": lambda: HDBSCAN(metric="minkowski", p=3).fit(lattice()[1:37]),
    "mahalanobis": lambda: HDBSCAN(metric="mahalanobis", metric_params={"VI": np.diag([2.0, 1.0])}).fit(
        lattice()[1:37]
    ),
    "haversine": lambda: HDBSCAN(metric="haversine").fit(lattice()[38:74] / 9),
    "precomputed": lambda: HDBSCAN(metric="precomputed").fit(
        np.abs(np.subtract.outer(np.arange(30.0) ** 2, np.arange(30.0) ** 2))
    ),
    "reference": lambda: HDBSCAN(backend="reference", cluster_selection_epsilon=0.5).fit(lattice()),
}


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest) -> HDBSCAN:
    made: HDBSCAN = MODELS[request.param]()
    return made


def test_a_model_comes_back_bit_for_bit(model: HDBSCAN, tmp_path: Path) -> None:
    save_model(model, tmp_path / "model.npz")
    again = load_model(tmp_path / "model.npz")
    same(model, again)
    for name in ("centroids_", "medoids_"):
        assert hasattr(model, name) == hasattr(again, name)
        if hasattr(model, name):
            assert getattr(model, name).tobytes() == getattr(again, name).tobytes()
    for asked in (
        {"min_cluster_size": 4},
        {"cluster_selection_method": "leaf"},
        {"allow_single_cluster": True},
    ):
        same(model.cut(**asked), again.cut(**asked))
    same(model.cut(min_cluster_size=4), load_saved(again.cut(min_cluster_size=4), tmp_path))
    new = new_rows(model)
    for one, other in zip(placed(model, new), placed(again, new), strict=True):
        assert one.tobytes() == other.tobytes()
    assert np.array_equal(model.dbscan_clustering(1.5), again.dbscan_clustering(1.5))
    clusters = again.single_linkage_tree_.get_clusters(1.5, 3)
    assert np.array_equal(model.single_linkage_tree_.get_clusters(1.5, 3), clusters)
    assert model.relative_validity_ == again.relative_validity_


def new_rows(model: HDBSCAN) -> np.ndarray:
    if model.metric == "precomputed":
        return np.linspace(0, 900, 2 * model.n_features_in_).reshape(2, -1)
    return np.vstack((np.linspace(-1, 1.5, 2 * model.n_features_in_).reshape(2, -1), model._rows.data[:9]))


def placed(model: HDBSCAN, new: np.ndarray) -> list[np.ndarray]:
    """Return all that a model says about new rows, and about its own."""
    labels, strengths = model.approximate_predict(new)
    return [
        labels,
        strengths,
        model.approximate_predict_scores(new),
        model.membership_vector(new),
        model.all_points_membership_vectors(),
    ] + ([model.assign_noise()] if model.metric != "precomputed" else [])


def test_a_model_without_its_rows_can_be_cut_and_not_predict(tmp_path: Path) -> None:
    model = HDBSCAN(min_cluster_size=9, prediction_data=False).fit(lattice())
    again = load_saved(model, tmp_path)
    same(model.cut(cluster_selection_method="leaf"), again.cut(cluster_selection_method="leaf"))
    with pytest.raises(ValueError, match="prediction_data=True"):
        again.predict(lattice())


def manhattan(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.abs(one - other).sum())


def load_saved(model: HDBSCAN, folder: Path) -> HDBSCAN:
    save_model(model, folder / "cut.npz")
    return load_model(folder / "cut.npz")


def test_all_that_a_fit_sets_is_saved(tmp_path: Path) -> None:
    model = HDBSCAN(store_centers="both").fit(lattice())
    again = load_saved(model, tmp_path)
    assert set(vars(model)) == set(vars(again))
    assert model._rows._fields == again._rows._fields
    for name in ("n_rows", "finite_rows", "other_rows", "other_labels", "copies"):
        assert np.array_equal(getattr(model._rows, name), getattr(again._rows, name))


def test_another_process_reads_it(tmp_path: Path) -> None:
    model = HDBSCAN(min_cluster_size=9).fit(lattice())
    save_model(model, tmp_path / "model.npz")
    script = (
        "import sys, mreach; model = mreach.load_model('model.npz')\n"
        "sys.stdout.buffer.write(model.cut(9, 'leaf').labels_.tobytes())"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, check=True)
    assert done.stdout == model.cut(9, "leaf").labels_.tobytes()


def test_equal_models_are_equal_files_that_numpy_reads(tmp_path: Path) -> None:
    for name in ("a.npz", "b.npz"):
        save_model(HDBSCAN().fit(lattice()), tmp_path / name)
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    with np.load(tmp_path / "a.npz", allow_pickle=False) as arrays:
        assert np.array_equal(arrays["labels_"], HDBSCAN().fit_predict(lattice()))
        assert json.loads(arrays["mreach.json"])["format"] == "mreach model"


def test_parameters_set_later_and_column_names_come_along(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(lattice(), columns=["x", "y"])
    model = HDBSCAN(min_cluster_size=6).fit(frame)
    model.set_params(min_cluster_size=7)
    again = load_saved(model, tmp_path)
    assert list(again.feature_names_in_) == ["x", "y"]
    assert again.min_cluster_size == 7
    assert again.cut().min_cluster_size == 6


# Files that are not what they should be.


def rewritten(path: Path, header: dict[str, Any] | None = None, **arrays: np.ndarray | None) -> Path:
    """Write the file again with other values in its header, and other arrays (None: without that one)."""
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    text = json.loads(parts["mreach.json"]) | (header or {})
    parts["mreach.json"] = json.dumps(text).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, part in parts.items():
            if name.removesuffix(".npy") not in arrays:
                archive.writestr(name, part)
        for name, array in arrays.items():
            if array is not None:
                with archive.open(f"{name}.npy", "w") as member:
                    np.lib.format.write_array(member, array)
    return path


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    save_model(HDBSCAN(min_cluster_size=9).fit(lattice()), tmp_path / "model.npz")
    return tmp_path / "model.npz"


def test_rewriting_changes_nothing_by_itself(saved: Path) -> None:
    before = load_model(saved)
    same(before, load_model(rewritten(saved)))


def edges(source: int, target: int, weight: float = 0.0) -> np.ndarray:
    """Return the spanning tree of the lattice with its first edge replaced."""
    changed = HDBSCAN(min_cluster_size=9).fit(lattice()).minimum_spanning_tree_
    changed = np.array(changed)
    changed[0] = source, target, weight
    return changed


def condensed(**fields: int) -> np.ndarray:
    changed = np.array(HDBSCAN(min_cluster_size=9).fit(lattice()).condensed_tree_)
    for name, value in fields.items():
        changed[name][0] = value
    return changed


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"labels_": None}, "labels_ cannot be read"),
        ({"labels_": np.zeros(75, np.int32)}, r"labels_ has dtype int32, not int64"),
        ({"labels_": np.full(75, -9)}, "labels_ are not labels"),
        ({"probabilities_": np.zeros(74)}, r"probabilities_ has shape \(74,\), not \(75\)"),
        ({"rows": np.zeros((73, 2), int)}, r"rows has dtype int64, not float32 or float64"),
        ({"other_rows": np.array([73, 0])}, "other_rows are not rows"),
        ({"other_rows": np.array([0])}, "labels_ are not labels"),
        ({"rows": None}, "rows cannot be read"),
        ({"minimum_spanning_tree_": edges(1, 75)}, "names rows that are not there"),
        ({"minimum_spanning_tree_": edges(-1, 1)}, "names rows that are not there"),
        ({"minimum_spanning_tree_": edges(0, 1)}, "names rows that are not there"),
        ({"minimum_spanning_tree_": edges(1, 2, np.nan)}, "not sorted"),
        ({"minimum_spanning_tree_": edges(73, 74)}, "does not connect"),
        ({"condensed_tree_": condensed(parent=76)}, "not a tree of the rows"),
        ({"condensed_tree_": condensed(child=10**9)}, "not a tree of the rows"),
        ({"_selected": np.array([75, 99])}, "clusters that are not in condensed_tree_"),
        ({"_birth_heights": np.zeros(9)}, r"_birth_heights has shape \(9,\), not"),
    ],
)
def test_arrays_that_do_not_fit_are_named(saved: Path, arrays: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        load_model(rewritten(saved, **arrays))
    assert "model.npz is damaged" in str(caught.value)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ({"format": "other"}, "another format"),
        (
            {"format_version": 2, "mreach_version": "9.0"},
            "written by mreach 9.0, format version 2; .* install a newer",
        ),
        ({"format_version": "1"}, "format_version is '1'"),
        ({"backend": "quantum"}, "'quantum'"),
        ({"n_features": None}, "n_features"),
        ({"feature_names": ["x"]}, "feature_names"),
        ({"parameters": {"colour": "red"}}, "parameters cannot be read .*colour"),
    ],
)
def test_headers_that_do_not_fit_are_named(saved: Path, header: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load_model(rewritten(saved, header))


def test_weights_that_are_none_are_told(tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    save_model(HDBSCAN().fit(lattice(), sample_weight=np.full(75, 2)), path)
    with pytest.raises(ValueError, match="copies are not all at least 1"):
        load_model(rewritten(path, copies=np.zeros(73, int)))


def test_foreign_and_broken_files_are_told(saved: Path, tmp_path: Path) -> None:
    whole = saved.read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 1
    np.savez(tmp_path / "arrays.npz", labels_=np.zeros(3))
    for name, content in {
        "text.npz": b"label,probability\n0,1\n",
        "empty.npz": b"",
        "half.npz": whole[: len(whole) // 2],
        "flipped.npz": bytes(flipped),
        "arrays.npz": (tmp_path / "arrays.npz").read_bytes(),
    }.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match=r"is not a model of mreach|is damaged"):
            load_model(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        load_model(tmp_path / "nowhere.npz")


@pytest.mark.parametrize("shape", ["(1099511627776,)", "(10000000000000000000000000,)", "(3,)"])
def test_arrays_larger_than_their_file_ask_for_no_memory(saved: Path, shape: str) -> None:
    with zipfile.ZipFile(saved) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    text = f"{{'descr': '<i8', 'fortran_order': False, 'shape': {shape}}}".ljust(117) + "\n"
    parts["labels_.npy"] = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()
    with zipfile.ZipFile(saved, "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    with pytest.raises(ValueError, match=r"labels_ cannot be read .0 bytes are there"):
        load_model(saved)


def test_arrays_that_begin_before_the_file_are_told(saved: Path) -> None:
    content = bytearray(saved.read_bytes())
    content[-4] ^= 128  # in where the directory of the archive begins: all places move by as much
    saved.write_bytes(content)
    with pytest.raises(ValueError, match="is not a model of mreach"):
        load_model(saved)


def test_headers_of_arrays_with_one_bit_changed_are_told(saved: Path) -> None:
    """NumPy reads them as Python expressions, which fail in ways of their own."""
    with zipfile.ZipFile(saved) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    loaded = 0
    for place in range(100):
        for bit in (0, 3, 5):
            part = bytearray(parts["labels_.npy"])
            part[place] ^= 1 << bit
            with zipfile.ZipFile(saved, "w") as archive:
                for name, content in {**parts, "labels_.npy": bytes(part)}.items():
                    archive.writestr(name, content)
            with contextlib.suppress(ValueError):
                load_model(saved)
                loaded += 1
    assert loaded < 30  # spaces in the header


def test_pickles_in_a_file_are_not_run(saved: Path) -> None:
    class Loud:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(saved.parent / "ran"),)

    array = np.empty(1, object)
    array[0] = Loud()
    with pytest.raises(ValueError, match="rows cannot be read"):
        load_model(rewritten(saved, rows=array))
    assert not (saved.parent / "ran").exists()


def test_what_cannot_be_saved_is_told(tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    with pytest.raises(TypeError, match="HDBSCAN can be saved, got dict"):
        save_model({}, path)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"metric=<function .* cannot be saved"):
        save_model(HDBSCAN(metric=manhattan).fit(lattice()[1:20]), path)
    with pytest.raises(AttributeError, match="not fitted"):
        save_model(HDBSCAN(), path)
    X = lattice()
    model = HDBSCAN().fit(X)
    X[:] = 0
    with pytest.raises(ValueError, match="changed in place"):
        save_model(model, path)
    assert not path.exists()


def test_a_failing_write_leaves_the_old_file(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = saved.read_bytes()
    write = np.lib.format.write_array
    n_written = 0

    def disk_full(file: Any, array: Any, **keywords: Any) -> None:
        nonlocal n_written
        n_written += 1
        if n_written == 4:
            raise OSError(28, "No space left on device")
        write(file, array, **keywords)

    monkeypatch.setattr("mreach.model_file.npy.write_array", disk_full)
    with pytest.raises(OSError, match="No space left"):
        save_model(HDBSCAN().fit(lattice()), saved)
    assert n_written == 4
    assert saved.read_bytes() == before
    assert [one.name for one in saved.parent.iterdir()] == ["model.npz"]
