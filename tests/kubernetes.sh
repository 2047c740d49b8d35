#!/usr/bin/env bash
# The manifests of deploy/kubernetes against what Kubernetes takes (kubernetes.py). With `image` also the image, by
# Docker: that takes minutes and a network, so it is for `make packages`.
#
#     tests/kubernetes.sh [image]
set -uo pipefail
root=$(realpath "$(dirname "$0")/..")
status=0

if python3 -c 'import yaml' 2>/dev/null; then
    python3 "$root/tests/kubernetes.py" || status=1
else
    echo "SKIP: manifests of Kubernetes: python3 has no module yaml (Debian: python3-yaml)"
fi

build_image() {
    local tag=comem-test-$$ printed
    if ! timeout 20 docker info >/dev/null 2>&1; then
        echo "SKIP: the image for Kubernetes: Docker does not run here"
        return
    fi
    if ! docker build --quiet --tag "$tag" --file "$root/deploy/kubernetes/Dockerfile" "$root"; then
        echo "FAILED: the image for Kubernetes is built"
        status=1
        return
    fi
    printed=$(docker run --rm "$tag" comem run -n 2 --no-prefix /bin/true 2>&1)
    docker image rm "$tag" >/dev/null
    case $printed in
        *"no node has joined the job"*) echo "ok: the image for Kubernetes is built, and runs two nodes" ;;
        *) status=1 && printf '%s\nFAILED: the image for Kubernetes runs two nodes\n' "$printed" ;;
    esac
}

[ "${1:-}" != image ] || build_image
exit "$status"
