//===- Watch.cpp - Which steps are noted, and who reads the notes ---------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Watch.h"

#include <algorithm>

using namespace plait;
using namespace plait::runtime;

Status Watch::beginRun(Executor &executor, uint64_t steps) {
  if (!notes)
    return Status::success();
  if (Rendezvous *processes = executor.processes())
    PLAIT_RETURN_IF_ERROR(notes->compareClocks(*processes));
  for (StepReader *reader : readers)
    PLAIT_RETURN_IF_ERROR(reader->beginRun(steps));
  return Status::success();
}

void Watch::beforeStep(uint64_t step) {
  if (notes)
    notes->enable(std::any_of(
        readers.begin(), readers.end(),
        [&](const StepReader *reader) { return reader->wants(step); }));
}

Status Watch::afterStep(Executor &executor, uint64_t step, double seconds) {
  if (!notes || !notes->isEnabled())
    return Status::success();
  notes->enable(false); // evaluations are no steps
  PLAIT_RETURN_IF_ERROR(notes->collect(executor.processes()));
  for (StepReader *reader : readers)
    if (executor.leads() && reader->wants(step))
      reader->add(step, seconds, *notes);
  return Status::success();
}
