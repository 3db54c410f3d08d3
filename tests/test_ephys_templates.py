"""Universal templates: against plain linear algebra, in one order and sign, in a file that is whole."""

from __future__ import annotations

import itertools
import os
import stat
from pathlib import Path

import numpy as np
import pytest
from sklearn.cluster import KMeans
from threadpoolctl import threadpool_limits

from mreach.datasets import load_emg_clips
from mreach.ephys import (
    ClipsWarning,
    UniversalTemplates,
    load_templates,
    remove_outlier_clips,
    save_templates,
    universal_templates,
)
from mreach.files import replacing
from mreach.validation import InvalidParameterError

N_PER_SHAPE = (60, 45, 25)


@pytest.fixture(scope="module")
def clips() -> np.ndarray:
    """Three shapes, one more frequent than the other, and four clips that belong nowhere."""
    rng = np.random.default_rng(1)
    shapes = rng.normal(size=(3, 61)) * [[3], [2], [4]]
    some = np.repeat(shapes, N_PER_SHAPE, axis=0) + rng.normal(size=(sum(N_PER_SHAPE), 61)) * 0.05
    return np.concatenate((some, rng.normal(size=(4, 61)) * 20)).astype(np.float32)


def kept_of(clips: np.ndarray) -> np.ndarray:
    return np.arange(len(clips)) < sum(N_PER_SHAPE)


def test_components_are_those_of_all_clips(clips: np.ndarray) -> None:
    wPCA = universal_templates(clips, 3, 4, min_cluster_size=10).wPCA
    _, _, expected = np.linalg.svd(clips.astype(np.float64), full_matrices=False)
    assert wPCA.dtype == np.float32
    assert wPCA.shape == (4, 61)
    assert wPCA.flags.c_contiguous
    np.testing.assert_allclose(np.abs((wPCA * expected[:4]).sum(axis=1)), 1, atol=1e-5)
    np.testing.assert_allclose(wPCA @ wPCA.T, np.eye(4), atol=1e-5)
    assert (wPCA[range(4), np.abs(wPCA).argmax(axis=1)] > 0).all()


def test_templates_are_means_of_the_kept_clips(clips: np.ndarray) -> None:
    wTEMP = universal_templates(clips, 3, 4, min_cluster_size=10).wTEMP
    starts = np.cumsum((0, *N_PER_SHAPE))
    means = [clips[start:stop].astype(np.float64).mean(axis=0) for start, stop in itertools.pairwise(starts)]
    np.testing.assert_allclose(wTEMP, [mean / np.linalg.norm(mean) for mean in means], atol=1e-6)
    assert wTEMP.dtype == np.float32
    assert wTEMP.flags.c_contiguous
    np.testing.assert_allclose((wTEMP.astype(np.float64) ** 2).sum(axis=1), 1, atol=1e-6)


def test_kept_clips_may_be_given(clips: np.ndarray) -> None:
    expected = universal_templates(clips, 3, 4, min_cluster_size=10)
    given = universal_templates(clips, 3, 4, keep=remove_outlier_clips(clips, 10).mask)
    for one, other in zip(given, expected, strict=True):
        np.testing.assert_array_equal(one, other)
    everything = universal_templates(clips, 3, 4, keep=np.ones(len(clips), bool))
    np.testing.assert_array_equal(everything.wPCA, expected.wPCA)
    assert np.abs(everything.wTEMP - expected.wTEMP).max() > 0.1


def test_one_answer(clips: np.ndarray) -> None:
    """The same again, in other types and for other starts, where the groups are clear."""
    expected = universal_templates(clips, 3, 4, keep=kept_of(clips))
    for given, random_state in ((clips, 0), (clips, 7), (clips.astype(np.float64), 0), (clips.tolist(), 0)):
        found = universal_templates(given, 3, 4, keep=kept_of(clips), random_state=random_state)
        np.testing.assert_allclose(found.wPCA, expected.wPCA, atol=1e-5)
        np.testing.assert_allclose(found.wTEMP, expected.wTEMP, atol=1e-5)


def test_real_clips_as_scikit_learn_has_them() -> None:
    clips = load_emg_clips()
    wPCA, wTEMP = universal_templates(clips)
    kept = clips[remove_outlier_clips(clips).mask]
    with threadpool_limits(1):
        centres = KMeans(6, n_init=10, random_state=0).fit(kept).cluster_centers_
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    np.testing.assert_allclose((wTEMP @ centres.T).max(axis=1), 1, atol=1e-3)
    _, _, expected = np.linalg.svd(clips.astype(np.float64), full_matrices=False)
    np.testing.assert_allclose(np.abs((wPCA * expected[:6]).sum(axis=1)), 1, atol=1e-4)


def test_all_components_and_one_template(clips: np.ndarray) -> None:
    wPCA, wTEMP = universal_templates(clips, 1, 61, keep=kept_of(clips))
    assert wPCA.shape == (61, 61)
    assert wTEMP.shape == (1, 61)
    np.testing.assert_allclose(wPCA @ wPCA.T, np.eye(61), atol=1e-4)


