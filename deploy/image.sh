#!/bin/sh
# Build the image with buildah, else docker (25 or later, which saves OCI archives), and write it to FILE, an OCI archive. With
# buildah, the same commit, base and SOURCE_DATE_EPOCH (by default the time of the commit) give the same bytes.
#
# The base is the image BASE. Without BASE it is made from Debian's packages by mmdebstrap, which needs no registry, else it is
# the Dockerfile's. PIP_CERT: file of certificates to download with.
set -eu

file=$(realpath "$1")
cd "$(dirname "$0")/.."
version=$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)} # apart from export, which hides that git fails
export SOURCE_DATE_EPOCH
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

build="docker build --quiet"
if command -v buildah >/dev/null; then
    build="buildah bud --quiet --isolation chroot --no-cache --timestamp $SOURCE_DATE_EPOCH --identity-label=false"
fi

if [ -z "${BASE:-}" ] && command -v mmdebstrap >/dev/null; then
    BASE=localhost/gpu-rules-base
    mmdebstrap --quiet --variant=essential --include=python3-venv,libstdc++6 \
        --hook-dir=/usr/share/mmdebstrap/hooks/merged-usr \
        --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
        --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
        bookworm "$work/base.tar" >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
    # Not in the packages: device nodes, and two files of this machine.
    tar --delete --file "$work/base.tar" ./dev ./etc/hostname ./etc/resolv.conf
    printf 'FROM scratch\nADD base.tar /\n' | $build --tag "$BASE" --file - "$work"
fi
$build ${BASE:+--build-arg "BASE=$BASE"} ${PIP_CERT:+--secret "id=ca,src=$PIP_CERT"} --tag "gpu-rules:$version" \
    --label "org.opencontainers.image.source=$(sed -n 's/^Repository = "\(.*\)"/\1/p' pyproject.toml)" \
    --label "org.opencontainers.image.version=$version" --file deploy/Dockerfile .

if ! command -v buildah >/dev/null; then
    docker save --output "$file" "gpu-rules:$version"
    exit
fi
buildah push --quiet "gpu-rules:$version" "oci:$work/image:$version"
tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX \
    -cf "$file" -C "$work/image" .
