#!/usr/bin/env bash
# Check and time training on this machine's GPU, in at most 6 minutes: see gpu_check.py.
#
#     tests/benchmarks/gpu_check.sh [FILE]     writes JSON, gpu_check.json without a name
#
# Exit code 0 if all is good, 1 if not, 2 without a GPU, 124 if it took too long.
set -euo pipefail
here=$(dirname "$(realpath "$0")")
exec timeout 360 "${PYTHON:-python}" "$here/gpu_check.py" --device cuda --output "${1:-gpu_check.json}"
