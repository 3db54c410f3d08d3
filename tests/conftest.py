"""What all tests share: the backends, the reference's answers, and a count of what could not run."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from datasets import load
from parameters import Parameters

import mreach

NEEDS = {
    "a GPU": "needs a GPU",
    "MREACH_DATA": "needs MREACH_DATA",
    "the compiled core": "needs the compiled core",
    "NVRTC": "needs NVRTC",
    "hdbscan": "needs hdbscan",
    "PyTorch": "needs PyTorch",
    "SpikeInterface": "needs SpikeInterface",
    "EMUsort": "needs EMUsort",
    "BERTopic": "needs BERTopic",
}
NEEDED_BY = {"cpu": "the compiled core", "cuda": "a GPU"}

FITTED_ATTRIBUTES = (
    "labels_",
    "probabilities_",
    "core_distances_",
    "minimum_spanning_tree_",
    "single_linkage_tree_",
    "condensed_tree_",
    "cluster_persistence_",
    "outlier_scores_",
)


def skip_unless_available(name: str) -> str:
    """Return the name of a backend, or skip the running test with the reason why it cannot run."""
    backend = mreach.available_backends()[name]
    if not backend["available"]:
        pytest.skip(f"{NEEDS[NEEDED_BY[name]]}: {backend['reason']}")
    return name


@pytest.fixture(params=["cpu", "cuda"])
def backend(request: pytest.FixtureRequest) -> str:
    """Each backend that has to equal the reference."""
    return skip_unless_available(request.param)


@pytest.fixture(params=["reference", "cpu", "cuda"])
def any_backend(request: pytest.FixtureRequest) -> str:
    """Each backend, the reference too."""
    return skip_unless_available(request.param)


@functools.cache
def fit_reference(dataset: str, parameters: Parameters) -> mreach.HDBSCAN:
    X = load(dataset)
    return mreach.HDBSCAN(backend="reference", **parameters.for_data(X)).fit(X)


@pytest.fixture(scope="session")
def reference_fit() -> Callable[[str, Parameters], mreach.HDBSCAN]:
    """Fit a data set with the reference: once in a session for each data set and parameters."""
    return fit_reference


def cut_of(backend: str) -> Callable[..., Any]:
    """Return the function that cuts the trees of a backend."""
    if backend == "reference":
        from mreach.backends import reference as hierarchy
    else:
        from mreach import hierarchy
    return hierarchy.cut


def assert_same_bits(actual: Any, expected: Any, what: str) -> None:
    """Compare two arrays bit for bit, dtype and shape too: -0.0 is not 0.0, but any NaN equals any NaN."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.dtype == expected.dtype, what
    assert actual.shape == expected.shape, what
    if actual.dtype.names:
        for name in actual.dtype.names:
            assert_same_bits(actual[name], expected[name], f"{what}[{name!r}]")
        return
    different = np.flatnonzero(bits(actual) != bits(expected))
    if len(different):
        first = different[0]
        pytest.fail(
            f"{what}: {len(different)} of {actual.size} values differ, "
            f"the first at {first}: {actual.flat[first]!r}, expected {expected.flat[first]!r}"
        )


def bits(values: np.ndarray) -> np.ndarray:
    """Return numbers so that they compare by their bits; every NaN becomes the same one."""
    if values.dtype not in (np.float32, np.float64):
        return values
    return np.where(np.isnan(values), np.nan, values).astype(values.dtype).view(f"u{values.dtype.itemsize}")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say how many tests were skipped for want of what, a zero too."""
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = [report.longrepr[2] for report in skipped if isinstance(report.longrepr, tuple)]
    for thing, reason in NEEDS.items():
        count = sum(reason in given for given in reasons)
        terminalreporter.write_line(f"{count} tests skipped for want of {thing}")
