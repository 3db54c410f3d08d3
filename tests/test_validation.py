"""What bad input gets: an error of the right type that says what was wrong and what to do."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from mreach import HDBSCAN
from mreach.validation import InvalidParameterError, check_parameters

X = np.random.default_rng(0).normal(size=(30, 3))


def fit(data: Any = X, **parameters: Any) -> HDBSCAN:
    return HDBSCAN(**{"backend": "reference", **parameters}).fit(data)


BAD_PARAMETERS = [
    ({"min_cluster_size": 1}, "min_cluster_size must be an integer of at least 2, got 1"),
    ({"min_cluster_size": 2.5}, "min_cluster_size must be an integer of at least 2, got 2.5"),
    ({"min_cluster_size": "5"}, "min_cluster_size must be an integer of at least 2, got '5'"),
    ({"min_cluster_size": True}, "min_cluster_size must be an integer of at least 2, got True"),
    ({"min_cluster_size": None}, "min_cluster_size must be an integer of at least 2, got None"),
    ({"min_cluster_size": np.timedelta64(5)}, "min_cluster_size must be an integer of at least 2"),
    ({"min_cluster_size": float("nan")}, "min_cluster_size must be an integer of at least 2, got nan"),
    ({"min_samples": 0}, "min_samples must be an integer of at least 1, got 0; the point itself counts"),
    ({"min_samples": -3}, "min_samples must be an integer of at least 1, got -3"),
    ({"max_cluster_size": 0}, "got 0; for no limit use max_cluster_size=None"),
    ({"max_cluster_size": np.inf}, "got inf; for no limit use max_cluster_size=None"),
    ({"cluster_selection_epsilon": -0.1}, "cluster_selection_epsilon must be at least 0, got -0.1"),
    ({"cluster_selection_epsilon": None}, "got None; 0.0 switches it off"),
    ({"cluster_selection_epsilon": np.nan}, "cluster_selection_epsilon must be a finite number, got nan"),
    ({"cluster_selection_epsilon": np.inf}, "cluster_selection_epsilon must be a finite number, got inf"),
    ({"alpha": 0}, "alpha must be above 0, got 0.0; 1.0 leaves distances as they are"),
    ({"alpha": -1.0}, "alpha must be above 0, got -1.0"),
    ({"alpha": 10**400}, "alpha must be a finite number"),
    ({"alpha": np.True_}, "alpha must be a number"),
    ({"alpha": None}, "alpha must be a number, got None; 1.0 leaves distances as they are"),
    ({"metric": "euclid"}, "metric must be one of 'euclidean', 'cosine'"),
    ({"metric": "precomputed", "store_centers": "medoid"}, "store_centers needs rows"),
    ({"cluster_selection_method": "EOM"}, "must be one of 'eom', 'leaf', got 'EOM'"),
    ({"backend": "gpu"}, "backend must be one of 'auto', 'reference', 'cpu', 'cuda', got 'gpu'"),
    ({"backend": None}, "backend must be one of 'auto', 'reference', 'cpu', 'cuda', got None"),
    ({"allow_single_cluster": 1}, "allow_single_cluster must be True or False, got 1"),
    ({"store_centers": "mean"}, "must be one of 'centroid', 'medoid', 'both', got 'mean'; None stores no"),
    ({"store_centers": True}, "store_centers must be one of 'centroid', 'medoid', 'both', got True"),
    ({"prediction_data": 1}, "prediction_data must be True or False, got 1"),
    ({"progress": "yes"}, "progress must be True, False or a function of (stage, done, total), got 'yes'"),
    ({"device": 0}, "with backend='reference' leave device=None, got 0"),
    ({"device": 0, "backend": "cpu"}, "belongs to backend='cuda' or 'auto': with backend='cpu' leave"),
    ({"device": 1.5, "backend": "auto"}, "device must be an integer of at least 0, got 1.5"),
    ({"device": -1, "backend": "cuda"}, "device must be an integer of at least 0, got -1"),
    ({"n_jobs": 0}, "n_jobs must not be 0; None or -1 means all cores"),
    ({"n_jobs": 1.5}, "n_jobs must be an integer, got 1.5; None or -1 means all cores"),
]


@pytest.mark.parametrize(("parameters", "message"), BAD_PARAMETERS, ids=lambda value: str(value)[:40])
@pytest.mark.parametrize("kind", [ValueError, TypeError])
def test_bad_parameters(parameters: dict[str, Any], message: str, kind: type[Exception]) -> None:
    with pytest.raises(kind, match=re.escape(message)):
        fit(**parameters)


@pytest.mark.parametrize(
    "number", [int, np.int64, np.int8, np.uint16, float, np.float64, np.float32, Fraction]
)
def test_numbers_of_every_kind(number: type) -> None:
    given = {
        "min_cluster_size": number(6),
        "min_samples": number(4),
        "max_cluster_size": number(20),
        "cluster_selection_epsilon": number(1),
        "alpha": number(2),
        "n_jobs": number(1),
    }
    expected = fit(
        min_cluster_size=6,
        min_samples=4,
        max_cluster_size=20,
        cluster_selection_epsilon=1.0,
        alpha=2.0,
        n_jobs=1,
    )
    fitted = fit(**given)
    np.testing.assert_array_equal(fitted.labels_, expected.labels_)
    np.testing.assert_array_equal(fitted.probabilities_, expected.probabilities_)
    for name, value in given.items():
        assert getattr(fitted, name) is value  # the estimator keeps what it was given


def test_numbers_beyond_the_data() -> None:
    fitted = fit(min_cluster_size=10**30, min_samples=2, max_cluster_size=10**30)
    assert set(fitted.labels_) == {-1}
    assert check_parameters(HDBSCAN(n_jobs=10**9)).n_threads <= 1024
    assert check_parameters(HDBSCAN(n_jobs=-(10**9))).n_threads == 1


NOT_ARRAYS_OF_NUMBERS = [
    (X[:, 0], ValueError, "reshape(-1, 1)"),
    (3.0, ValueError, "Expected 2D array, got scalar array instead"),
    (X[None], ValueError, "Found array with dim 3"),
    (np.empty((0, 3)), ValueError, "Found array with 0 sample(s) (shape=(0, 3))"),
    (np.empty((30, 0)), ValueError, "Found array with 0 feature(s) (shape=(30, 0))"),
    ([], ValueError, "Expected 2D array"),
    (X + 1j, ValueError, "Complex data not supported"),
    (np.full((30, 2), "text"), ValueError, "Convert your data to numeric values explicitly"),
    (np.full((30, 2), "text", dtype=object), ValueError, "X holds text ('text')"),
    (np.full((30, 2), "1.5", dtype=object), ValueError, "X holds text ('1.5')"),
    (np.full((30, 2), {}, dtype=object), TypeError, "argument must be a string or a real number"),
    (np.full((30, 2), 10**400, dtype=object), ValueError, "scale X down"),
    (np.zeros((30, 2), "datetime64[s]"), ValueError, "convert it to numbers first"),
    (np.zeros((30, 2), "timedelta64[s]"), ValueError, "convert it to numbers first"),
    (np.zeros((30, 2), [("a", float)]), ValueError, "Convert your data to numeric values"),
    (scipy.sparse.csr_matrix(X.astype(complex)), ValueError, "Complex data not supported"),
    (np.ma.masked_greater(X, 1.0), ValueError, "X.filled(numpy.nan)"),
    (None, ValueError, "Expected 2D array"),
]


@pytest.mark.parametrize(("data", "kind", "message"), NOT_ARRAYS_OF_NUMBERS)
def test_data_that_are_no_array_of_numbers(data: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=re.escape(message)):
        fit(data)


def test_too_few_rows() -> None:
    with pytest.raises(
        ValueError, match=r"n_samples=1 is fewer than min_samples=5 \(taken from min_cluster_size"
    ):
        fit(np.ones((1, 3)))
    with pytest.raises(
        ValueError, match="n_samples=4 is fewer than min_samples=5: set min_samples to at most 4"
    ):
        fit(X[:4], min_cluster_size=2, min_samples=5)
    holes = X.copy()
    holes[2:] = np.nan
    with pytest.raises(ValueError, match=r"n_samples=30 of which 2 without NaN or infinity is fewer than"):
        fit(holes)
    with pytest.raises(ValueError, match=r"of which 0 without NaN or infinity .*: give more rows"):
        fit(np.full((30, 2), np.inf))
    assert fit(X[:5]).labels_.shape == (5,)
    assert fit(X[:2], min_cluster_size=2).labels_.tolist() == [-1, -1]


@pytest.mark.parametrize("scale", [1e200, 1e-200, 1e-320])
def test_range_of_float64(scale: float) -> None:
    with pytest.raises(ValueError, match=r"numpy\.ldexp") as caught:
        fit(X * scale)
    power = int(re.findall(r"2\*\*(-?\d+)", str(caught.value))[0])
    scaled = fit(np.ldexp(X * scale, power))
    assert np.ptp(np.ldexp(X * scale, power), axis=0).max() <= 1.0
    assert np.isfinite(scaled.minimum_spanning_tree_["weight"]).all()


def test_one_huge_row() -> None:
    huge = X.copy()
    huge[0] = 1.5e308
    huge[1] = -1.5e308  # the range itself is infinite
    with pytest.raises(ValueError, match=r"overflow float64\. Multiply X by 2\*\*-1025, for instance"):
        fit(huge)


def test_range_is_of_differences_not_of_values() -> None:
    same = np.full((10, 2), 1e300)
    assert fit(same).minimum_spanning_tree_["weight"].max() == 0.0
    assert fit(np.array([[0.0], [-0.0]] * 5)).minimum_spanning_tree_["weight"].max() == 0.0
    for scale in (1e25, 1e-30):
        assert fit((X * scale).astype(np.float32)).minimum_spanning_tree_["weight"].min() > 0.0


def test_range_is_that_of_the_finite_rows() -> None:
    data = X.copy()
    data[3, 0] = np.inf
    data[4] = (1.7e308, np.nan, 0.0)
    assert fit(data).labels_[[3, 4]].tolist() == [-2, -3]


def test_alpha_that_overflows() -> None:
    with pytest.raises(ValueError, match="alpha=1e-308 is too small for these data"):
        fit(alpha=1e-308)


def test_longdouble_that_overflows() -> None:
    data = X.astype(np.longdouble)
    data[0, 0] = np.finfo(np.longdouble).max
    if np.isinf(np.float64(data[0, 0])):
        with pytest.raises(ValueError, match="overflow float64"):
            fit(data)


LAYOUTS = {
    "list": lambda a: a.tolist(),
    "fortran": np.asfortranarray,
    "strided": lambda a: np.repeat(np.repeat(a, 2, 0), 2, 1)[::2, ::2],
    "reversed": lambda a: a[::-1].copy()[::-1],
    "big-endian": lambda a: a.astype(a.dtype.newbyteorder(">")),
    "longdouble": lambda a: a.astype(np.longdouble),
    "object": lambda a: a.astype(object),
    "matrix rows": lambda a: [tuple(row) for row in a],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_layouts(layout: str, dtype: type) -> None:
    data = X.astype(dtype)
    fitted, expected = fit(LAYOUTS[layout](data)), fit(data.astype(np.float64))
    for name in ("labels_", "probabilities_", "core_distances_", "minimum_spanning_tree_", "condensed_tree_"):
        np.testing.assert_array_equal(getattr(fitted, name), getattr(expected, name))


@pytest.mark.parametrize(
    "dtype", [bool, np.int8, np.uint8, np.int16, np.uint16, np.int32, np.int64, np.uint64, np.float16, ">i2"]
)
def test_types(dtype: Any) -> None:
    data = np.abs(np.rint(X * 3)).astype(dtype)
    np.testing.assert_array_equal(
        fit(data).minimum_spanning_tree_, fit(data.astype(np.float64)).minimum_spanning_tree_
    )


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64])
def test_input_is_never_changed(dtype: type, any_backend: str) -> None:
    data = np.rint(X * 8).astype(dtype)
    data[0] = 0
    if dtype is not np.int64:
        data[0] = -0.0
        data[3, 1] = np.nan
    before = data.tobytes()
    fit(data, backend=any_backend)
    assert data.tobytes() == before
    data.setflags(write=False)
    fit(data, backend=any_backend)


def test_data_frame() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X.astype(np.float32), columns=["x", "y", "z"])
    frame.loc[4, "y"] = None
    fitted = fit(frame)
    assert fitted.feature_names_in_.tolist() == ["x", "y", "z"]
    assert fitted.labels_[4] == -3


def test_errors_come_before_any_work(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_work(*args: Any) -> None:
        raise AssertionError("a backend was chosen for input that is refused")

    monkeypatch.setattr("mreach.estimator.select_backend", no_work)
    for parameters, _ in BAD_PARAMETERS:
        with pytest.raises(InvalidParameterError):
            fit(**parameters)
    for data, kind, _ in NOT_ARRAYS_OF_NUMBERS:
        with pytest.raises(kind):
            fit(data)


def test_a_subclass_may_take_fewer_parameters() -> None:
    class Narrow(HDBSCAN):
        def __init__(self, shift: float = 0.0, alpha: float = 1.0) -> None:
            super().__init__(alpha=alpha, backend="reference")
            self.shift = shift

    expected = HDBSCAN(alpha=2.0, backend="reference").fit_predict(X)
    assert np.array_equal(Narrow(alpha=2.0).fit_predict(X), expected)
