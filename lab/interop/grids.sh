#!/usr/bin/env bash
# A small experiment and a small matrix on Slurm (two nodes on this machine) and on Ray (two CPUs), each with a worker that
# is killed in the middle of a cell; and on a disk that is full or read-only. The joined results must equal those of one
# process. It needs root, and Debian's packages slurmctld, slurmd, slurm-client and munge.
#
#   lab/interop/grids.sh [slurm] [ray] [disk] [time]
#   DATA=... EPOCHS=1 lab/interop/grids.sh accuracy    # its processor time in shares, see training/matrix/mlp.toml
#   PARM_BINARY=target/debug/parm SCALE=0.2 lab/interop/grids.sh
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=lab/interop/environment.sh
source lab/interop/environment.sh
binary --features train
environment grids ray
exec "$VENV/bin/python" lab/interop/grids/main.py "$@"
