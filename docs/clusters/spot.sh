#!/bin/bash
# Waits for EC2's notice that this spot instance will be taken away, then lets the host leave: spot.sh PID
set -euo pipefail
metadata=${METADATA:-http://169.254.169.254/latest}
noticed() {
    local token
    token=$(curl -sf -X PUT "$metadata/api/token" -H "X-aws-ec2-metadata-token-ttl-seconds: 60") &&
        curl -sf -o /dev/null -H "X-aws-ec2-metadata-token: $token" "$metadata/meta-data/spot/instance-action"
}
until noticed; do
    kill -0 "$1" 2> /dev/null || exit 0
    sleep "${POLL:-5}"
done
kill -TERM "$1"
