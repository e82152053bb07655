//===- Best.cpp - The best weights so far ---------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Best.h"

#include "Core/Processes.h"
#include "Setup.h"
#include "plait/Plan/Files.h"
#include "plait/Runtime/Weights.h"

#include <cstdio>
#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>

using namespace plait;
using namespace plait::runtime;
using Json = nlohmann::ordered_json;

static std::string recordOf(const TrainOptions &options) {
  return options.best + "/plait-best.json";
}

/// Returns infinity where there is no record that can be read.
static double readLoss(const TrainOptions &options) {
  constexpr double none = std::numeric_limits<double>::infinity();
  auto file = MappedFile::open(recordOf(options), "record");
  if (!file.ok())
    return none;
  Json record =
      Json::parse(file->bytes().begin(), file->bytes().end(), nullptr, false);
  return record.is_object() && record.value("eval_loss", Json()).is_number()
             ? record["eval_loss"].get<double>()
             : none;
}

/// Rank 0 alone has looked into the folder.
Result<Best> Best::open(Executor &executor, const TrainOptions &options) {
  Status status =
      executor.leads() ? prepareToSave(options.best) : Status::success();
  PLAIT_RETURN_IF_ERROR(agree(executor, status));
  double mine = options.resume.empty() ? std::numeric_limits<double>::infinity()
                                       : readLoss(options);
  // A text that brings back the number.
  char text[64];
  std::snprintf(text, sizeof(text), "%.17g", mine);
  auto first = tellFromFirst(executor.processes(), text);
  if (!first.ok())
    return first.status();
  return Best(options, std::strtod(first->c_str(), nullptr));
}

/// All processes have the same loss, and so write together or not at all.
Status Best::offer(Executor &executor, uint64_t step,
                   const Evaluation &evaluation) {
  if (!(evaluation.loss < loss))
    return Status::success();
  Status saved = saveModel(executor, *options, options->best);
  // What was not written is not held against later ones.
  if (saved.ok())
    loss = evaluation.loss;
  std::string number = std::to_string(step);
  if (saved.ok() && executor.leads())
    saved = writeTextFile(
        recordOf(*options),
        Json{{"step", step}, {"eval_loss", evaluation.loss}}.dump() + "\n");
  lacking = saved;
  if (!executor.leads())
    return Status::success();
  if (saved.ok())
    executor.tell(Severity::Info, "best so far: step " + number + ", in '" +
                                      options->best + "'");
  else
    executor.warn("no weights of step " + number +
                  ", the best so far: " + saved.message());
  return Status::success();
}

Status Best::finish(Executor &executor) const {
  Status status = lacking;
  if (!status.ok())
    status = fail(status.code(), "'", options->best,
                  "' lacks the best weights: ", status.message());
  return agree(executor, status);
}
