#!/usr/bin/env bash
# Collects what a GPU node without LLVM and without packages needs to build and
# check plait-run: plans and expected losses, the headers of third parties, the
# generated header of the plan format, GoogleTest. Usage: scripts/bundle.sh
# [FOLDER [FILTER]], by default build/bundle; FILTER is part of a model's name.
# Needs a finished build. scripts/gpu-check.sh uses the folder.
set -euo pipefail
cd "$(dirname "$0")/.."

bundle=${1:-build/bundle}
filter=${2:-}
rm -rf "$bundle/third-party" "$bundle/plans" "$bundle/inputs"
mkdir -p "$bundle/third-party"/{include,bin,googletest}
vendored=$bundle/third-party

cp -rL /usr/include/{CLI,nlohmann,flatbuffers,toml++} "$vendored/include/"
cp -L /usr/include/xxh*.h "$vendored/include/"
# cuDNN's front end, where install-deps.sh has put it; without it plait-run
# refuses plans with flash attention.
for header in build/venv/lib/python3*/site-packages/include/cudnn_*; do
  [ ! -e "$header" ] || cp -rL "$header" "$vendored/include/"
done
cp -rL /usr/src/googletest/googletest/{include,src} "$vendored/googletest/"
cp build/include/plait/Plan/Plan_generated.h "$vendored/"

# Found by find_package and find_program through CMAKE_PREFIX_PATH.
cat > "$vendored/bin/flatc" << 'END'
#!/bin/sh
# Stands in for flatc: the header was generated when the bundle was made.
while [ "$1" != -o ]; do shift; done
mkdir -p "$2"
exec cp "$(dirname "$0")/../Plan_generated.h" "$2/"
END
chmod +x "$vendored/bin/flatc"
header_only() {
  cat > "$vendored/$1Config.cmake" << END
if(NOT TARGET $2)
  add_library($2 INTERFACE IMPORTED GLOBAL)
  target_include_directories($2 INTERFACE \${CMAKE_CURRENT_LIST_DIR}/include)
endif()
END
}
header_only CLI11 CLI11::CLI11
header_only nlohmann_json nlohmann_json::nlohmann_json
header_only tomlplusplus tomlplusplus::tomlplusplus
cat > "$vendored/GTestConfig.cmake" << 'END'
if(NOT TARGET GTest::gtest)
  set(folder ${CMAKE_CURRENT_LIST_DIR}/googletest)
  find_package(Threads REQUIRED)
  add_library(plait_gtest STATIC ${folder}/src/gtest-all.cc)
  target_include_directories(plait_gtest SYSTEM PUBLIC ${folder}/include PRIVATE ${folder})
  target_link_libraries(plait_gtest PUBLIC Threads::Threads)
  add_library(plait_gtest_main STATIC ${folder}/src/gtest_main.cc)
  target_link_libraries(plait_gtest_main PUBLIC plait_gtest)
  add_library(GTest::gtest ALIAS plait_gtest)
  add_library(GTest::gtest_main ALIAS plait_gtest_main)
endif()
END

build/venv/bin/python test/Execute/bundle.py "$bundle" --filter "$filter"
du -sh "$bundle"
