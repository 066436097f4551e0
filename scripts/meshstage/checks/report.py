"""A cohort's report: on the terminal, as strict JSON, as one HTML page."""

import html
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from meshstage import pages
from meshstage.checks.cohort import Report
from meshstage.errors import Problem, one_line
from meshstage.files import read_record, write_json, write_text

COHORT_JSON, COHORT_HTML = "cohort.json", "cohort.html"

COLUMNS = ("severity", "subject", "phase", "file", "what", "what to do")


def rows_of(problems: Sequence[Problem]) -> list[tuple[str, ...]]:
    """Give the cells of the table, one row per problem."""
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
    return pages.text_table([COLUMNS, *rows_of(problems)], width)


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


_STYLE = """
tr.error td:first-child { background: #f6c4c0 }
tr.warning td:first-child { background: #fbe7b2 }
"""


def html_page(report: Report) -> str:
    """Write the report as one page that needs no other file."""
    rows = [pages.html_row(row, kind=row[0]) for row in rows_of(report.problems)]
    table = pages.html_table(COLUMNS, rows) if rows else "<p>No problem was found.</p>"
    title = "Check of the cohort"
    template = html.escape(one_line(report.template))
    intro = f"<h1>{title}</h1>\n<p>Template {template}. {html.escape(summary(report))}.</p>"
    return pages.html_page(title, f"{intro}\n{table}", _STYLE)
