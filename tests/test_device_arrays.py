"""Arrays that lie on a GPU as input: taken where they are, or refused with what to do."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import FITTED_ATTRIBUTES, assert_same_bits, skip_unless_available

from mreach import HDBSCAN
from mreach.backends.cuda import devices
from mreach.backends.cuda import rows as cuda_rows
from mreach.backends.cuda.inputs import on_device
from mreach.backends.host_rows import SelectedRows, column_ranges

RNG = np.random.default_rng(0)
X = np.vstack([RNG.normal(0, 1, (40, 3)), RNG.normal(9, 1, (40, 3)), [[4.5, -20, 30]]])


class Tensor:
    """Says that it lies on a GPU, and nothing more."""

    dtype = "float32"

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0


class Interface:
    """Has nothing but ``__cuda_array_interface__``, as arrays of Numba or PyCUDA."""

    def __init__(self, array: Any, **changed: Any) -> None:
        self.array, self.changed = array, changed

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {**self.array.__cuda_array_interface__, **self.changed}


class Exchanged:
    """Has nothing but DLPack."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


@pytest.fixture
def cp() -> Any:
    """CuPy, where there is a GPU."""
    skip_unless_available("cuda")
    return devices.cupy()


@pytest.fixture
def hold(cp: Any) -> Callable[..., Any]:
    """Return what opens a session and holds rows in it."""
    from mreach.backends import cuda

    return cuda.hold_rows


def test_what_lies_on_a_gpu() -> None:
    class OfAnotherKind(Tensor):
        def __dlpack_device__(self) -> tuple[int, int]:
            return 1, 0

    class Failing(Tensor):
        def __dlpack_device__(self) -> tuple[int, int]:
            raise ValueError

    class Pointer:
        __cuda_array_interface__: dict[str, Any] = {}  # noqa: RUF012

    class Refusing:
        @property
        def __cuda_array_interface__(self) -> Any:
            raise RuntimeError

    class Without:
        __cuda_array_interface__ = None

    assert on_device(Tensor())
    assert on_device(Pointer())
    for host in (X, X.tolist(), [], None, 3.0, "text", OfAnotherKind(), Failing(), Refusing(), Without()):
        assert not on_device(host)


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_a_backend_on_the_host_refuses_it(backend: str) -> None:
    with pytest.raises(
        TypeError, match=re.escape("use backend='cuda', or copy X to the host first (CuPy: X.get()")
    ):
        HDBSCAN(backend=backend).fit(Tensor())


@pytest.mark.parametrize("backend", ["auto", "cuda"])
def test_without_a_gpu_that_can_be_used(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "find_devices", lambda: devices.Found([], "it is switched off"))
    with pytest.raises(
        RuntimeError, match="X lies on a GPU, and backend='cuda' cannot run here: it is switched off"
    ):
        HDBSCAN(backend=backend).fit(Tensor())


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"dtype": "torch.bfloat16"}, "X has dtype torch.bfloat16, which NumPy has not: give it as float32"),
        ({"requires_grad": True}, "give X.detach()"),
    ],
)
def test_tensors_that_numpy_would_refuse(
    changed: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    usable = {"index": 0, "available": True, "reason": None}
    monkeypatch.setattr(devices, "find_devices", lambda: devices.Found([usable], None))
    tensor: Any = Tensor()
    for name, value in changed.items():
        setattr(tensor, name, value)
    with pytest.raises(ValueError, match=re.escape(message)):
        HDBSCAN().fit(tensor)


LAYOUTS: dict[str, Callable[[Any, np.ndarray], Any]] = {
    "contiguous": lambda cp, a: cp.asarray(a),
    "fortran": lambda cp, a: cp.asarray(np.ascontiguousarray(a.T)).T,
    "strided": lambda cp, a: cp.asarray(np.repeat(np.repeat(a, 2, 0), 2, 1))[::2, ::2],
    "reversed": lambda cp, a: cp.asarray(a[::-1].copy())[::-1],
    "later rows": lambda cp, a: cp.asarray(np.vstack([a[:1], a]))[1:],  # three numbers on: not aligned
    "array interface": lambda cp, a: Interface(cp.asarray(a)),
    "old array interface": lambda cp, a: Interface(cp.asarray(a), version=2),
    "DLPack": lambda cp, a: Exchanged(cp.asarray(a)),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, np.int64, np.uint8, np.bool_])
