"""List every problem of a cohort before anything is trained.

Straight from your files, before anything exists (--mesh and --subjects-table); from subjects
that ingest_subject.py has read (--template and --subjects); or as a gate that lets a checked
cohort pass (--gate and --output). Exit code 0 if no problem is an error, else 2.
"""

import argparse
import os
import shutil
import sys
from pathlib import Path

from command_line import new_parser, run
from meshstage.config.networks import LOSSES, NETWORKS


def main(arguments: argparse.Namespace) -> int:
    """Check, print the table, write the report if asked to; the exit code tells the result."""
    _refuse_half_a_use(arguments)
    from meshstage.checks.report import read_report, summary, text_table, write_report
    from meshstage.errors import EXIT_BAD_INPUT

    report = read_report(arguments.gate) if arguments.gate else _check(arguments)
    if report.problems:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        print(text_table(report.problems, width))
    print(summary(report), flush=True)
    if arguments.output and not arguments.gate:
        write_report(arguments.output, report)
    if report.n_errors and not arguments.report_only:
        more = f" (the first of {report.n_errors} errors)" if report.n_errors > 1 else ""
        print(f"error: {report.problems[0].sentence()}{more}", file=sys.stderr)
        return EXIT_BAD_INPUT
    if arguments.gate:
        from meshstage.files import write_text

        write_text(arguments.output, summary(report) + "\n")
    return 0


def _refuse_half_a_use(arguments: argparse.Namespace) -> None:
    """Exit with argparse's own code 2 and usage where options are missing that go together."""
    if arguments.mesh and not arguments.subjects_table:
        _parser().error("--mesh needs --subjects-table")
    if arguments.template and not arguments.subjects:
        _parser().error("--template needs --subjects")
    if arguments.gate and not arguments.output:
        _parser().error("--gate needs --output")
    if arguments.jobs < 1:
        _parser().error(f"--jobs must be at least 1, not {arguments.jobs}")


def _check(arguments: argparse.Namespace):  # type: ignore[no-untyped-def]
    table = arguments.subjects_table
    network = ", ".join(arguments.network or []) or None
    if arguments.mesh:
        from meshstage.checks.files import check_files

        return check_files(
            arguments.mesh,
            table,
            arguments.surface,
            arguments.edges,
            network,
            arguments.jobs,
        )
    from meshstage.checks.cohort import check_cohort, ingested_entries
    from meshstage.cohort.template import load_template
    from meshstage.config.subjects import read_subjects_table

    rows = read_subjects_table(table) if table else None
    entries, problems = ingested_entries(arguments.subjects, rows)
    template = load_template(arguments.template)
    problems += _region_problems(template, arguments.region) if arguments.region else []
    return check_cohort(template, entries, table, network, problems)


def _region_problems(template, array: str):  # type: ignore[no-untyped-def]
    """Find out before the training what would end the judgement after it."""
    from meshstage.errors import Problem, at, collecting
    from meshstage.judging.metrics import region_points

    problems: list[Problem] = []
    with collecting(problems), at(template.source):
        region_points(template.mesh(), array)
    return problems


def _parser() -> argparse.ArgumentParser:
    parser = new_parser(__doc__)
    use = parser.add_mutually_exclusive_group(required=True)
    use.add_argument("--mesh", type=Path, metavar="FILE", help="template mesh, as you bring it")
    use.add_argument(
        "--template", type=Path, metavar="DIR", help="template written by build_template.py"
    )
    use.add_argument(
        "--gate", type=Path, metavar="FILE", help="cohort.json: write --output if it has no error"
    )
    parser.add_argument(
        "--subjects-table", type=Path, metavar="FILE", help="subjects.tsv (with --mesh needed)"
    )
    parser.add_argument(
        "--subjects", type=Path, nargs="+", metavar="DIR", help="ingested subjects (--template)"
    )
    parser.add_argument(
        "--output", type=Path, metavar="PATH", help="folder of the report, or the gate's file"
    )
    parser.add_argument(
        "--report-only", action="store_true", help="exit with 0 even if there are errors"
    )
    parser.add_argument(
        "--network",
        nargs="+",
        choices=[*NETWORKS, *LOSSES],
        metavar="NAME",
        help=f"networks and losses of the training ({', '.join([*NETWORKS, *LOSSES])})",
    )
    parser.add_argument(
        "--region", metavar="NAME", help="array that is to name regions (with --template)"
    )
    parser.add_argument(
        "--surface", action="store_true", help="use the surface of a volume (with --mesh)"
    )
    parser.add_argument(
        "--edges",
        choices=["cells", "triangulated"],
        default="cells",
        help="edges of the template (with --mesh)",
    )
    parser.add_argument(
        "--jobs",
        type=int,
        default=os.cpu_count() or 1,
        metavar="N",
        help="processes that read files (with --mesh)",
    )
    return parser


if __name__ == "__main__":
    run(main, _parser())
