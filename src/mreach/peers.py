"""Names that other HDBSCAN libraries have for parameters and methods, and what they mean here.

``algorithm``, ``leaf_size`` and ``copy`` of scikit-learn are parameters of :class:`mreach.HDBSCAN` itself and
have no effect. What only hdbscan has is taken by name where it means something here, so that code that moves
over keeps working, and refused with what to use instead where it does not.
"""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, cast

ALGORITHMS = ("auto", "brute", "kd_tree", "ball_tree", "kdtree", "balltree")
"""What scikit-learn takes for ``algorithm``, with the names that it had before."""

HDBSCAN_ALGORITHMS = (
    "best",
    "generic",
    "prims_kdtree",
    "prims_balltree",
    "boruvka_kdtree",
    "boruvka_balltree",
)
"""What hdbscan takes for ``algorithm``."""

# Parameters of hdbscan that change nothing here, whatever their value.
_WITHOUT_EFFECT = {
    "gen_min_span_tree",  # the tree is always kept
    "approx_min_span_tree",  # it is always the minimum one, which the approximation aims at
}

# Parameters of hdbscan whose "off" is accepted, and what to do in place of "on".
_ONLY_OFF: dict[str, tuple[tuple[Any, ...], str]] = {
    "cluster_selection_persistence": (
        (0, None),
        "it prunes a binary tree, which depends on the order of equal edges: use min_cluster_size or "
        "cluster_selection_epsilon, or leave out clusters with small cluster_persistence_ after the fit",
    ),
    "match_reference_implementation": (
        (False,),
        "it changes the labels of a few border rows: leave it out",
    ),
    "branch_detection_data": ((False,), "branches inside clusters are out of the scope of mreach"),
    "memory": (
        (None,),
        "nothing is cached on disk: pickle the fitted model, and use cut() for other parameters",
    ),
}

# Parameters of other libraries (fast_hdbscan, cuML) that have no "off" to accept.
_REFUSED = {
    "metric_kwds": "use metric_params",
    "semi_supervised": "there is no semi-supervised clustering here",
    "reproducible": "every fit is reproducible: leave it out",
    "connectivity": "cuML's choice of an approximate graph: leave it out, every fit is exact",
    "build_algo": "cuML's choice of an approximate graph: leave it out, every fit is exact",
    "output_type": "fitted attributes are NumPy arrays",
    "verbose": "use progress=True",
    "eps": "use dbscan_clustering(cut_distance) after the fit, or cluster_selection_epsilon",
}


Init = TypeVar("Init", bound=Callable[..., None])


def takes_peer_names(init: Init) -> Init:
    """Let an ``__init__`` take parameters of other libraries by their names.

    Its signature stays as it is, as scikit-learn reads an estimator's parameters from there.

    Raises
    ------
    TypeError
        (from the ``__init__`` made) for a name, or a value, that has no meaning here; it says what to use.
    """
    known = inspect.signature(init).parameters

    @functools.wraps(init)
    def init_by_any_name(self: Any, *args: Any, **given: Any) -> None:
        for name in [name for name in given if name not in known]:
            value = given.pop(name)
            if name == "core_dist_n_jobs" and given.get("n_jobs") is None:
                given["n_jobs"] = value
            else:
                _refuse_unless_without_effect(type(self).__name__, known, name, value)
        init(self, *args, **given)

    return cast(Init, init_by_any_name)


def _refuse_unless_without_effect(estimator: str, known: Iterable[str], name: str, value: Any) -> None:
    if name == "core_dist_n_jobs":
        raise TypeError("core_dist_n_jobs is another name of n_jobs: give one of the two")
    if name in _ONLY_OFF:
        off, instead = _ONLY_OFF[name]
        if not (isinstance(value, (bool, float, int, type(None))) and value in off):
            if name == "memory" and getattr(value, "location", value) is None:
                return  # joblib's way to say that nothing is cached
            raise TypeError(f"{name}={value!r} is not part of mreach: {instead}")
    elif name in _REFUSED:
        raise TypeError(f"{name} is not part of mreach: {_REFUSED[name]}")
    elif name not in _WITHOUT_EFFECT:
        valid = [one for one in known if one != "self"]
        near = difflib.get_close_matches(name, valid, 1)
        hint = f"; did you mean {near[0]!r}?" if near else f"; it has {', '.join(valid)}"
        raise TypeError(f"{estimator} has no parameter {name!r}{hint}")
