# The verbs of this build. A CMakeLists.txt below lib/ or tools/ uses nothing else.

# libstdc++ 12 marks what its own stable_sort calls as deprecated; clang shows it.
add_compile_options(-Wall -Wextra -Wno-unused-parameter -Werror=return-type
                    -Wno-deprecated-declarations)
# Programs as position-independent as libraries: they share precompiled headers.
add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-fPIC>")
# A precompiled header without its time of making can be cached; see also the
# launcher in CMakePresets.json.
if(CMAKE_CXX_COMPILER_ID STREQUAL Clang)
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:SHELL:-Xclang -fno-pch-timestamp>")
endif()

# Headers that are parsed once, for all targets that use them. OPTIONS change what
# they mean, or how they are optimised: whoever uses them is compiled with them, too.
function(plait_add_headers name)
  cmake_parse_arguments(ARG "" "" "OPTIONS;LINK;DEPENDS" ${ARGN})
  set(empty ${PROJECT_BINARY_DIR}/Empty.cpp) # a target needs a source
  file(CONFIGURE OUTPUT ${empty} CONTENT "")
  add_library(${name} OBJECT ${empty})
  target_precompile_headers(${name} PRIVATE ${ARG_UNPARSED_ARGUMENTS})
  target_compile_options(${name} PRIVATE ${ARG_OPTIONS})
  set_target_properties(${name} PROPERTIES PLAIT_OPTIONS "${ARG_OPTIONS}")
  target_link_libraries(${name} PRIVATE ${ARG_LINK})
  if(ARG_DEPENDS)
    add_dependencies(${name} ${ARG_DEPENDS})
  endif()
endfunction()

# Does nothing in other projects, which have no such headers.
function(plait_use_headers name headers)
  if(TARGET ${headers})
    target_precompile_headers(${name} REUSE_FROM ${headers})
    get_target_property(options ${headers} PLAIT_OPTIONS)
    target_compile_options(${name} PRIVATE ${options})
  endif()
endfunction()

# Several sources as one: what they instantiate of the same headers is compiled once,
# and after an edit of one of them all of them are compiled again.
option(PLAIT_UNITY "Compile sources of some targets together: faster once, slower after edits" OFF)
function(plait_compile_together)
  if(PLAIT_UNITY)
    set_target_properties(${ARGN} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 9)
  endif()
endfunction()

# A library that includes no mlir/ or llvm/ header: lib/Plan, lib/Runtime, lib/Schedule.
function(plait_add_library name)
  cmake_parse_arguments(ARG "" "HEADERS" "LINK;DEPENDS" ${ARGN})
  if(NOT ARG_HEADERS)
    set(ARG_HEADERS PlaitHeaders)
  endif()
  add_library(${name} STATIC ${ARG_UNPARSED_ARGUMENTS})
  set_property(GLOBAL APPEND PROPERTY PLAIT_LIBRARIES ${name})
  plait_use_headers(${name} ${ARG_HEADERS})
  if(ARG_LINK)
    target_link_libraries(${name} PUBLIC ${ARG_LINK})
  endif()
  if(ARG_DEPENDS)
    add_dependencies(${name} ${ARG_DEPENDS})
  endif()
endfunction()

# LLVM and MLIR are built without exceptions. Building fast matters more than the
# last percent of the compiler's own speed.
set(PLAIT_MLIR_OPTIONS -fno-exceptions -O1)

# A library of the compiler: static, never a part of libMLIR. Programs that it is linked
# into take libMLIR.so, or the archives that it was made of; see plait_link_archives.
function(plait_add_mlir_library name)
  plait_add_library(${name} HEADERS PlaitCompilerHeaders ${ARGN})
  target_link_libraries(${name} PUBLIC
    $<IF:$<BOOL:$<TARGET_PROPERTY:PLAIT_ARCHIVES>>,PlaitMLIRArchives,MLIR$<SEMICOLON>LLVM>)
  target_compile_options(${name} PRIVATE ${PLAIT_MLIR_OPTIONS})
  add_dependencies(${name} plait-headers)
endfunction()

function(plait_add_tool name)
  cmake_parse_arguments(ARG "" "HEADERS" "LINK" ${ARGN})
  if(NOT ARG_HEADERS)
    set(ARG_HEADERS PlaitHeaders)
  endif()
  add_executable(${name} ${ARG_UNPARSED_ARGUMENTS})
  set_property(GLOBAL APPEND PROPERTY PLAIT_TOOLS ${name})
  target_link_libraries(${name} PRIVATE ${ARG_LINK})
  plait_use_headers(${name} ${ARG_HEADERS})
endfunction()

# A tool that includes headers of MLIR, and throws nothing.
function(plait_add_mlir_tool name)
  plait_add_tool(${name} HEADERS PlaitCompilerHeaders ${ARGN})
  target_compile_options(${name} PRIVATE ${PLAIT_MLIR_OPTIONS})
endfunction()

# Tools that are started often have MLIR in them.
function(plait_link_archives)
  set_target_properties(${ARGN} PROPERTIES PLAIT_ARCHIVES ON)
endfunction()

# A GoogleTest binary, run by ctest.
function(plait_add_unittest name)
  cmake_parse_arguments(ARG "" "HEADERS" "LINK" ${ARGN})
  if(NOT ARG_HEADERS)
    set(ARG_HEADERS PlaitTestHeaders)
  endif()
  add_executable(${name} ${ARG_UNPARSED_ARGUMENTS})
  target_link_libraries(${name} PRIVATE ${ARG_LINK} GTest::gtest GTest::gtest_main)
  plait_use_headers(${name} ${ARG_HEADERS})
  add_test(NAME ${name} COMMAND ${name})
endfunction()

# One that includes headers of MLIR.
function(plait_add_mlir_unittest name)
  plait_add_unittest(${name} HEADERS PlaitCompilerTestHeaders ${ARGN})
endfunction()

# Generates from X.td beside the caller: mlir-tblgen's `generator` into `output`.
macro(plait_tablegen output)
  mlir_tablegen(${output} ${ARGN})
endmacro()

function(plait_add_generated_headers name)
  add_public_tablegen_target(${name})
  add_dependencies(plait-headers ${name})
endfunction()
