"""The commands. Each reads, computes by the library, writes its files, and returns what it has to say."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

import mreach
from mreach.cli.options import (
    ColumnsOption,
    DatasetOption,
    DebugOption,
    HeaderOption,
    JobsOption,
    JsonOption,
    ModelOption,
    OnProblemOption,
    OutputOption,
    ProgressOption,
    QuietOption,
    ReportOption,
    TableOption,
    takes_fit_options,
)
from mreach.cli.running import WRONG_INPUT, Outcome, shows_progress

app = typer.Typer(
    name="mreach",
    help="Exact HDBSCAN clustering of tables and spike clips. Results go to standard output, all else to "
    "standard error. Exit codes: 0 done, 1 failed, 2 wrong input, 3 no cluster found.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: Rich cuts long names of options, and takes [default: ...] for markup
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        typer.echo(mreach.__version__)
        raise typer.Exit()
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(WRONG_INPUT)


@app.command()
@takes_fit_options()
def cluster(
    data: Annotated[Path, typer.Argument(help="Rows of numbers: .npy, .npz, .csv, .parquet, .h5, .zarr ...")],
    *,
    output: OutputOption = None,
    dataset: DatasetOption = None,
    columns: ColumnsOption = None,
    header: HeaderOption = None,
    model: ModelOption = True,
    table: TableOption = None,
    report: ReportOption = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
    progress: ProgressOption = None,
    debug: DebugOption = False,
    **parameters: Any,
) -> Outcome:
    """Cluster the rows of a table.

    Writes labels.npy, probabilities.npy, outlier_scores.npy, model.npz and summary.json into the output
    folder.
    """
    from mreach.cli.fitting import FitJob, run_fit

    job = FitJob("cluster", data, output, dataset, columns or (), header, model, table, report)
    parameters["progress"] = shows_progress(progress, quiet)
    return run_fit(job, parameters).shown(json, quiet)


@app.command()
@takes_fit_options(min_cluster_size=20)
def clips(
    clips: Annotated[Path, typer.Argument(help="Spike clips, one a row: .npy, .npz, .csv, .h5, .zarr ...")],
    *,
    output: OutputOption = None,
    dataset: DatasetOption = None,
    columns: ColumnsOption = None,
    header: HeaderOption = None,
    model: ModelOption = True,
    table: TableOption = None,
    report: ReportOption = None,
    on_problem: OnProblemOption = "warn",
    json: JsonOption = False,
    quiet: QuietOption = False,
    progress: ProgressOption = None,
    debug: DebugOption = False,
    **parameters: Any,
) -> Outcome:
    """Drop the outliers among spike clips.

    Writes kept_clips.npy, kept.npy (which ones), labels.npy, probabilities.npy, outlier_scores.npy, model.npz
    and summary.json into the output folder. Where there are too few clips, or all are outliers, all are kept,
    with a warning and exit code 3.
    """
    from mreach.cli.fitting import FitJob, run_fit

    job = FitJob("clips", clips, output, dataset, columns or (), header, model, table, report)
    parameters["progress"] = shows_progress(progress, quiet)
    return run_fit(job, parameters, on_problem).shown(json, quiet)


@app.command()
def extract(
    recording: Annotated[
        Path,
        typer.Argument(help="Folder of SpikeInterface, or samples x channels in .npy, .h5, .zarr."),
    ],
    *,
    output: OutputOption = None,
    dataset: DatasetOption = None,
    sampling_frequency: Annotated[
        float | None, typer.Option(help="In Hz; needed for an array that is to be preprocessed.")
    ] = None,
    preprocess: Annotated[
        bool,
        typer.Option(help="High-pass, common reference and whitening by SpikeInterface; not if done before."),
    ] = True,
    threshold: Annotated[
        list[float] | None,
        typer.Option(help="In standard deviations; may be given several times. [default: 6]"),
    ] = None,
    n_timepoints: Annotated[int, typer.Option(help="Samples of a clip.")] = 61,
    peak_sample: Annotated[
        int | None, typer.Option(help="Sample of a clip at which the peak lies. [default: 20 of 61]")
    ] = None,
    nskip: Annotated[int, typer.Option(help="Only every nskip-th batch is searched.")] = 1,
    batch_size: Annotated[int, typer.Option(help="Samples of a batch.")] = 60_000,
    max_clips: Annotated[int, typer.Option(help="The search ends when so many are found.")] = 500_000,
    backend: Annotated[str, typer.Option(help="auto, cpu or cuda: the same result from each.")] = "auto",
    device: Annotated[int | None, typer.Option(help="Index of the GPU.")] = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
    progress: ProgressOption = None,
    debug: DebugOption = False,
) -> Outcome:
    """Cut the clips of isolated spikes out of a recording.

    Writes clips.npy, spikes.npz (samples, channels, segments, thresholds, scale) and summary.json into the
    output folder.
    """
    from mreach.cli.sorting import run_extract

    parameters = {
        "sampling_frequency": sampling_frequency,
        "preprocess": preprocess,
        "threshold": threshold or 6.0,
        "n_timepoints": n_timepoints,
        "peak_sample": peak_sample,
        "nskip": nskip,
        "batch_size": batch_size,
        "max_clips": max_clips,
        "backend": backend,
        "device": device,
        "progress": shows_progress(progress, quiet),
    }
    return run_extract(recording, output, dataset, parameters).shown(json, quiet)


@app.command()
@takes_fit_options(min_cluster_size=20)
def templates(
    clips: Annotated[Path, typer.Argument(help="All clips, as extract writes them.")],
    *,
    output: OutputOption = None,
    dataset: DatasetOption = None,
    keep: Annotated[
        Path | None, typer.Option(help="kept.npy, as clips writes it. [default: drop outliers now]")
    ] = None,
    n_templates: Annotated[int, typer.Option(help="Number of templates.")] = 6,
    n_pcs: Annotated[int, typer.Option(help="Number of principal components.")] = 6,
    random_state: Annotated[int, typer.Option(help="For k-means.")] = 0,
    on_problem: OnProblemOption = "warn",
    json: JsonOption = False,
    quiet: QuietOption = False,
    progress: ProgressOption = None,
    debug: DebugOption = False,
    **parameters: Any,
) -> Outcome:
    """Make the universal templates of Kilosort4 and EMUsort from clips.

    Writes wTEMP.npz (with wPCA and wTEMP, as they read it) and summary.json into the output folder.
    """
    from mreach.cli.sorting import run_templates

    own = {"n_templates": n_templates, "n_pcs": n_pcs, "random_state": random_state, "on_problem": on_problem}
    parameters |= own | {"progress": shows_progress(progress, quiet)}
    return run_templates(clips, output, dataset, keep, parameters).shown(json, quiet)


@app.command()
def predict(
    model: Annotated[Path, typer.Argument(help="model.npz, as cluster and clips write it.")],
    data: Annotated[Path, typer.Argument(help="New rows: .npy, .npz, .csv, .parquet, .h5, .zarr ...")],
    *,
    output: OutputOption = None,
    dataset: DatasetOption = None,
    columns: ColumnsOption = None,
    header: HeaderOption = None,
    membership: Annotated[
        bool, typer.Option("--membership", help="Also write how strongly each row belongs to each cluster.")
    ] = False,
    table: TableOption = None,
    n_jobs: JobsOption = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
    progress: ProgressOption = None,
    debug: DebugOption = False,
) -> Outcome:
    """Find the clusters of new rows by a saved model, without clustering anew.

    Writes labels.npy, probabilities.npy, outlier_scores.npy and summary.json into the output folder.
    """
    from mreach.cli.predicting import PredictJob, run_predict

    job = PredictJob(model, data, output, dataset, columns or (), header, membership, table)
    return run_predict(job, n_jobs, shows_progress(progress, quiet)).shown(json, quiet)


@app.command()
def info(
    json: JsonOption = False,
    quiet: QuietOption = False,
    debug: DebugOption = False,
) -> Outcome:
    """Say what can run here, in which versions, what is missing and how to get it."""
    from mreach.cli.info import describe

    return describe().shown(json, quiet)
