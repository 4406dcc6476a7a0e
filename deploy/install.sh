#!/bin/sh
# Install gpu-rules from SOURCE into a new virtual environment at TARGET, with the pinned dependencies only and without pip.
# pip refuses a file whose hash is not pinned.
#
# requirements.txt and build-requirements.txt begin with the uv commands that generate them; add --upgrade for newer
# versions. They list the hashes of all files of a version, for all platforms.
set -eu

source=$1
target=$2

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

python3 -m venv --without-pip "$target"
python3 -m venv "$work/build"
build_pip="$work/build/bin/python -m pip --disable-pip-version-check --no-input"
pip="$build_pip --python $target/bin/python"
options="--quiet --no-cache-dir --no-deps --only-binary=:all:"

$pip install $options --require-hashes --requirement "$source/deploy/requirements.txt"
$build_pip install $options --require-hashes --requirement "$source/deploy/build-requirements.txt"
$build_pip wheel $options --no-index --no-build-isolation --wheel-dir "$work" "$source"
$pip install $options --no-index --find-links "$work" gpu-rules # not by its path, which pip would record

# Fail here if a pin is missing, not when the server starts.
$pip check
"$target/bin/gpu-rules" --version
"$target/bin/gpu-rules" check "$("$target/bin/python" -c 'from rules_engine.rules.sources.rule_files import DEFAULT_RULES as r; print(r)')"
