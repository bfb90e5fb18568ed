#!/bin/sh
# Ranks in a job of Slurm:  sbatch examples/cluster/slurm.sh --steps 1000 --checkpoint /shared/run
#
# `rlx launch` has srun start them. Python's environment has an MPI with the standard ABI (pip install
# mpich), and lies, as the checkpoint does, where all machines see it.
#SBATCH --job-name=rlx
#SBATCH --ntasks=4
#SBATCH --cpus-per-task=1
#SBATCH --time=01:00:00

# How srun tells ranks of each other: MPICH knows pmi2.
export SLURM_MPI_TYPE="${SLURM_MPI_TYPE:-pmi2}"
exec rlx launch -n "$SLURM_NTASKS" --threads "${SLURM_CPUS_PER_TASK:-1}" --restarts 3 \
  "${RLX_SCRIPT:-examples/cluster/train.py}" "$@"