def test_arrays_on_the_gpu(layout: str, dtype: Any, cp: Any) -> None:
    data = np.abs(np.rint(X * 3)).astype(dtype) if np.dtype(dtype).kind != "f" else X.astype(dtype)
    given = LAYOUTS[layout](cp, data)
    expected = HDBSCAN(backend="reference").fit(data)
    for backend in ("auto", "cuda"):
        fitted = HDBSCAN(backend=backend).fit(given)
        assert fitted.backend_ == "cuda"
        assert fitted.n_features_in_ == 3
        for name in FITTED_ATTRIBUTES:
            assert isinstance(getattr(fitted, name), np.ndarray)
            assert_same_bits(getattr(fitted, name), getattr(expected, name), name)
    assert_same_bits(getattr(given, "array", given).get(), data, "X")  # never changed
    assert pickle.loads(pickle.dumps(fitted)).labels_.tolist() == expected.labels_.tolist()


def test_rows_are_not_copied(cp: Any, hold: Callable[..., Any]) -> None:
    for dtype in (np.float32, np.float64):
        data = cp.asarray(X.astype(dtype))
        with hold(data) as held:
            assert held.array.data.ptr == data.data.ptr
        with hold(data[1:]) as held:
            assert held.array.data.ptr % cuda_rows.ALIGNMENT == 0
            assert_same_bits(held.array.get(), data[1:].get(), "rows")


@pytest.mark.parametrize("on_gpu", [True, False])
def test_rows_that_are_not_finite(on_gpu: bool, cp: Any) -> None:
    data = X.astype(np.float32)
    data[[2, 50, 51], [0, 2, 1]] = np.nan, np.inf, -np.inf
    data[51, 2] = np.nan
    expected = HDBSCAN(backend="reference").fit(data)
    assert expected.labels_[[2, 50, 51]].tolist() == [-3, -2, -3]
    fitted = HDBSCAN(backend="cuda").fit(cp.asarray(data) if on_gpu else data)
    for name in FITTED_ATTRIBUTES:
        assert_same_bits(getattr(fitted, name), getattr(expected, name), name)


@pytest.mark.parametrize("on_gpu", [True, False])
@pytest.mark.parametrize("holes", [True, False])
def test_equal_numbers_of_rows(on_gpu: bool, holes: bool, cp: Any) -> None:
    """Labels that as many rows carry are ordered by their smallest rows, which are asked for."""
    group = np.random.default_rng(1).normal(size=(20, 3))
    places = np.array([[0, 40, 0], [0, 0, 40], [0, 0, 0], [0, 20, 20]])
    data = np.vstack([group + place for place in places])
    if holes:
        data[[3, 23, 43, 63], 1] = np.nan
    expected = HDBSCAN(backend="reference").fit(data)
    assert expected.labels_.max() == 3
    fitted = HDBSCAN(backend="cuda").fit(cp.asarray(data) if on_gpu else data)
    assert fitted.labels_.tolist() == expected.labels_.tolist()


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        (lambda a: a[:, 0], ValueError, "reshape(-1, 1)"),
        (lambda a: a[:0], ValueError, "Found array with 0 sample(s) (shape=(0, 3))"),
        (lambda a: a[:, :0], ValueError, "Found array with 0 feature(s) (shape=(81, 0))"),
        (lambda a: a[:3], ValueError, "n_samples=3 is fewer than min_samples=5 (taken from min_cluster_size"),
        (lambda a: a.astype(np.complex64), ValueError, "Complex data not supported"),
        (lambda a: a * 1e200, ValueError, "numpy.ldexp"),
        (lambda a: Interface(a, mask=a), TypeError, "no array that CuPy can read there"),
    ],
)
def test_arrays_on_the_gpu_that_are_refused(
    change: Callable[[Any], Any], kind: type[Exception], message: str, cp: Any
) -> None:
    with pytest.raises(kind, match=re.escape(message)):
        HDBSCAN().fit(change(cp.asarray(X)))


