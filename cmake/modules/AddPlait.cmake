# The verbs of this build. A CMakeLists.txt below lib/ or tools/ uses nothing else.

# libstdc++ 12 marks what its own stable_sort calls as deprecated; clang shows it.
add_compile_options(-Wall -Wextra -Wno-unused-parameter -Werror=return-type
                    -Wno-deprecated-declarations)
# A precompiled header without its time of making can be cached; see also the
# launcher in CMakePresets.json.
if(CMAKE_CXX_COMPILER_ID STREQUAL Clang)
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:SHELL:-Xclang -fno-pch-timestamp>")
endif()

# A library that includes no mlir/ or llvm/ header: lib/Plan, lib/Runtime, lib/Schedule.
function(plait_add_library name)
  cmake_parse_arguments(ARG "" "" "LINK;DEPENDS" ${ARGN})
  add_library(${name} STATIC ${ARG_UNPARSED_ARGUMENTS})
  set_property(GLOBAL APPEND PROPERTY PLAIT_LIBRARIES ${name})
  if(ARG_LINK)
    target_link_libraries(${name} PUBLIC ${ARG_LINK})
  endif()
  if(ARG_DEPENDS)
    add_dependencies(${name} ${ARG_DEPENDS})
  endif()
endfunction()

# A library of the compiler: static, never a part of libMLIR, linked to the one libMLIR.so.
function(plait_add_mlir_library name)
  plait_add_library(${name} ${ARGN})
  target_link_libraries(${name} PUBLIC MLIR LLVM)
  # LLVM and MLIR are built without exceptions. Building fast matters more than
  # the last percent of the compiler's own speed.
  target_compile_options(${name} PRIVATE -fno-exceptions -O1)
  add_dependencies(${name} plait-headers)
endfunction()

function(plait_add_tool name)
  cmake_parse_arguments(ARG "" "" "LINK" ${ARGN})
  add_executable(${name} ${ARG_UNPARSED_ARGUMENTS})
  set_property(GLOBAL APPEND PROPERTY PLAIT_TOOLS ${name})
  target_link_libraries(${name} PRIVATE ${ARG_LINK})
  target_compile_options(${name} PRIVATE -O1) # the work is done in libraries
endfunction()

# A GoogleTest binary, run by ctest.
function(plait_add_unittest name)
  cmake_parse_arguments(ARG "" "" "LINK" ${ARGN})
  add_executable(${name} ${ARG_UNPARSED_ARGUMENTS})
  target_link_libraries(${name} PRIVATE ${ARG_LINK} GTest::gtest GTest::gtest_main)
  target_compile_options(${name} PRIVATE -O1) # tests are compiled more than run
  target_precompile_headers(${name} PRIVATE <gtest/gtest.h>)
  add_test(NAME ${name} COMMAND ${name})
endfunction()

# Generates from X.td beside the caller: mlir-tblgen's `generator` into `output`.
macro(plait_tablegen output)
  mlir_tablegen(${output} ${ARGN})
endmacro()

function(plait_add_generated_headers name)
  add_public_tablegen_target(${name})
  add_dependencies(plait-headers ${name})
endfunction()
