"""Plot a training: loss and RMSE by epoch, with the baselines as lines."""

import argparse
import logging
from pathlib import Path

import command_line


def main(arguments: argparse.Namespace) -> None:
    """Read the records, plot, write one picture."""
    from meshstage.figures.style import save_figure
    from meshstage.figures.training import plot_training, read_training
    from meshstage.judging.runs import read_summary

    losses, rmse_log, best_epoch = read_training(arguments.model)
    summary = read_summary(arguments.evaluation) if arguments.evaluation else None
    figure = plot_training(losses, rmse_log, best_epoch, summary, title=arguments.model.name)
    save_figure(arguments.output, figure)
    logging.info("%s: %d epochs", arguments.output, len(losses))


if __name__ == "__main__":
    parser = command_line.new_parser(__doc__)
    parser.add_argument(
        "--model", type=Path, required=True, metavar="DIR", help="model, also one in training"
    )
    parser.add_argument(
        "--evaluation", type=Path, metavar="FILE", help="its evaluation (.json): adds baselines"
    )
    parser.add_argument(
        "--output", type=Path, required=True, metavar="FILE", help="picture: .png, .svg or .pdf"
    )
    command_line.run(main, parser)
