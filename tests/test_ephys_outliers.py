"""Outliers among clips: what is kept, and a clear word where nothing sensible can be."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import skip_unless_available

from mreach import HDBSCAN
from mreach.datasets import load_emg_clips
from mreach.ephys import ClipsError, ClipsWarning, remove_outlier_clips
from mreach.ephys.outliers import keep_clips
from mreach.validation import InvalidParameterError


@pytest.fixture(scope="module")
def clips() -> np.ndarray:
    """Two kinds of clips and five that belong nowhere, the last ones."""
    rng = np.random.default_rng(0)
    shapes = rng.normal(size=(2, 61)) * 3
    some = shapes[np.arange(100) % 2] + rng.normal(size=(100, 61)) * 0.1
    return np.concatenate((some, rng.normal(size=(5, 61)) * 10)).astype(np.float32)


def test_outliers_are_dropped(clips: np.ndarray) -> None:
    before = clips.copy()
    kept, mask, model = remove_outlier_clips(clips, 20)
    assert mask.tolist() == [True] * 100 + [False] * 5
    np.testing.assert_array_equal(kept, clips[:100])
    assert kept.dtype == np.float32
    np.testing.assert_array_equal(model.labels_, HDBSCAN(min_cluster_size=20).fit_predict(clips))
    np.testing.assert_array_equal(clips, before)


def test_further_parameters_reach_the_model(clips: np.ndarray) -> None:
    model = remove_outlier_clips(clips, 10, min_samples=3, alpha=2.0, backend="reference").model
    assert model is not None
    assert (model.min_cluster_size, model.min_samples, model.alpha) == (10, 3, 2.0)
    assert model.backend_ == "reference"
    with pytest.raises(TypeError, match="no parameter 'min_sample'; did you mean 'min_samples'"):
        remove_outlier_clips(clips, min_sample=3)


def test_real_clips() -> None:
    clips = load_emg_clips()
    kept, mask, model = remove_outlier_clips(clips)
    assert len(kept) == mask.sum() == 5223
    assert model is not None
    np.testing.assert_array_equal(mask, model.labels_ >= 0)


def test_real_needle_clips() -> None:
    folder = os.environ.get("MREACH_DATA")
    if not folder or not Path(folder, "needle_emg_clips.npz").exists():
        pytest.skip("needs MREACH_DATA: needle_emg_clips.npz")
    clips = np.load(Path(folder, "needle_emg_clips.npz"))["X"]
    kept, mask, model = remove_outlier_clips(clips)
    assert model is not None
    np.testing.assert_array_equal(mask, model.labels_ >= 0)
    assert (len(kept), len(clips)) == (800, 1729)


@pytest.mark.parametrize(("n", "size"), [(1, 20), (19, 20), (19, 5), (30, 31)])
def test_too_few_clips_are_all_kept(clips: np.ndarray, n: int, size: int) -> None:
    message = f"^{n} clips are too few to tell outliers .at least {max(20, size)} are needed"
    with pytest.warns(ClipsWarning, match=message) as caught:
        kept, mask, model = remove_outlier_clips(clips[:n], size)
    assert caught[0].filename == __file__
    np.testing.assert_array_equal(kept, clips[:n])
    assert mask.all()
    assert mask.shape == (n,)
    assert model is None
    with pytest.raises(ClipsError, match=message):
        remove_outlier_clips(clips[:n], size, on_problem="raise")


def test_just_enough_clips_are_clustered(clips: np.ndarray) -> None:
    model = remove_outlier_clips(clips[:20], 5).model
    assert model is not None
    assert len(model.labels_) == 20


def test_no_clips_at_all() -> None:
    with pytest.warns(ClipsWarning, match="^0 clips are too few"):
        kept, mask, model = remove_outlier_clips(np.empty((0, 61), np.float32))
    assert kept.shape == (0, 61)
    assert mask.shape == (0,)
    assert model is None


def test_where_all_are_outliers_all_are_kept() -> None:
    clips = np.random.default_rng(0).normal(size=(200, 61))
    clips[7, 3] = np.nan
    with pytest.warns(ClipsWarning) as caught:
        kept, mask, model = remove_outlier_clips(clips)
    assert [str(one.message).split(",")[0].split(" hold")[0] for one in caught] == [
        "1 of 200 clips",
        "all 199 clips are outliers of HDBSCAN(min_cluster_size=20)",
    ]
    assert mask.sum() == len(kept) == 199
    assert not mask[7]
    assert model is not None
    assert model.labels_.max() == -1
    with (
        pytest.warns(ClipsWarning, match="hold NaN"),
        pytest.raises(ClipsError, match="allow_single_cluster=True"),
    ):
        remove_outlier_clips(clips, on_problem="raise")


def test_clips_that_are_not_finite_are_dropped_and_counted(clips: np.ndarray) -> None:
    with_gaps = clips.copy()
    with_gaps[3, 5], with_gaps[50], with_gaps[60, 60] = np.nan, np.nan, -np.inf
    with pytest.warns(ClipsWarning, match="^3 of 105 clips hold NaN or infinity and are dropped"):
        kept, mask, model = remove_outlier_clips(with_gaps)
    assert np.flatnonzero(~mask).tolist() == [3, 50, 60, 100, 101, 102, 103, 104]
    assert np.isfinite(kept).all()
    assert model is not None
    assert model.labels_[[3, 50, 60]].tolist() == [-3, -3, -2]
    with pytest.raises(ValueError, match="each of the 105 clips holds NaN or infinity"):
        remove_outlier_clips(np.full_like(clips, np.nan))
    with pytest.warns(ClipsWarning), pytest.raises(ClipsError, match=r"^10 clips are too few"):
        remove_outlier_clips(np.concatenate((clips[:10], np.full_like(clips, np.inf))), on_problem="raise")


@pytest.mark.parametrize("dtype", ["float64", "float16", "int16"])
def test_kinds_of_clips_on_the_host(clips: np.ndarray, dtype: str) -> None:
    given = (clips * 10).astype(dtype)
    kept = remove_outlier_clips(given).clips
    assert kept.dtype == given.dtype
    np.testing.assert_array_equal(kept, given[:100])
    np.testing.assert_array_equal(remove_outlier_clips(given.tolist()).clips, given[:100])
    np.testing.assert_array_equal(remove_outlier_clips(np.asfortranarray(given)).clips, given[:100])


def test_a_tensor_stays_a_tensor(clips: np.ndarray) -> None:
    torch = pytest.importorskip("torch", reason="needs PyTorch")
    kept = remove_outlier_clips(torch.from_numpy(clips)).clips
    assert isinstance(kept, torch.Tensor)
    np.testing.assert_array_equal(kept.numpy(), clips[:100])


def test_clips_on_a_gpu_stay_there(clips: np.ndarray) -> None:
    skip_unless_available("cuda")
    import cupy

    on_gpu = cupy.asarray(clips)
    on_gpu[3, 5] = cupy.nan
    with pytest.warns(ClipsWarning, match="^1 of 105"):
        kept, mask, model = remove_outlier_clips(on_gpu)
    assert isinstance(kept, cupy.ndarray)
    assert isinstance(mask, np.ndarray)
    np.testing.assert_array_equal(kept.get(), clips[mask])
    assert mask.sum() == 99
    assert model is not None
    assert model.backend_ == "cuda"


def test_a_data_frame_stays_one(clips: np.ndarray) -> None:
    pandas = pytest.importorskip("pandas")
    kept = keep_clips(pandas.DataFrame(clips), np.arange(len(clips)) < 100)
    np.testing.assert_array_equal(kept.to_numpy(), clips[:100])


def test_progress(clips: np.ndarray, capsys: pytest.CaptureFixture[str]) -> None:
    calls: list[tuple[str, int, int | None]] = []
    remove_outlier_clips(clips, progress=lambda *call: calls.append(call))
    assert calls[0] == ("neighbours", 0, len(clips))
    assert calls[-1] == ("hierarchy", 1, 1)
    assert capsys.readouterr().err == ""
    remove_outlier_clips(clips, progress=True)
    assert "100%" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("clips", "parameters", "error", "message"),
    [
        (np.zeros(61), {}, ValueError, r"clips must have shape \(n_clips, n_timepoints\), got \(61,\)"),
        (np.zeros((50, 4, 61)), {}, ValueError, r"got \(50, 4, 61\)"),
        (np.zeros((50, 0)), {}, ValueError, r"got \(50, 0\)"),
        (np.zeros((50, 61), complex), {}, TypeError, "clips has dtype complex128"),
        (np.full((50, 2), "a"), {}, TypeError, "clips has dtype <U1"),
        (np.zeros((50, 61)), {"min_cluster_size": 1}, InvalidParameterError, "at least 2, got 1"),
        (np.zeros((50, 61)), {"on_problem": "error"}, InvalidParameterError, "'warn', 'raise', got 'error'"),
        (np.zeros((50, 61)), {"progress": "yes"}, InvalidParameterError, "True, False or a function"),
    ],
)
def test_bad_input(clips: Any, parameters: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        remove_outlier_clips(clips, **parameters)
