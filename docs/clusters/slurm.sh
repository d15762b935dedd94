#!/bin/bash
# Hosts of one run, each an element of an array: sbatch slurm.sh RECIPE ETCD
# Adapt: how many hosts (--array), and what one has. It has a node for each of its GPUs.
#SBATCH --job-name=cerebro
#SBATCH --array=0-7
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=16
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --time=4:00:00
# SIGTERM for the host a minute before the end: its nodes hand on what they do not finish.
#SBATCH --signal=TERM@60
set -euo pipefail
# If cerebro is not found on the hosts: . /path/to/venv/bin/activate
# When Slurm cancels, requeues or preempts a job, it waits for KillWait, by default 30 s, between SIGTERM and SIGKILL.
srun cerebro host "$1" --etcd "$2" --hosts "1:${SLURM_ARRAY_TASK_COUNT:-1}" --nodes "${SLURM_GPUS_ON_NODE:-1}" \
    --grace 25 || code=$?
# 130: the host has left before the run's end, for its time is up or another job takes its place. It queues again.
# (Slurm requeues by itself where there was no time to leave. What was cancelled does not come to this line.)
# An array's last element has the id of the whole array.
job=${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}${SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}
[ "${code:-0}" != 130 ] || scontrol requeue "$job"
exit "${code:-0}"
