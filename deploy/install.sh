#!/bin/sh
# Install gpu-rules from SOURCE into a virtual environment of its own at TARGET, with the pinned dependencies and no
# others, so that nothing is left to fetch when it starts. A file whose hash is not among the pins is refused.
#
# The head of requirements.txt names the command that makes it; uv is on PyPI, and --upgrade takes newer versions. It
# lists every file of a version, so for every machine that there are wheels for.
set -eu

source=$1
target=$2

python3 -m venv "$target"
pip="$target/bin/python -m pip --disable-pip-version-check --no-input"
wheels=$(mktemp -d)
trap 'rm -rf "$wheels"' EXIT

$pip install --quiet --no-cache-dir --no-deps --only-binary=:all: --require-hashes \
    --requirement "$source/deploy/requirements.txt"
$pip wheel --quiet --no-cache-dir --no-deps --wheel-dir "$wheels" "$source"
$pip install --quiet --no-cache-dir --no-deps --no-index "$wheels"/gpu_rules-*.whl

# Whatever is missing among the pins is told here, not when the first pod arrives.
$pip check
"$target/bin/gpu-rules" --version
"$target/bin/gpu-rules" check "$("$target/bin/python" -c 'from rules_engine.authoring.rule_files import DEFAULT_RULES as r; print(r)')"

# Nothing is installed at run time.
$pip uninstall --quiet --yes pip setuptools
