//===- Plan.cpp - Any bytes as a plan ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Fuzz.h"
#include "plait/Plan/Check.h"
#include "plait/Plan/Plan_generated.h"
#include "plait/Plan/Replay.h"

using namespace plait;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  // Behind the hash of the file, which random bytes do not have.
  std::string copy(reinterpret_cast<const char *>(data), size); // aligned
  auto *bytes = reinterpret_cast<const uint8_t *>(copy.data());
  flatbuffers::Verifier verifier(bytes, size);
  if (plan::fb::VerifyPlanBuffer(verifier))
    fuzz::require(plan::checkPlan(*plan::fb::GetPlan(bytes)));
  return 0;
}
