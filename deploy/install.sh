#!/bin/sh
# Install gpu-rules from SOURCE into a virtual environment of its own at TARGET, with the pinned dependencies and no
# others, so that nothing is left to fetch when it starts. A file whose hash is not among the pins is refused.
#
# The heads of requirements.txt and build-requirements.txt name the commands that make them; uv is on PyPI, and --upgrade
# takes newer versions. They list every file of a version, so for every machine that there are wheels for.
set -eu

source=$1
target=$2

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

python3 -m venv "$target"
python3 -m venv "$work/build"
pip="$target/bin/python -m pip --disable-pip-version-check --no-input"
build_pip="$work/build/bin/python -m pip --disable-pip-version-check --no-input"
options="--quiet --no-cache-dir --no-deps --only-binary=:all:"

$pip install $options --require-hashes --requirement "$source/deploy/requirements.txt"
$build_pip install $options --require-hashes --requirement "$source/deploy/build-requirements.txt"
$build_pip wheel $options --no-index --no-build-isolation --wheel-dir "$work" "$source"
$pip install $options --no-index "$work"/gpu_rules-*.whl

# Whatever is missing among the pins is told here, not when the first pod arrives.
$pip check
"$target/bin/gpu-rules" --version
"$target/bin/gpu-rules" check "$("$target/bin/python" -c 'from rules_engine.authoring.rule_files import DEFAULT_RULES as r; print(r)')"

# Nothing is installed at run time.
$pip uninstall --quiet --yes pip setuptools
