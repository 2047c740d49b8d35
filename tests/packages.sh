#!/usr/bin/env bash
# What is handed on and takes long to try: each crate is packed, and compiled from its package alone, and the image for
# Kubernetes is built, where Docker runs. `make test` packs the crates without compiling them (install.sh).
#
#     tests/packages.sh
#
# Takes some ten minutes, and the registry's crates where they are not here yet.
set -uo pipefail
root=$(realpath "$(dirname "$0")/..")
cd "$root" || exit 1
status=0

if cargo package --workspace --exclude comem-bench --exclude comem-python --allow-dirty --quiet; then
    echo "ok: the crates are packed, and compiled from their packages"
else
    echo "FAILED: the crates are packed, and compiled from their packages"
    status=1
fi
tests/kubernetes.sh image || status=1
exit "$status"
