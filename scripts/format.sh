#!/usr/bin/env bash
# Formats the C++ sources in place; --check only says which differ.
set -euo pipefail
cd "$(dirname "$0")/.."

mode=(-i)
[ "${1:-}" != --check ] || mode=(--dry-run --Werror)
find include lib tools test examples bench -type f \
  \( -name '*.h' -o -name '*.cpp' \) -print0 2> /dev/null |
  xargs -0 -r clang-format-22 "${mode[@]}"
