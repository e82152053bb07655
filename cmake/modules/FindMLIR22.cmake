# Finds Debian's MLIR 22 and sets up TableGen. The one place that knows how the
# packages are laid out; see docs/Rationale.md, "Linking MLIR".
find_package(MLIR REQUIRED CONFIG PATHS /usr/lib/llvm-22/lib/cmake/mlir)
if(NOT LLVM_VERSION_MAJOR EQUAL 22)
  message(FATAL_ERROR "plait needs LLVM/MLIR 22, found ${LLVM_PACKAGE_VERSION} in ${MLIR_DIR}")
endif()

# One MLIR in the process: libMLIR.so and libLLVM.so.
set(MLIR_LINK_MLIR_DYLIB ON)
set(LLVM_LINK_LLVM_DYLIB ON)

# The same from archives, for tools that are started often: half of what a small
# model takes was the dynamic linker's, and calls from one library into the other.
add_library(PlaitMLIRArchives INTERFACE IMPORTED GLOBAL)
file(GLOB archives ${LLVM_LIBRARY_DIRS}/libMLIR*.a ${LLVM_LIBRARY_DIRS}/libLLVM*.a)
list(JOIN archives "\n" archives)
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/mlir-archives.txt CONTENT "${archives}\n")
target_link_libraries(PlaitMLIRArchives INTERFACE
  -Wl,@${PROJECT_BINARY_DIR}/mlir-archives.txt -Wl,--gc-sections
  $<$<CONFIG:Release>:-Wl,--strip-debug> z zstd)

list(APPEND CMAKE_MODULE_PATH ${MLIR_CMAKE_DIR} ${LLVM_CMAKE_DIR})
include(TableGen)
include(AddLLVM)
include(AddMLIR)

include_directories(SYSTEM ${LLVM_INCLUDE_DIRS} ${MLIR_INCLUDE_DIRS})
# mlir_tablegen reads the directory property, not the target's includes.
include_directories(${PROJECT_SOURCE_DIR}/include)
separate_arguments(definitions NATIVE_COMMAND ${LLVM_DEFINITIONS})
add_definitions(${definitions})
# Debian's libraries are built without assertions; MLIR's headers must agree.
add_compile_definitions(NDEBUG)

# Every generated header hangs on this, so that a clean parallel build cannot
# compile a source before the headers it includes exist.
add_custom_target(plait-headers)
