#!/usr/bin/env bash
# Builds plait into build/, or the targets that are given. PLAIT_PRESET names what
# a new build/ is configured as.
set -euo pipefail
cd "$(dirname "$0")/.."

# Configuring again costs seconds and is only needed the first time: afterwards
# the build itself notices changed CMake files.
[ -f build/build.ninja ] || cmake --preset "${PLAIT_PRESET:-release}"
cmake --build build -j "$(nproc)" --target "${@:-all}"
