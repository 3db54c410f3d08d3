"""Options that several commands share. Those of a fit are the parameters of HDBSCAN, with their defaults."""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from mreach.cli.running import InputError
from mreach.estimator import HDBSCAN

__all__ = [
    "FIT_OPTIONS",
    "WITHOUT_OPTION",
    "ColumnsOption",
    "DatasetOption",
    "DebugOption",
    "HeaderOption",
    "JobsOption",
    "JsonOption",
    "ModelOption",
    "OnProblemOption",
    "OutputOption",
    "ProgressOption",
    "QuietOption",
    "ReportOption",
    "TableOption",
    "takes_fit_options",
]


def _option(help: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, **more)


FIT_OPTIONS: dict[str, Any] = {
    "min_cluster_size": Annotated[int, _option("Smallest number of rows that counts as a cluster.")],
    "min_samples": Annotated[
        int | None,
        _option("Neighbours that make a place dense, the row itself included. [default: min_cluster_size]"),
    ],
    "cluster_selection_method": Annotated[
        str, _option("eom: clusters of the largest total excess of mass; leaf: the finest.")
    ],
    "cluster_selection_epsilon": Annotated[
        float, _option("Distance below which clusters are not split; 0: off.")
    ],
    "cluster_selection_epsilon_max": Annotated[
        float, _option("Clusters that split off above this distance are not selected by eom.")
    ],
    "max_cluster_size": Annotated[
        int | None, _option("Larger clusters are not selected by eom. [default: no limit]")
    ],
    "allow_single_cluster": Annotated[bool, _option("All rows may come out as one cluster.")],
    "metric": Annotated[str, _option("Distance between rows.")],
    "metric_params": Annotated[
        str | None, _option("Parameters of the metric, as JSON.", metavar="JSON", show_default=False)
    ],
    "p": Annotated[float | None, _option("Power of the minkowski metric.")],
    "alpha": Annotated[float, _option("Distances are divided by it.")],
    "store_centers": Annotated[
        str | None, _option("Centres to save with the model: centroid, medoid or both.")
    ],
    "backend": Annotated[str, _option("auto, cpu, cuda or reference: the same result from each.")],
    "device": Annotated[int | None, _option("Index of the GPU. [default: the current one]")],
    "n_jobs": Annotated[int | None, _option("Number of threads. [default: all cores]")],
}

WITHOUT_OPTION = ("progress", "prediction_data", "algorithm", "leaf_size", "copy")
"""Parameters of HDBSCAN that follow from options of every command, or have no effect."""

JobsOption: Any = FIT_OPTIONS["n_jobs"]

OutputOption = Annotated[
    Path | None,
    _option("Folder for the results. [default: in this folder, named after the data]", "--output", "-o"),
]
ModelOption = Annotated[bool, _option("Whether to save the model, for predict.", "--model/--no-model")]
OnProblemOption = Annotated[
    str, _option("Too few clips, or nothing but outliers: warn and keep all, or raise an error.")
]
TableOption = Annotated[
    Path | None, _option("Also write labels and scores as a table: .csv, .tsv or .parquet.")
]
ReportOption = Annotated[Path | None, _option("Also write an HTML page that shows the result.")]
JsonOption = Annotated[bool, _option("Print the result as JSON.", "--json")]
QuietOption = Annotated[bool, _option("Print nothing but errors, and JSON where asked for.", "--quiet", "-q")]
ProgressOption = Annotated[
    bool | None,
    _option("Progress on standard error. [default: where that is a terminal]", "--progress/--no-progress"),
]
DebugOption = Annotated[bool, _option("Show where an error comes from.", "--debug")]
DatasetOption = Annotated[str | None, _option("Which array of an .npz, HDF5 or Zarr file.", metavar="NAME")]
ColumnsOption = Annotated[
    list[str] | None,
    _option("Columns of a CSV or Parquet file, such as x,y,z. [default: all]", metavar="NAMES"),
]
HeaderOption = Annotated[
    bool | None,
    _option("Whether a text file begins with names. [default: look]", "--header/--no-header"),
]


def _read_json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise InputError(f"--metric-params {text!r} is no JSON ({error}), such as '{{\"p\": 3}}'") from None


def takes_fit_options(**defaults: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command an option for each parameter of a fit, in place of its ``**parameters``.

    Parameters
    ----------
    **defaults
        Where they differ from those of HDBSCAN.
    """
    fitted = inspect.signature(HDBSCAN).parameters

    def add_options(command: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(command, eval_str=True)
        own = [one for one in signature.parameters.values() if one.kind is not one.VAR_KEYWORD]
        of_fit = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=defaults.get(name, fitted[name].default),
                annotation=annotation,
            )
            for name, annotation in FIT_OPTIONS.items()
        ]

        @functools.wraps(command)
        def with_options(*args: Any, **given: Any) -> Any:
            if given["metric_params"] is not None:
                given["metric_params"] = _read_json(given["metric_params"])
            return command(*args, **given)

        made: Any = with_options
        made.__signature__ = signature.replace(parameters=[*own, *of_fit])
        made.__annotations__ = {one.name: one.annotation for one in (*own, *of_fit)}
        return with_options

    return add_options
