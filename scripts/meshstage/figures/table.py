"""The table of figures: a new one is a function, and its row here.

Free of matplotlib and VTK: the Snakefile reads it. ``scripts/plot.py`` draws a group; the report
takes a caption from ``workflow/report/{figure}.rst`` where there is one.
"""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Drawing:
    """What one function draws.

    Parameters
    ----------
    files : tuple of str
        The report shows the first. The function gives as many things, each a matplotlib figure, a
        text or bytes; a single thing for a single file.
    title : str
        In the report.
    function : str
        ``module:function`` of this room.
    takes : tuple of str
        Its arguments: what `meshstage.figures.given.Given` reads.
    """

    files: tuple[str, ...]
    title: str
    function: str
    takes: tuple[str, ...]


@dataclass(frozen=True)
class Group:
    """Figures that one job draws, since they are made from the same.

    Parameters
    ----------
    category : str
        In the report.
    needs : tuple of str
        Options of ``plot.py``, keys of `NEEDS`.
    drawings : tuple of Drawing
    of : "run" or "all"
        Whether each run has such figures, or all have them together.
    only : "epochs", "sweep", "folds" or "curve", optional
        Drawn only for what has epochs, where the table of runs holds a sweep, or where the
        configuration asks for folds or a learning curve.
    """

    category: str
    needs: tuple[str, ...]
    drawings: tuple[Drawing, ...]
    of: Literal["run", "all"] = "run"
    only: Literal["epochs", "sweep", "folds", "curve"] | None = None

    @property
    def files(self) -> list[str]:
        """Names of all files."""
        return [name for drawing in self.drawings for name in drawing.files]

    @property
    def modules(self) -> list[str]:
        """The modules that draw them."""
        names = [drawing.function.partition(":")[0] for drawing in self.drawings]
        return [f"meshstage.figures.{name}" for name in dict.fromkeys(names)]


@dataclass(frozen=True)
class Need:
    """An option of ``plot.py``: a file or folder, or several."""

    help: str
    several: bool = False


NEEDS = {
    "model": Need("model directory, also one in training"),
    "models": Need("finished models", several=True),
    "check": Need("cohort.json of the check"),
    "evaluation": Need("of the run (.json)"),
    "evaluations": Need("of all runs (.json), with the .csv file beside each", several=True),
    "parts": Need("of all runs, trained on parts of the subjects (.json)", several=True),
    "template": Need("folder that build_template.py wrote"),
    "predictions": Need("of the run (predict.py)"),
    "subjects": Need("ingested subjects that were evaluated", several=True),
    "baselines": Need("baselines.json, of fit_baselines.py"),
}


GROUPS = {
    "training": Group(
        category="Training",
        needs=("model", "evaluation"),
        drawings=(
            Drawing(
                ("training.png",),
                "loss and RMSE",
                "training:plot_training",
                ("losses", "rmse_log", "best_epoch", "summary", "run"),
            ),
        ),
        only="epochs",
    ),
    "meshes": Group(
        category="Meshes",
        needs=("template", "evaluation", "predictions", "subjects"),
        drawings=(
            Drawing(
                ("meshes.png",),
                "best, median and worst",
                "meshes:plot_cases",
                ("mesh", "cases", "unit"),
            ),
            Drawing(
                ("cycle.html", "cycle.gif"),
                "one cycle",
                "meshes:animate",
                ("mesh", "middle", "unit"),
            ),
        ),
    ),
    "viewer": Group(
        category="Meshes",
        needs=("template", "evaluation", "predictions", "subjects", "baselines"),
        drawings=(
            Drawing(
                ("viewer.html",),
                "3-D, to be turned by hand",
                "viewer:viewer_page",
                ("mesh", "cases", "unit", "stage_means"),
            ),
        ),
    ),
    "evaluation": Group(
        category="Judgement",
        needs=("evaluations",),
        drawings=(
            Drawing(
                ("error_by_stage.png",),
                "error by stage",
                "evaluation:plot_error_by_stage",
                ("runs",),
            ),
            Drawing(
                ("error_by_subject.png",),
                "error by subject",
                "evaluation:plot_error_by_subject",
                ("runs",),
            ),
            Drawing(
                ("runs.html", "runs.tsv"),
                "table of all runs",
                "evaluation:tables_of_runs",
                ("evaluations",),
            ),
        ),
        of="all",
    ),
    "sweeps": Group(
        category="Judgement",
        needs=("evaluations",),
        drawings=(
            Drawing(
                ("sweeps.png",),
                "error by what a sweep varies",
                "sweeps:plot_sweeps",
                ("runs",),
            ),
        ),
        of="all",
        only="sweep",
    ),
    "folds": Group(
        category="Judgement",
        needs=("evaluations",),
        drawings=(
            Drawing(
                ("out_of_fold.png",),
                "error out of fold",
                "folds:plot_out_of_fold",
                ("out_of_fold",),
            ),
        ),
        of="all",
        only="folds",
    ),
    "curve": Group(
        category="Judgement",
        needs=("evaluations", "parts"),
        drawings=(
            Drawing(
                ("learning_curve.png",),
                "what more subjects would bring",
                "folds:plot_learning_curve",
                ("curve",),
            ),
        ),
        of="all",
        only="curve",
    ),
    "parameters": Group(
        category="Data",
        needs=("models", "check"),
        drawings=(
            Drawing(
                ("parameters.html",),
                "settings, data, versions",
                "parameters:parameters_page",
                ("names", "metadata", "report"),
            ),
        ),
        of="all",
    ),
}