def test_clips_that_are_not_finite_are_dropped(clips: np.ndarray) -> None:
    with_gap = np.concatenate((clips, np.full((1, 61), np.nan, np.float32)))
    expected = universal_templates(clips, 3, 4, min_cluster_size=10)
    with pytest.warns(ClipsWarning, match="1 of 135 clips") as caught:
        found = universal_templates(with_gap, 3, 4, min_cluster_size=10)
    assert caught[0].filename == __file__
    with pytest.warns(ClipsWarning, match="1 of 135 clips"):
        given = universal_templates(with_gap, 3, 4, keep=np.append(kept_of(clips), True))
    for one, other, third in zip(found, given, expected, strict=True):
        np.testing.assert_array_equal(one, third)
        np.testing.assert_array_equal(other, third)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_templates": 0}, "n_templates must be an integer of at least 1"),
        ({"n_pcs": 2.5}, "n_pcs must be an integer of at least 1"),
        ({"n_pcs": 62}, "n_pcs=62 components cannot come from 134 clips of 61 samples"),
        ({"n_templates": 131}, "n_templates=131 templates cannot come from 130 clips: give more clips"),
        ({"keep": np.zeros(134, bool)}, "n_templates=6 templates cannot come from 0 clips"),
        ({"keep": np.ones(3, bool)}, r"keep must hold True or False for each of the 134 clips, got bool"),
        ({"keep": np.ones(134)}, "keep must hold True or False for each of the 134 clips, got float64"),
        ({"on_problem": 1}, "on_problem must be one of"),
        ({"progress": None}, "progress must be"),
    ],
)
def test_bad_parameters(clips: np.ndarray, parameters: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        universal_templates(clips, **{"keep": kept_of(clips), **parameters})


def test_too_few_clips_for_templates() -> None:
    with (
        pytest.warns(ClipsWarning, match="^4 clips are too few to tell outliers"),
        pytest.raises(InvalidParameterError, match="n_pcs=6 components cannot come from 4 clips"),
    ):
        universal_templates(np.eye(4, 61))


def test_a_centre_without_a_shape() -> None:
    with pytest.raises(ValueError, match="the mean of a group of clips is 0 and has no shape"):
        universal_templates(np.repeat([[1.0, -1.0], [-1.0, 1.0]], 20, axis=0), 1, 1, keep=np.ones(40, bool))


def test_progress(clips: np.ndarray) -> None:
    calls: list[tuple[str, int, int | None]] = []
    universal_templates(clips, 3, 4, min_cluster_size=10, progress=lambda *call: calls.append(call))
    ends = [(stage, done, 1) for stage in ("hierarchy", "components", "templates") for done in (0, 1)]
    assert calls[-6:] == ends


def test_file_as_kilosort_has_it(clips: np.ndarray, tmp_path: Path) -> None:
    templates = universal_templates(clips, 3, 4, keep=kept_of(clips))
    path = tmp_path / "wTEMP.npz"
    save_templates(path, templates)
    with np.load(path, allow_pickle=False) as file:
        assert sorted(file.files) == ["wPCA", "wTEMP"]
        for name in file.files:
            assert file[name].dtype == np.float32
            assert file[name].flags.c_contiguous
            np.testing.assert_array_equal(file[name], getattr(templates, name))
    loaded = load_templates(path)
    assert isinstance(loaded, UniversalTemplates)
    np.testing.assert_array_equal(loaded.wTEMP, templates.wTEMP)
    assert [one.name for one in tmp_path.iterdir()] == ["wTEMP.npz"]


def test_bad_arrays_are_not_written(tmp_path: Path) -> None:
    good = np.ones((2, 61))
    path = tmp_path / "wTEMP.npz"
    for wPCA, wTEMP, message in (
        (good, np.ones((2, 60)), "as many timepoints, got 61 and 60"),
        (np.ones(61), good, r"wPCA must hold finite numbers, .* got float64 of shape \(61,\)"),
        (good, good * np.nan, "wTEMP must hold finite numbers"),
        (good, np.empty((0, 61)), "wTEMP must hold finite numbers"),
    ):
        with pytest.raises(ValueError, match=message):
            save_templates(path, UniversalTemplates(wPCA, wTEMP))
        np.savez(tmp_path / "bad.npz", wPCA=wPCA, wTEMP=wTEMP)
        with pytest.raises(ValueError, match=message):
            load_templates(tmp_path / "bad.npz")
    assert not path.exists()
    np.savez(path, wPCA=good)
    with pytest.raises(ValueError, match=r"wTEMP.npz holds no array wTEMP"):
        load_templates(path)


def test_a_file_that_fails_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "old.npz"
    path.write_bytes(b"old")

    def fail() -> None:
        with replacing(path) as file:
            file.write(b"half of")
            raise OSError("the disk is full")

    with pytest.raises(OSError, match="the disk is full"):
        fail()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(FileNotFoundError), replacing(tmp_path / "no folder" / "new.npz"):
        pass


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_a_file_is_readable_by_whom_any_other_would_be(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"")
    with replacing(tmp_path / "new") as file:
        file.write(b"new")
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("other", "new")]
    assert modes[0] == modes[1]
