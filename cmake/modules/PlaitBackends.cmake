# What the runtime is built with: PLAIT_HAS_CPU, PLAIT_HAS_CUDA, PLAIT_HAS_MPI,
# PLAIT_HAS_UCX.
# AUTO: when what they need is found.
set(PLAIT_ENABLE_CPU AUTO CACHE STRING "Run CPU plans: AUTO, ON or OFF")
set(PLAIT_ENABLE_CUDA AUTO CACHE STRING "Run CUDA plans: AUTO, ON or OFF")
set(PLAIT_ENABLE_MPI AUTO CACHE STRING "Run plans over MPI: AUTO, ON or OFF")
set(PLAIT_ENABLE_UCX AUTO CACHE STRING
    "Run CPU plans in processes that meet without MPI: AUTO, ON or OFF")

# plait_choose_backend(NAME VARIABLES...): all of them found, or an explanation.
macro(plait_choose_backend name)
  set(PLAIT_HAS_${name} ON)
  if(PLAIT_ENABLE_${name} STREQUAL "OFF")
    set(PLAIT_HAS_${name} OFF)
  else()
    foreach(needed ${ARGN})
      if(NOT ${needed})
        set(PLAIT_HAS_${name} OFF)
        if(PLAIT_ENABLE_${name} STREQUAL "ON")
          message(FATAL_ERROR "PLAIT_ENABLE_${name} is ON, but ${needed} was not found")
        endif()
        message(STATUS "${name}: off, ${needed} was not found")
      endif()
    endforeach()
  endif()
endmacro()

# oneDNN, not by its CMake package, which asks for the headers of OpenCL, and
# the OpenMP runtime that it uses; see lib/Runtime/CPU/Team.h.
find_library(PLAIT_DNNL dnnl)
find_path(PLAIT_DNNL_INCLUDE dnnl.hpp)
find_library(PLAIT_GOMP NAMES gomp libgomp.so.1
             HINTS ${CMAKE_CXX_IMPLICIT_LINK_DIRECTORIES})
plait_choose_backend(CPU PLAIT_DNNL PLAIT_DNNL_INCLUDE PLAIT_GOMP)

# Only a module of lib/Runtime/MPI is linked with each.
find_package(MPI QUIET COMPONENTS C)
plait_choose_backend(MPI MPI_C_FOUND)
find_package(ucx 1.13 QUIET CONFIG)
plait_choose_backend(UCX ucx_FOUND)

# Headers alone: the libraries are loaded when a CUDA plan runs.
set(hints /usr/local/cuda ENV CUDA_HOME ENV CUDA_PATH)
find_path(PLAIT_CUDA_INCLUDE cuda.h HINTS ${hints} PATH_SUFFIXES include)
find_path(PLAIT_CUBLASLT_INCLUDE cublasLt.h HINTS ${hints} PATH_SUFFIXES include)
find_path(PLAIT_NCCL_INCLUDE nccl.h HINTS ${hints} PATH_SUFFIXES include)
find_program(PLAIT_NVCC nvcc HINTS ${hints} PATH_SUFFIXES bin)
plait_choose_backend(CUDA PLAIT_CUDA_INCLUDE PLAIT_CUBLASLT_INCLUDE
                     PLAIT_NCCL_INCLUDE PLAIT_NVCC)

# Names for profilers: NVTX, a header that comes with the CUDA toolkit.
find_path(PLAIT_NVTX_INCLUDE nvtx3/nvToolsExt.h HINTS ${hints}
          PATH_SUFFIXES include)
if(NOT PLAIT_NVTX_INCLUDE)
  message(STATUS "NVTX: off, nvtx3/nvToolsExt.h was not found")
endif()

# Attention in one step on GPUs: cuDNN 9 and its header-only front end, which
# scripts/install-deps.sh puts into the tests' Python environment.
file(GLOB environment
     ${PROJECT_SOURCE_DIR}/build/venv/lib/python3*/site-packages/include)
find_path(PLAIT_CUDNN_INCLUDE cudnn_graph.h HINTS ${hints} PATH_SUFFIXES include)
find_path(PLAIT_CUDNN_FRONTEND_INCLUDE cudnn_frontend.h
          HINTS ${hints} ${environment} PATH_SUFFIXES include)
set(PLAIT_HAS_CUDNN OFF)
if(PLAIT_HAS_CUDA AND PLAIT_CUDNN_INCLUDE AND PLAIT_CUDNN_FRONTEND_INCLUDE)
  set(PLAIT_HAS_CUDNN ON)
elseif(PLAIT_HAS_CUDA)
  message(STATUS "cuDNN: off, cudnn_graph.h or cudnn_frontend.h was not found")
endif()
