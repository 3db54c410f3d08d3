"""Programs that call scikit-learn's or hdbscan's HDBSCAN, unchanged: EMUsort, SpikeInterface, BERTopic.

These tests are skipped (and counted) where the programs are not installed (CONTRIBUTING.md). EMUsort
and Kilosort are under the GPL: they are imported here, nothing else.
"""

import importlib
import logging
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

import mreach
import mreach.accel
import mreach.accel.for_hdbscan
import mreach.accel.for_sklearn
from mreach.datasets import load_emg_clips


@pytest.fixture
def fits(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Iterator[list[mreach.HDBSCAN]]:
    """The fits that mreach computes in place of a library, while mreach.accel is installed."""
    made: list[mreach.HDBSCAN] = []
    for module in (mreach.accel.for_sklearn, mreach.accel.for_hdbscan):
        fit = module.fitted

        def fit_and_keep(*args: Any, fit: Any = fit) -> mreach.HDBSCAN:
            made.append(fit(*args))
            return made[-1]

        monkeypatch.setattr(module, "fitted", fit_and_keep)
    with caplog.at_level(logging.WARNING, "mreach.accel"):
        mreach.accel.install(modules="all", quiet=True)
        yield made
    mreach.accel.uninstall()


def needs(package: str, name: str) -> None:
    if find_spec(package) is None:
        pytest.skip(f"needs {name}")


# EMUsort


class Batches:
    """What EMUsort's template step reads: real clips on a silent recording of four channels, far apart."""

    n_batches = 2

    def __init__(self, clips: np.ndarray) -> None:
        import torch

        self.batches = []
        for part in np.array_split(clips, self.n_batches):
            recording = np.zeros((4, len(part) * 130 + 200), np.float32)
            for number, clip in enumerate(part):
                recording[number % 4, 100 + number * 130 : 161 + number * 130] = clip
            self.batches.append(torch.from_numpy(recording))

    def padded_batch_to_torch(self, number: int, ops: dict[str, Any]) -> Any:
        return self.batches[number]


def test_the_template_step_of_emusort(
    fits: list[mreach.HDBSCAN], capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    needs("emusort", "EMUsort")
    import torch

    step = importlib.import_module("emusort.ks4mods.spikedetect")
    clips = load_emg_clips()
    file = Batches(clips)
    settings = {
        "n_pcs": 6,
        "n_templates": 6,
        "remove_spike_outliers": True,
        "hdbscan_min_cluster_size": 20,
    }
    threshold = 0.8 * np.abs(clips).max(axis=1).min()

    def templates() -> tuple[np.ndarray, np.ndarray]:
        np.random.seed(0)  # noqa: NPY002 - k-means and the SVD draw from there
        of_step = step.extract_wPCA_wTEMP(
            {"settings": settings},
            file,
            Th_single_ch=[threshold, 2 * threshold, 3 * threshold],
            nskip=1,
            device=torch.device("cpu"),
        )
        return tuple(one.numpy() for one in of_step)

    by_mreach = templates()
    assert "itself computes" not in caplog.text
    assert len(fits) == 1
    n_clips, n_outliers = len(fits[0].labels_), np.count_nonzero(fits[0].labels_ < 0)
    assert n_clips > 1000
    assert n_outliers > 0
    assert f"Removed {n_outliers} outlier waveforms" in capsys.readouterr().out
    mreach.accel.uninstall()
    by_itself = templates()
    assert len(fits) == 1
    for one, other in zip(by_mreach, by_itself, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


# SpikeInterface


@pytest.fixture(scope="module")
def recording_and_peaks(tmp_path_factory: pytest.TempPathFactory) -> Any:
    needs("spikeinterface", "SpikeInterface")
    core = importlib.import_module("spikeinterface.core")
    detection = importlib.import_module("spikeinterface.sortingcomponents.peak_detection")
    recording, _ = core.generate_ground_truth_recording(
        durations=[20.0], sampling_frequency=20000.0, num_channels=16, num_units=8, seed=1
    )
    recording = recording.save(folder=tmp_path_factory.mktemp("recording") / "saved", verbose=False)
    peaks = detection.detect_peaks(recording, method="locally_exclusive", job_kwargs={"n_jobs": 1})
    return recording, peaks


@pytest.mark.parametrize(
    ("method", "given"),
    [
        ("hdbscan-positions", {}),
        ("random-projections", {}),
        ("iterative-hdbscan", {"seed": 0}),
    ],
)
def test_the_clustering_methods_of_spikeinterface(
    method: str,
    given: dict[str, Any],
    recording_and_peaks: Any,
    fits: list[mreach.HDBSCAN],
    caplog: pytest.LogCaptureFixture,
) -> None:
    needs("hdbscan", "hdbscan")
    clustering = importlib.import_module("spikeinterface.sortingcomponents.clustering")
    recording, peaks = recording_and_peaks
    labels, peak_labels, *_ = clustering.find_clusters_from_peaks(
        recording, peaks, method=method, method_kwargs={**given}, job_kwargs={"n_jobs": 1}
    )
    assert "itself computes" not in caplog.text
    assert len(fits) >= 1
    assert len(peak_labels) == len(peaks)
    assert len(labels) >= 1


def test_the_simple_sorter_of_spikeinterface(
    recording_and_peaks: Any, fits: list[mreach.HDBSCAN], caplog: pytest.LogCaptureFixture, tmp_path: Any
) -> None:
    needs("hdbscan", "hdbscan")
    sorters = importlib.import_module("spikeinterface.sorters")
    recording, _ = recording_and_peaks
    sorting = sorters.run_sorter(
        "simple", recording, folder=tmp_path / "sorted", verbose=False, job_kwargs={"n_jobs": 1}
    )
    assert "itself computes" not in caplog.text
    assert len(fits) == 1
    assert len(sorting.unit_ids) == fits[0].labels_.max() + 1


# BERTopic


def documents() -> tuple[list[str], np.ndarray]:
    """Four topics of their own words, and embeddings in which they stand apart."""
    rng = np.random.default_rng(0)
    words = [[f"{topic}{number}" for number in range(30)] for topic in ("fish", "moon", "iron", "milk")]
    texts = [" ".join(rng.choice(words[number % 4], 12)) for number in range(240)]
    embeddings = rng.normal(size=(4, 16))[np.arange(240) % 4] * 4 + 0.3 * rng.normal(size=(240, 16))
    return texts, embeddings.astype(np.float32)


def topics_of(**given: Any) -> tuple[Any, list[int]]:
    from bertopic import BERTopic
    from sklearn.decomposition import PCA

    texts, embeddings = documents()
    model = BERTopic(umap_model=PCA(5, random_state=0), **given)
    topics, _ = model.fit_transform(texts, embeddings)
    return model, topics


def check_topics(model: Any, topics: list[int]) -> None:
    assert set(topics) - {-1} == {0, 1, 2, 3}
    for topic in range(4):
        rows = np.flatnonzero(np.asarray(topics) == topic)
        assert len(set((rows % 4).tolist())) == 1
        assert len({word[:4] for word, _ in model.get_topic(topic)}) == 1


def test_bertopic_with_mreach_as_its_clustering_model() -> None:
    needs("bertopic", "BERTopic")
    cluster = mreach.HDBSCAN(min_cluster_size=15)
    model, topics = topics_of(hdbscan_model=cluster)
    assert model.hdbscan_model is cluster
    check_topics(model, topics)


def test_bertopic_with_its_own_clustering_model(
    fits: list[mreach.HDBSCAN], caplog: pytest.LogCaptureFixture
) -> None:
    needs("bertopic", "BERTopic")
    needs("hdbscan", "hdbscan")
    model, topics = topics_of(min_topic_size=15, calculate_probabilities=True)
    assert "itself computes" not in caplog.text
    assert len(fits) == 1
    check_topics(model, topics)
    texts, embeddings = documents()
    again, _ = model.transform(texts, embeddings)
    assert np.mean(np.asarray(again) == np.asarray(topics)) > 0.9
