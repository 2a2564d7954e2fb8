#!/bin/bash
# The cells of one command as a Slurm array. Every task runs its share in a folder that all nodes see:
#
#   sbatch deploy/grids/slurm.sh experiment tail.toml --simulate --results /shared/tail
#   sbatch --array=0-31 deploy/grids/slurm.sh train matrix mlp.toml --data /shared/data --results /shared/mlp
#
# A lost node's task is queued again: it skips the cells that have a result, and a training continues from its checkpoint.
# The last minute before the time limit is for checkpoints. Indices begin at 0 and have no gaps.
#SBATCH --job-name=parm-grid
#SBATCH --array=0-3
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:TERM@60
set -euo pipefail
exec "${PARM:-parm}" "$@" --share "$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT"
