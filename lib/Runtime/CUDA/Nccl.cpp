//===- Nccl.cpp - The functions of libnccl --------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Opens libnccl and binds what the communicators call. Functions that register
// memory may be missing: their pointers are null then, and NCCL copies.
//
//===----------------------------------------------------------------------===//

#include "Nccl.h"

#include "SharedLibrary.h"

#include <cstdlib>

using namespace plait;
using namespace plait::runtime;

namespace {

/// The first with ncclCommSplit and its configuration is 2.18; the order of
/// launches (below) needs 2.26.
constexpr int leastVersion = NCCL_VERSION(2, 26, 0);

} // namespace

Status runtime::keepSumsOutOfSwitches() {
  constexpr const char *name = "NCCL_NVLS_ENABLE";
  setenv(name, "0", /*overwrite=*/0);
  std::string value = std::getenv(name);
  return value == "0" ? Status::success()
                      : fail("the plan is deterministic, and ", name, " is ",
                             value, ", which lets switches add: unset it");
}

Result<Nccl> Nccl::open() {
  // Collectives of several communicators are in flight on one GPU at once. NCCL
  // starts them in the order in which the host issued them, which the plan
  // makes the same on all GPUs; without this they could wait for each other.
  setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", /*overwrite=*/0);
  auto library = SharedLibrary::open("libnccl.so.2", "PLAIT_NCCL");
  if (!library.ok())
    return library.status();
  Nccl table = {};
#define PLAIT_BIND(function)                                                   \
  PLAIT_RETURN_IF_ERROR(                                                       \
      library->bind(PLAIT_SYMBOL_NAME(function), table.function));
  PLAIT_NCCL_FUNCTIONS(PLAIT_BIND)
#undef PLAIT_BIND
  int version = 0;
  PLAIT_RETURN_IF_ERROR(
      table.check(table.ncclGetVersion(&version), "ncclGetVersion"));
  if (version < leastVersion)
    return fail("libnccl.so.2 is version ", version / 10000, ".",
                version / 100 % 100, ".", version % 100, ", needed is ",
                leastVersion / 10000, ".", leastVersion / 100 % 100);
#ifdef PLAIT_NCCL_REGISTRATION
#define PLAIT_BIND(function)                                                   \
  library->bindIfThere(PLAIT_SYMBOL_NAME(function), table.function);
  PLAIT_NCCL_REGISTRATION(PLAIT_BIND)
#undef PLAIT_BIND
#endif
  return table;
}

/// Opens the library once per process; a failure is remembered as well.
Result<const Nccl *> Nccl::load() {
  static const Result<Nccl> table = open();
  if (!table.ok())
    return table.status();
  return &*table;
}

/// The detail is what NCCL says of its last error.
Status Nccl::check(ncclResult_t result, const char *what) const {
  if (result == ncclSuccess)
    return Status::success();
  const char *detail = ncclGetLastError(nullptr);
  return fail(what, ": ", ncclGetErrorString(result), " (",
              detail ? detail : "", ")");
}
