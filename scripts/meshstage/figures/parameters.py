"""What the runs were made of: settings, data and versions, side by side."""

import statistics
from collections.abc import Sequence
from html import escape
from typing import Any

from meshstage.checks.cohort import Report
from meshstage.checks.report import summary
from meshstage.pages import html_page, html_row, html_table

# Keys of the metadata in the order of the table; all other single values describe the network.
_TRAINING = {
    "epochs": "epochs",
    "best_epoch": "best epoch",
    "learning_rate": "learning rate",
    "batch_size_samples": "batch size per rank",
    "effective_batch": "effective batch",
    "seed": "seed",
    "resumed_from": "resumed from",
    "skipped_steps": "skipped steps",
    "ranks": "ranks",
    "device": "device",
    "precision": "precision",
    "compile": "torch.compile",
    "peak_memory_mb": "peak memory (MB)",
}
_DATA = {
    "n_mesh_points": "points",
    "in_features": "inputs per point",
    "target_array": "target",
    "n_target": "components of the target",
    "target_scale": "scale of the target",
    "target_is_displacement": "the target is a displacement",
    "template_fingerprint": "fingerprint of the template",
}
_COMMIT = "git_commit"

Table = list[tuple[str, list[str]]]


def tables_of_parameters(models: Sequence[dict[str, Any]]) -> dict[str, Table]:
    """Lay metadata out: by section the rows, each a name and one cell per run.

    >>> run = {"epochs": 3, "layer_size": 8, "packages": {"torch": "2.14.1"}}
    >>> tables_of_parameters([run, {"epochs": 4, "processor_size": 2}])["Network"]
    [('layer size', ['8', '-']), ('processor size', ['-', '2'])]
    """
    listed = {*_TRAINING, *_DATA, _COMMIT}
    # A dict keeps the order in which keys were first seen.
    network = dict.fromkeys(
        key
        for metadata in models
        for key, value in metadata.items()
        if key not in listed and not isinstance(value, list | dict)
    )
    versions = [m.get("packages", {}) for m in models]
    packages = dict.fromkeys(name for those in versions for name in those)

    def rows(names: dict[str, str]) -> Table:
        return [(title, [_cell(m.get(key)) for m in models]) for key, title in names.items()]

    return {
        "Network": rows({key: key.replace("_", " ") for key in network}),
        "Training": [
            *rows(_TRAINING),
            ("median seconds per epoch", [_seconds(m.get("epoch_seconds")) for m in models]),
        ],
        "Data": [
            ("training subjects", [_length(m.get("train_subject_ids")) for m in models]),
            ("validation subjects", [_length(m.get("val_subject_ids")) for m in models]),
            ("different training stages", [_length(m.get("training_stages")) for m in models]),
            *rows(_DATA),
        ],
        "Versions": [
            *((name, [_cell(those.get(name)) for those in versions]) for name in packages),
            ("commit of this program", [_cell(m.get(_COMMIT)) for m in models]),
        ],
    }


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    text = str(value).rsplit(".", 1)[-1] if str(value).startswith("physicsnemo.") else str(value)
    return text[:12] if len(text) in (40, 64) and text.isalnum() else text  # a hash


def _length(values: Any) -> str:
    return "-" if values is None else str(len(values))


def _seconds(values: Any) -> str:
    return f"{statistics.median(values):.3g}" if values else "-"


_STYLE = """
tbody th.section { padding-top: 1.2em; font-weight: bold; border-bottom: 1px solid #111 }
tr.differs td, tr.differs th { font-weight: bold }
"""


def parameters_page(names: Sequence[str], models: Sequence[dict[str, Any]], report: Report) -> str:
    """Write the parameters of runs, and what the check counted, as a page that needs nothing else.

    Parameters
    ----------
    names : sequence of str
        One per run.
    models : sequence of dict
        Their metadata.
    report : Report
        The check of their cohort.
    """
    rows = []
    for section, table in tables_of_parameters(models).items():
        rows.append(f'<tr><th class="section" colspan="{1 + len(names)}">{section}</th></tr>')
        for title, cells in table:
            kind = "differs" if len(set(cells)) > 1 else ""
            rows.append(html_row([title, *cells], kind, first="th"))
    return html_page(
        "Parameters of all runs",
        f"<p>{escape(f'Cohort: {summary(report)}')}.</p>\n{html_table(['run', *names], rows)}\n"
        "<p>A bold row differs between runs. A dash is a value that a run does not have.</p>",
        _STYLE,
    )
