"""Snakemake that looks every two seconds what became of its SLURM jobs.

Its plugin waits 10 s longer after each look, up to three minutes: sensible for trainings of hours,
and most of the time of tests whose jobs take half a minute.
"""

import sys

from snakemake.cli import main
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor

RemoteExecutor.next_seconds_between_status_checks = property(
    lambda self: 2, lambda self, seconds: None
)

if __name__ == "__main__":
    sys.exit(main())
