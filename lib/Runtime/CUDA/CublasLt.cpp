//===- CublasLt.cpp - The functions of libcublasLt ------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Opens libcublasLt and binds what CublasGemms calls. The library is that of
// the toolkit whose headers plait-run was compiled with, by major version.
//
//===----------------------------------------------------------------------===//

#include "CublasLt.h"

#include "SharedLibrary.h"

using namespace plait;
using namespace plait::runtime;

/// The library's types and enumerations belong to one major version.
static constexpr char libraryName[] =
    "libcublasLt.so." PLAIT_SYMBOL_NAME(CUBLAS_VER_MAJOR);

Result<CublasLt> CublasLt::open() {
  auto library = SharedLibrary::open(libraryName, "PLAIT_CUBLASLT");
  if (!library.ok())
    return library.status();
  CublasLt table = {};
#define PLAIT_BIND(function)                                                   \
  PLAIT_RETURN_IF_ERROR(                                                       \
      library->bind(PLAIT_SYMBOL_NAME(function), table.function));
  PLAIT_CUBLASLT_FUNCTIONS(PLAIT_BIND)
#undef PLAIT_BIND
  // 11.xx.yy counts as 11xxyy, 13.x.y as 13xxyy.
  size_t version = table.cublasLtGetVersion();
  if (version / 10000 != CUBLAS_VER_MAJOR)
    return fail(libraryName, " is version ", version, ", needed is ",
                CUBLAS_VER_MAJOR, ".x");
  return table;
}

/// Opens the library once per process; a failure is remembered as well. Local
/// statics are initialised by one thread while others wait.
Result<const CublasLt *> CublasLt::load() {
  static const Result<CublasLt> table = open();
  if (!table.ok())
    return table.status();
  return &*table;
}

/// cuBLASLt keeps no detail of a failure; its status is all there is.
Status CublasLt::check(cublasStatus_t status, const char *what) const {
  if (status == CUBLAS_STATUS_SUCCESS)
    return Status::success();
  return fail(what, ": ", cublasLtGetStatusString(status));
}
