//===- Cluster.cpp - Any bytes as a cluster or a device ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Planner/Cluster.h"
#include "Fuzz.h"

#include <fstream>

using namespace plait;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  // A cluster is told from the name of a known one by its extension.
  std::string path =
      "/dev/shm/plait-fuzz-" + std::to_string(getpid()) + ".json";
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char *>(data), size);
  // As a cluster, and as a device of which there are some.
  for (std::string devices : {"", ":2x8"})
    fuzz::require(planner::parseCluster(path + devices).status());
  unlink(path.c_str());
  return 0;
}
