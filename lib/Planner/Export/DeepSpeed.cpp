//===- DeepSpeed.cpp - A configuration of DeepSpeed -----------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The JSON that deepspeed.initialize() takes. It has no comments: what it
// cannot say is told beside it.
//
//===----------------------------------------------------------------------===//

#include "Export/Text.h"

#include <nlohmann/json.hpp>

using namespace plait;
using namespace plait::planner;
using json = nlohmann::ordered_json;

/// Fields are in the order of DeepSpeed's documentation. State on hosts is an
/// option of ZeRO, which on one replica divides nothing.
Result<Emitted> planner::emitDeepSpeed(const Job &job) {
  const Configuration &choice = job.configuration;
  const Training &training = job.training;
  if (Result<Launch> launch = getLaunch(job); !launch.ok())
    return launch.status();
  json config = {
      {"train_batch_size", training.globalBatch},
      {"train_micro_batch_size_per_gpu", choice.microBatch},
      {"gradient_accumulation_steps", choice.microbatches(training)}};
  if (training.precision != Precision::FP32)
    config[print(training.precision)] = {{"enabled", true}};
  bool offloads = offloadsOptimizer(choice.offload);
  json zero = {{"stage", offloads ? std::max(choice.zero, 1) : choice.zero}};
  if (choice.zero > 0)
    zero["overlap_comm"] = true;
  if (offloads)
    zero["offload_optimizer"] = {{"device", "cpu"}, {"pin_memory", true}};
  config["zero_optimization"] = zero;
  config["communication_data_type"] = print(training.reducePrecision);
  config["data_types"] = {{"grad_accum_dtype", "fp32"}};
  if (int tensor = choice.mesh[Axis::TP]; tensor > 1)
    config["tensor_parallel"] = {{"autotp_size", tensor}};
  if (int context = choice.mesh[Axis::CP]; context > 1)
    config["sequence_parallel_size"] = context;
  Emitted emitted{config.dump(2) + "\n"};
  if (choice.recompute.getUniform() == Recompute::Full)
    emitted.notes.push_back("recompute full is no part of the JSON: call "
                            "gradient_checkpointing_enable() of your model");
  if (choice.mesh[Axis::CP] > 1)
    emitted.notes.push_back("cp is sequence_parallel_size, which needs Ulysses "
                            "attention in your model");
  if (job.optimizer != "adamw")
    emitted.notes.push_back("the optimizer is yours to make: it was planned "
                            "for " +
                            job.optimizer);
  return emitted;
}
