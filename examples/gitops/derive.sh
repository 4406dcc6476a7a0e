#!/bin/sh
# Check and test the rules, and derive the chart's values from them. CI runs it, and fails if a committed file changes.
set -eu
cd "$(dirname "$0")"
gpu-rules check rules
gpu-rules test rules
gpu-rules webhook-config --rules rules --output helm-values > rules-values.yaml
