"""A cohort's report: on the terminal, as strict JSON, as one HTML page."""

import html
import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from meshstage.checks.cohort import Report
from meshstage.errors import Problem, one_line
from meshstage.files import read_record, write_json, write_text

COHORT_JSON, COHORT_HTML = "cohort.json", "cohort.html"

COLUMNS = ("severity", "subject", "phase", "file", "what", "what to do")


def rows_of(problems: Sequence[Problem]) -> list[tuple[str, ...]]:
    """Give the cells of the table, one row a problem."""
    return [
        tuple(
            one_line(cell or "")
            for cell in (p.severity, p.subject, p.phase, p.file, p.what, p.todo)
        )
        for p in problems
    ]


def text_table(problems: Sequence[Problem], width: int | None = None) -> str:
    """Lay problems out as a table of text.

    Parameters
    ----------
    problems : sequence of Problem
    width : int, optional
        Of the terminal, in characters: cells are wrapped into it. Without it every problem is
        one line, which other programs can search.
    """
    rows = [COLUMNS, *rows_of(problems)]
    sizes = [max(len(row[k]) for row in rows) for k in range(len(COLUMNS))]
    if width:
        sizes = _fit(sizes, width - 2 * (len(sizes) - 1))
    lines = []
    for row in rows:
        cells = [textwrap.wrap(cell, size) or [""] for cell, size in zip(row, sizes, strict=True)]
        for k in range(max(map(len, cells))):
            parts = [
                (cell[k] if k < len(cell) else "").ljust(size)
                for cell, size in zip(cells, sizes, strict=True)
            ]
            lines.append("  ".join(parts).rstrip())
    return "\n".join(lines)


def _fit(sizes: list[int], total: int) -> list[int]:
    """Shrink the widest columns until all fit, none below 8 characters."""
    sizes = list(sizes)
    while sum(sizes) > total and max(sizes) > 8:
        sizes[sizes.index(max(sizes))] -= 1
    return sizes


def summary(report: Report) -> str:
    """Say in one sentence what was checked and how it ended."""
    splits = ", ".join(f"{count} {split}" for split, count in report.n_subjects.items())
    return (
        f"{_count(sum(report.n_subjects.values()), 'subject')} ({splits or 'none'}), "
        f"{_count(report.n_phases, 'phase')}: {_count(report.n_errors, 'error')}, "
        f"{_count(report.n_warnings, 'warning')}"
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def write_report(output: Path, report: Report) -> None:
    """Write ``cohort.json`` and ``cohort.html``."""
    value = {
        "template": report.template,
        "network": report.network,
        "n_subjects": report.n_subjects,
        "n_phases": report.n_phases,
        "n_errors": report.n_errors,
        "n_warnings": report.n_warnings,
        "problems": [asdict(problem) for problem in report.problems],
    }
    write_json(output / COHORT_JSON, value)
    write_text(output / COHORT_HTML, html_page(report))


def read_report(path: Path) -> Report:
    """Read a report from ``cohort.json``.

    Raises
    ------
    InputError
        If it is missing or not one of this program's.
    """
    return read_record(path, Report, "check the cohort again")


_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>Check of the cohort</title>
<style>
body {{ font-family: sans-serif; margin: 2em; color: #222; background: #fff; }}
table {{ border-collapse: collapse; }}
th, td {{ border: 1px solid #bbb; padding: 0.3em 0.6em; text-align: left; vertical-align: top;
          overflow-wrap: anywhere; }}
th {{ background: #eee; }}
tr.error td:first-child {{ background: #f6c4c0; }}
tr.warning td:first-child {{ background: #fbe7b2; }}
</style>
</head>
<body>
<h1>Check of the cohort</h1>
<p>Template {template}. {summary}.</p>
{table}
</body>
</html>
"""


def html_page(report: Report) -> str:
    """Write the report as one page that needs no other file."""
    head = "".join(f"<th>{html.escape(name)}</th>" for name in COLUMNS)
    rows = [
        f'<tr class="{row[0]}">'
        + "".join(f"<td>{html.escape(cell)}</td>" for cell in row)
        + "</tr>"
        for row in rows_of(report.problems)
    ]
    table = "\n".join(["<table>", f"<tr>{head}</tr>", *rows, "</table>"])
    return _PAGE.format(
        template=html.escape(one_line(report.template)),
        summary=html.escape(summary(report)),
        table=table if rows else "<p>No problem was found.</p>",
    )
