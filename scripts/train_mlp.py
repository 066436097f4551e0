"""Train a fully connected network on ingested subjects, or go on with a run that was cut short."""

import train_command


def make_trainer() -> "train_command.TrainPhysicsNeMoBase":
    """Import late: PhysicsNeMo takes seconds, and `--help` should not."""
    from meshstage.training.mlp import TrainPhysicsNeMoMLP

    return TrainPhysicsNeMoMLP()


if __name__ == "__main__":
    parser = train_command.new_parser(__doc__)
    add = parser.add_argument_group("network").add_argument
    add("--layer-size", type=int, help="width of hidden layers (512)")
    add("--num-layers", type=int, help="hidden layers (6)")
    train_command.run(parser, make_trainer, ("layer_size", "num_layers"))
