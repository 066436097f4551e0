"""What the runs were made of: settings, data and versions, side by side."""

import html
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from meshstage.checks.cohort import Report
from meshstage.checks.report import summary
from meshstage.errors import InputError, Problem
from meshstage.files import read_json
from meshstage.models.names import metadata_name, tags_in

# Keys of the metadata in the order of the table; all other single values describe the network.
_TRAINING = {
    "epochs": "epochs",
    "best_epoch": "best epoch",
    "learning_rate": "learning rate",
    "batch_size_samples": "batch size a rank",
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
    "in_features": "inputs a point",
    "target_array": "target",
    "n_target": "components of the target",
    "target_scale": "scale of the target",
    "target_is_displacement": "the target is a displacement",
    "template_fingerprint": "fingerprint of the template",
}
_COMMIT = "git_commit"

Table = list[tuple[str, list[str]]]


def read_metadata(model: Path) -> dict[str, Any]:
    """Read the metadata of a finished model.

    Raises
    ------
    InputError
        If there are none.
    """
    for tag in tags_in(model):
        if (path := model / metadata_name(tag)).exists():
            metadata: dict[str, Any] = read_json(path)
            return metadata
    raise InputError(Problem("no finished model here", "name a model directory", str(model)))


def tables_of_parameters(models: Sequence[dict[str, Any]]) -> dict[str, Table]:
    """Lay metadata out: by section the rows, each a name and one cell a run.

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
            ("median seconds an epoch", [_seconds(m.get("epoch_seconds")) for m in models]),
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


_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Parameters of all runs</title><style>
body {{ font: 14px/1.4 system-ui, sans-serif; margin: 1.5em; color: #111; background: #fff }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums }}
th, td {{ padding: .3em .8em; text-align: left; border-bottom: 1px solid #ddd }}
tbody th {{ font-weight: normal }}
thead th {{ border-bottom: 2px solid #111 }}
tbody th.section {{ padding-top: 1.2em; font-weight: bold; border-bottom: 1px solid #111 }}
tr.differs td, tbody tr.differs th {{ font-weight: bold }}
</style></head><body>
<p>{counts}.</p>
<table><thead><tr><th>run</th>{runs}</tr></thead>
<tbody>
{body}
</tbody></table>
<p>A bold row differs between runs. A dash is a value that a run does not have.</p>
</body></html>
"""


def parameters_page(names: Sequence[str], models: Sequence[dict[str, Any]], report: Report) -> str:
    """Write the parameters of runs, and what the check counted, as a page that needs nothing else.

    Parameters
    ----------
    names : sequence of str
        One a run.
    models : sequence of dict
        Their metadata.
    report : Report
        The check of their cohort.
    """
    lines = []
    for section, table in tables_of_parameters(models).items():
        lines.append(f'<tr><th class="section" colspan="{1 + len(names)}">{section}</th></tr>')
        for title, cells in table:
            differs = ' class="differs"' if len(set(cells)) > 1 else ""
            row = "".join(f"<td>{html.escape(cell)}</td>" for cell in cells)
            lines.append(f"<tr{differs}><th>{html.escape(title)}</th>{row}</tr>")
    return _PAGE.format(
        counts=html.escape(f"Cohort: {summary(report)}"),
        runs="".join(f"<th>{html.escape(name)}</th>" for name in names),
        body="\n".join(lines),
    )
