#!/usr/bin/env bash
# Builds plait into build/, or the targets that are given.
set -euo pipefail
cd "$(dirname "$0")/.."

# Configuring again costs seconds and is only needed the first time: afterwards
# the build itself notices changed CMake files.
[ -f build/build.ninja ] || cmake --preset release
cmake --build build -j "$(nproc)" --target "${@:-all}"
