//===- Driver.cpp - The functions of libcuda ------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Opens libcuda and binds what the runtime calls. The driver's interface is
// used, not the CUDA runtime's: libcuda is there wherever a GPU is, in whatever
// version the machine has, and a binary that needs no library of the toolkit
// starts everywhere.
//
//===----------------------------------------------------------------------===//

#include "Driver.h"

#include "SharedLibrary.h"

#include <cstdlib>

using namespace plait;
using namespace plait::runtime;

namespace {

/// The first version that compiles PTX 8.1, which plans and the runtime's own
/// kernels are in.
constexpr int leastVersion = 12010;

/// Streams that share a hardware queue wait for each other. A rank has a
/// stream for each direction of each pipeline neighbour besides the one that
/// computes; 8, the default, is not always enough.
constexpr char queues[] = "CUDA_DEVICE_MAX_CONNECTIONS";

} // namespace

/// Variables for the driver have to be set before cuInit(), which reads them.
/// What the user has set stays.
Result<Driver> Driver::open() {
  auto library = SharedLibrary::open("libcuda.so.1", "PLAIT_CUDA_DRIVER");
  if (!library.ok())
    return library.status();
  Driver driver = {};
#define PLAIT_BIND(function)                                                   \
  PLAIT_RETURN_IF_ERROR(                                                       \
      library->bind(PLAIT_SYMBOL_NAME(function), driver.function));
  PLAIT_DRIVER_FUNCTIONS(PLAIT_BIND)
#undef PLAIT_BIND
  PLAIT_RETURN_IF_ERROR(
      library->bind("cuEventElapsedTime", driver.cuEventElapsedTime));
  setenv(queues, "32", /*overwrite=*/0);
  PLAIT_RETURN_IF_ERROR(driver.check(driver.cuInit(0), "cuInit"));
  int version = 0, devices = 0;
  PLAIT_RETURN_IF_ERROR(
      driver.check(driver.cuDriverGetVersion(&version), "cuDriverGetVersion"));
  if (version < leastVersion)
    return fail("this plan is for CUDA; the driver supports CUDA ",
                version / 1000, ".", version % 1000 / 10, ", needed is ",
                leastVersion / 1000, ".", leastVersion % 1000 / 10);
  PLAIT_RETURN_IF_ERROR(
      driver.check(driver.cuDeviceGetCount(&devices), "cuDeviceGetCount"));
  if (devices == 0)
    return Status::failure("this plan is for CUDA; the driver finds no GPU");
  return driver;
}

/// The local static makes it once, also where several threads ask at a time.
Result<const Driver *> Driver::load() {
  static const Result<Driver> driver = open();
  if (!driver.ok())
    return driver.status();
  return &*driver;
}

Status Driver::check(CUresult result, const char *what) const {
  if (result == CUDA_SUCCESS)
    return Status::success();
  const char *reason = nullptr;
  if (cuGetErrorString(result, &reason) != CUDA_SUCCESS || !reason)
    reason = "unknown error";
  return fail(what, ": ", reason, " (", int(result), ")");
}
