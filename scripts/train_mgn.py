"""Train a MeshGraphNet on ingested subjects, or go on with a run that was cut short."""

import argparse

import train_command

SETTERS = ("processor_size", "hidden_dim", "num_layers", "num_processor_checkpoint_segments")


def add_network(parser: argparse.ArgumentParser) -> None:
    """Add what shapes a MeshGraphNet."""
    add = parser.add_argument_group("network").add_argument
    add("--processor-size", type=int, help="hops of message passing (3)")
    add("--hidden-dim", type=int, help="width of hidden layers and states (128)")
    add("--num-layers", type=int, help="hidden layers of each MLP (2)")
    add(
        "--num-processor-checkpoint-segments",
        type=int,
        help="segments computed twice to save memory; must divide twice the hops (0: none)",
    )


def make_trainer() -> "train_command.TrainPhysicsNeMoBase":
    """Import late: PhysicsNeMo takes seconds, and `--help` should not."""
    from meshstage.training.mgn import TrainPhysicsNeMoMGN

    return TrainPhysicsNeMoMGN()


if __name__ == "__main__":
    parser = train_command.new_parser(__doc__)
    add_network(parser)
    train_command.run(parser, make_trainer, SETTERS)
