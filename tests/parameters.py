"""Parameters of a fit that fit themselves to the data set, and combinations of them that cover all pairs."""

import zlib
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Parameters:
    """Parameters of a fit; what depends on the data is named here and worked out by ``for_data``.

    ``min_samples`` may be "half" or "all" (of the finite rows). ``epsilon`` and ``max_cluster_size`` say
    whether they are used: a twentieth of the diameter of the data, and a quarter of the rows.
    """

    min_cluster_size: int = 5
    min_samples: int | str | None = None
    alpha: float = 1.0
    method: str = "eom"
    epsilon: bool = False
    max_cluster_size: bool = False
    allow_single_cluster: bool = False

    def for_data(self, X: np.ndarray) -> dict[str, Any]:
        """Return the keyword arguments of ``mreach.HDBSCAN`` for a data set."""
        X = np.asarray(X, dtype=np.float64)
        X = X[np.isfinite(X).all(axis=1)]
        n = len(X)
        asked = self.min_cluster_size if self.min_samples is None else self.min_samples
        samples = {"half": max(n // 2, 1), "all": n}.get(asked, asked)
        keep_default = self.min_samples is None and samples <= n
        return {
            "min_cluster_size": self.min_cluster_size,
            "min_samples": None if keep_default else min(samples, n),
            "alpha": self.alpha,
            "cluster_selection_method": self.method,
            "cluster_selection_epsilon": float(0.05 * np.linalg.norm(np.ptp(X, axis=0)))
            if self.epsilon
            else 0.0,
            "max_cluster_size": max(n // 4, self.min_cluster_size) if self.max_cluster_size else None,
            "allow_single_cluster": self.allow_single_cluster,
        }

    def __str__(self) -> str:
        return "-".join(str(value) for value in asdict(self).values())


VALUES: dict[str, tuple] = {
    "min_samples": (None, 1, 5, 70, "half", "all"),
    "min_cluster_size": (2, 5, 20),
    "alpha": (0.5, 1.0, 2.0),
    "method": ("eom", "leaf"),
    "epsilon": (False, True),
    "max_cluster_size": (False, True),
    "allow_single_cluster": (False, True),
}

FITS_FOR_EACH_DATASET = max(len(values) for values in VALUES.values())


def combinations(dataset: str) -> list[Parameters]:
    """Return a few parameters for a data set, in which each value of each parameter occurs at least once.

    Over many data sets, each shuffled with its own seed, all pairs of values of two parameters occur
    (``test_exactness`` checks it).
    """
    rng = np.random.default_rng(zlib.crc32(dataset.encode()))
    columns = {}
    for name, values in VALUES.items():
        repeated = [values[i % len(values)] for i in range(FITS_FOR_EACH_DATASET)]
        columns[name] = [repeated[i] for i in rng.permutation(FITS_FOR_EACH_DATASET)]
    return [Parameters(**dict(zip(columns, row, strict=True))) for row in zip(*columns.values(), strict=True)]
