"""Train a network by its name, or a class of your own, or resume a run that was cut short."""

import train_command

if __name__ == "__main__":
    train_command.run(__doc__)
