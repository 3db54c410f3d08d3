"""What a user hands in is checked here, once, before any work; nothing else raises on it.

Three doors of a fit: :func:`check_parameters` reads the parameters of an estimator into plain Python values,
:func:`check_array_like` makes an array of the data without ever writing to them, and :func:`check_rows` looks
at their values where a backend holds them. ``cuts`` and ``labels`` check what is asked of fitted trees and of
labelled rows.
"""

from mreach.validation.arrays import check_array_like
from mreach.validation.numbers import InvalidParameterError
from mreach.validation.parameters import Parameters, check_parameters, given_parameters
from mreach.validation.rows import Rows, check_rows
from mreach.validation.weights import check_sample_weight

__all__ = [
    "InvalidParameterError",
    "Parameters",
    "Rows",
    "check_array_like",
    "check_parameters",
    "check_rows",
    "check_sample_weight",
    "given_parameters",
]
