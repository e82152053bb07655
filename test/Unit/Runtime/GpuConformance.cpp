//===- GpuConformance.cpp - The tests that a GPU node runs ----------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// `--gpu` says which GPUs there are, or why there is none.
//
//===----------------------------------------------------------------------===//

#include "CUDA/CudaStream.h"

#include <cstdio>
#include <cstring>
#include <gtest/gtest.h>

using namespace plait;
using namespace plait::runtime;

static Status describeGpus() {
  Result<const Driver *> driver = Driver::load();
  if (!driver.ok())
    return driver.status();
  int count = 0;
  PLAIT_RETURN_IF_ERROR((*driver)->check((*driver)->cuDeviceGetCount(&count),
                                         "cuDeviceGetCount"));
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    auto gpu = CudaContext::create(**driver, ordinal);
    if (!gpu.ok())
      return gpu.status();
    std::printf("%s, sm_%d%d\n", (*gpu)->describe().c_str(), (*gpu)->major,
                (*gpu)->minor);
  }
  return Status::success();
}

int main(int argc, char **argv) {
  if (argc == 2 && std::strcmp(argv[1], "--gpu") == 0) {
    Status status = describeGpus();
    if (!status.ok())
      std::fprintf(stderr, "%s\n", status.message().c_str());
    return !status.ok();
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
