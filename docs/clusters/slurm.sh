#!/bin/bash
# Hosts of one run, each an element of an array: sbatch slurm.sh RECIPE ETCD
# Adapt: how many hosts (--array, --hosts), and what one has.
#SBATCH --job-name=cerebro
#SBATCH --array=0-7
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=16
#SBATCH --requeue
#SBATCH --time=4:00:00
# SIGTERM for the host 2 minutes before the end: its nodes hand on what they do not finish.
#SBATCH --signal=TERM@120
set -euo pipefail
srun cerebro host "$1" --etcd "$2" --hosts 2:8 --nodes 4 --grace 90
