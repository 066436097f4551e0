"""Train a network of your own on ingested subjects, or resume a run that was cut short."""

import train_command

if __name__ == "__main__":
    train_command.run(__doc__)