def test_the_device_asked_for_has_to_be_that_of_the_array(cp: Any) -> None:
    with pytest.raises(ValueError, match="device=7 was asked for, but X lies on GPU 0: leave device=None"):
        HDBSCAN(device=7).fit(cp.asarray(X))
    assert HDBSCAN(device=0).fit(cp.asarray(X)).backend_ == "cuda"
    assert HDBSCAN(device=0).fit(X).backend_ == "cuda"


def test_names_of_features_are_forgotten(cp: Any) -> None:
    pandas = pytest.importorskip("pandas")
    model = HDBSCAN().fit(pandas.DataFrame(X, columns=["x", "y", "z"]))
    assert model.feature_names_in_.tolist() == ["x", "y", "z"]
    assert not hasattr(model.fit(cp.asarray(X)), "feature_names_in_")


SHAPES = [(1, 1), (2, 1), (700, 1), (5000, 2), (300, 61), (129, 128), (129, 129), (40, 300), (9, 4097)]


def awkward(shape: tuple[int, int], dtype: type, kind: str) -> np.ndarray:
    rng = np.random.default_rng(shape)
    data = rng.normal(size=shape).astype(dtype)
    if kind == "negative":
        data = -np.abs(data) - 1
    if kind == "not finite":
        for value in (np.nan, np.inf, -np.inf, -np.nan):
            data[rng.integers(0, shape[0], 3), rng.integers(0, shape[1], 3)] = value
    return data


@pytest.mark.parametrize("kind", ["negative", "both signs", "not finite"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", SHAPES)
def test_what_the_gpu_says_of_rows(
    shape: tuple[int, int], dtype: type, kind: str, hold: Callable[..., Any]
) -> None:
    data = awkward(shape, dtype, kind)
    marks = np.where(np.isnan(data).any(axis=1), 2, np.isinf(data).any(axis=1))
    with hold(data) as held:
        assert (held.n_rows, held.n_features) == shape
        low, high = held.column_ranges()
        assert low.dtype == high.dtype == np.float64
        np.testing.assert_array_equal(low, data.min(axis=0))
        np.testing.assert_array_equal(high, data.max(axis=0))
        np.testing.assert_array_equal(held.row_marks(), marks)
        some = np.flatnonzero(np.arange(shape[0]) % 3 != 1)
        held.select(some)
        np.testing.assert_array_equal(held.array.get(), data[some])
        np.testing.assert_array_equal(held.fetch(np.arange(len(some))[::2]), data[some][::2])
        np.testing.assert_array_equal(held.for_labels[[0, 0], 0], data[[0, 0], 0])


@pytest.mark.parametrize("kind", ["negative", "both signs", "not finite"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [*SHAPES, (100_003, 3)])
def test_what_the_host_says_of_rows(shape: tuple[int, int], dtype: type, kind: str) -> None:
    data = awkward(shape, dtype, kind)
    low, high = column_ranges(data)
    assert low.dtype == high.dtype == np.float64
    np.testing.assert_array_equal(low, data.min(axis=0))
    np.testing.assert_array_equal(high, data.max(axis=0))


def test_selected_rows() -> None:
    selected = SelectedRows(X, np.array([4, 2, 9]))
    assert selected.shape == (3, 3)
    np.testing.assert_array_equal(selected[np.array([2, 0])], X[[9, 4]])
    np.testing.assert_array_equal(selected[np.array([1, 1]), 2], X[[2, 2], 2])


@pytest.mark.parametrize("n_rows", [1, 50, 64, 3001])
def test_upload(n_rows: int, cp: Any, tmp_path: Any) -> None:
    data = np.random.default_rng(0).normal(size=(n_rows, 3)).astype(np.float32)
    data.setflags(write=False)
    np.save(tmp_path / "rows.npy", data)
    for rows in (data, np.load(tmp_path / "rows.npy", mmap_mode="r")):
        uploaded = cuda_rows.upload(rows)
        assert_same_bits(uploaded.get(), data, "rows")
