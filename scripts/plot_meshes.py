"""Show truth beside prediction beside error on the mesh, and one cycle as an animation.

Writes meshes.png (the best, the median and the worst held-out subject, each at its worst phase)
and cycle.gif (the median subject), which cycle.html shows. Needs no display.
"""

import argparse
import logging
from pathlib import Path

import command_line


def main(arguments: argparse.Namespace) -> None:
    """Read the cases, render, write."""
    from meshstage.cohort.subject import load_subjects
    from meshstage.cohort.template import load_template
    from meshstage.figures.cases import read_cases
    from meshstage.figures.meshes import animation_page, plot_cases, write_animation
    from meshstage.figures.style import save_figure
    from meshstage.files import write_text
    from meshstage.judging.runs import read_summary

    summary = read_summary(arguments.evaluation)
    cases = read_cases(summary, load_subjects(arguments.subjects), arguments.predictions)
    mesh = load_template(arguments.template).mesh()
    save_figure(arguments.output / "meshes.png", plot_cases(mesh, cases, summary["unit"]))
    middle = cases[len(cases) // 2]
    animation = arguments.output / "cycle.gif"
    write_animation(animation, mesh, middle, summary["unit"])
    page = animation_page(animation, f"One cycle of subject {middle.subject.id}")
    write_text(animation.with_suffix(".html"), page)
    logging.info("%s: %s", arguments.output, ", ".join(f"{c.label} {c.subject.id}" for c in cases))


if __name__ == "__main__":
    parser = command_line.new_parser(__doc__)
    command_line.add_template(parser)
    parser.add_argument(
        "--evaluation", type=Path, required=True, metavar="FILE", help="of the run (.json)"
    )
    parser.add_argument(
        "--predictions", type=Path, required=True, metavar="DIR", help="of the run (predict.py)"
    )
    command_line.add_subjects(parser, "--subjects", "ingested subjects that were evaluated")
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="folder to write")
    command_line.run(main, parser)
