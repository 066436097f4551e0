"""Make a cohort of meshes in correspondence: template, shape model, scores, targets, manifests."""

import argparse
from pathlib import Path

from command_line import new_parser, run
from meshstage.config.faults import check_values
from meshstage.config.preparation import Preparation
from meshstage.preparation.readers import READERS


def main(arguments: argparse.Namespace) -> None:
    """Plan from names and tables, then read and write."""
    from meshstage.figures.modes import plot_modes
    from meshstage.figures.style import save_figure
    from meshstage.preparation.pipeline import prepare_cohort
    from meshstage.preparation.plan import plan_cohort

    values = dict(vars(arguments))
    output = values.pop("output")
    values.pop("debug")
    given = {name: value for name, value in values.items() if value is not None}
    plan = plan_cohort(check_values(Preparation, given, "the command line"))
    prepared = prepare_cohort(plan, output)
    save_figure(output / "modes.png", plot_modes(prepared.mesh, prepared.model))


def own_options() -> dict[str, str]:
    """Give the options of all formats with their help, which names the formats."""
    found: dict[str, dict[str, list[str]]] = {}
    for reader in READERS.values():
        for name, field in reader.options.model_fields.items():
            found.setdefault(name, {}).setdefault(str(field.description), []).append(reader.name)
    return {
        name: "; ".join(f"{', '.join(formats)}: {text}" for text, formats in texts.items())
        for name, texts in found.items()
    }


if __name__ == "__main__":
    parser = new_parser(__doc__)
    for name, field in Preparation.model_fields.items():
        default = "" if field.default is None or field.is_required() else f" ({field.default})"
        parser.add_argument(
            f"--{name}",
            required=field.is_required(),
            choices=list(READERS) if name == "format" else None,
            help=f"{field.description}{default}".replace("%", "%%"),
        )
    for name, text in own_options().items():
        option = f"--{name.replace('_', '-')}"
        parser.add_argument(option, help=text.replace("%", "%%"), metavar="VALUE")
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="of the cohort")
    run(main, parser)
