//===- Setup.cpp - Setup of training and checking -------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What training, evaluation and --check begin with: data, an executor, weights.
// Also how processes agree on a failure that only one of them has had.
//
//===----------------------------------------------------------------------===//

#include "Setup.h"

#include "Core/Processes.h"
#include "plait/Plan/Defaults.h"
#include "plait/Runtime/Rendezvous.h"
#include "plait/Runtime/Weights.h"

#include <algorithm>
#include <cmath>
#include <sstream>

using namespace plait;
using namespace plait::runtime;

/// A model with a tokenizer knows other tokens than bytes: trained on them it
/// would forget what it has learned.
static Status checkText(const fb::Plan &plan, const TrainOptions &options) {
  const char *option = !options.text.empty()       ? "`text`"
                       : !options.evalText.empty() ? "`eval-text`"
                                                   : nullptr;
  if (!option || options.textAsBytes || plan.vocab_size() <= 256)
    return Status::success();
  return fail(option, " makes a token of each byte, but the model has ",
              plan.vocab_size(),
              " tokens: have plait-data write tokens of its "
              "tokenizer, or give `text-as-bytes`");
}

/// Order and dropout's keys are drawn from the seed, each in its own way, so
/// that the same command gives the same run on any plan.
Result<Batches> runtime::openBatches(const fb::Plan &plan,
                                     const TrainOptions &options) {
  PLAIT_RETURN_IF_ERROR(checkText(plan, options));
  Result<Batches> batches =
      options.givesRows ? Batches::given(plan)
      : !options.tokens.empty()
          ? Batches::fromTokens(options.tokens, options.tokenType, plan)
      : !options.text.empty() ? Batches::fromText(options.text, plan)
                              : Batches::random(options.seed, plan);
  if (!batches.ok())
    return batches;
  if (options.shuffle && !options.givesRows)
    batches->shuffle(options.seed);
  batches->drawKeys(options.seed);
  takeSite(plan, options, *batches);
  PLAIT_RETURN_IF_ERROR(setDocumentEnd(plan, options, *batches));
  return batches;
}

void runtime::takeSite(const fb::Plan &plan, const TrainOptions &options,
                       Batches &batches) {
  if (options.sites.isApart())
    batches.takeSite(*options.sites.site, plan::RankGrid(plan).sites());
}

/// Any rank: only some programs of a pipeline take inputs.
bool runtime::takesInput(const fb::Plan &plan, fb::InputKind kind) {
  for (const fb::Program *program : *plan.programs())
    for (uint32_t i = 0; i < plan::length(program->inputs()); ++i)
      if (program->inputs()->Get(i)->kind() == kind)
        return true;
  return false;
}

/// Both mistakes would train a model other than the one that is meant, without
/// any sign of it.
Status runtime::setDocumentEnd(const fb::Plan &plan,
                               const TrainOptions &options, Batches &batches) {
  bool isMasked = takesInput(plan, fb::InputKind::Starts);
  if (isMasked && !options.documentEnd)
    return Status::failure("attention of the plan stays within documents: "
                           "`document-end` has to say which token ends one");
  if (!isMasked && options.documentEnd)
    return Status::failure("`document-end` is given, but attention of the plan "
                           "runs over all of a sample: compile it with "
                           "`document-mask`");
  return isMasked ? batches.endDocuments(*options.documentEnd)
                  : Status::success();
}

Status runtime::setSteps(TrainOptions &options, const Batches &batches,
                         uint64_t step) {
  if (!options.epochs)
    return Status::success();
  if (options.givesRows)
    return Status::failure("`epochs` needs data that the run reads by itself");
  std::optional<uint64_t> pass = batches.order().passSamples();
  if (!pass)
    return Status::failure("`epochs` needs sources without weights: with them "
                           "no pass has an end");
  // What is whole but for the rounding of decimals is whole.
  double samples = std::floor(*options.epochs * double(*pass) + 1e-6);
  uint64_t begin = batches.positionAfter(step);
  double left = std::max(0.0, samples - double(begin));
  options.steps = step + uint64_t(left) / batches.batchSize();
  return options.steps ? Status::success()
                       : fail("`epochs` ", *options.epochs, " of ", *pass,
                              " samples are ", samples, ", a batch needs ",
                              batches.batchSize());
}

Status runtime::agree(Executor &executor, const Status &mine) {
  Rendezvous *processes = executor.processes();
  return processes ? processes->agree(mine) : mine;
}

/// The plan first: it is read by each process from what may be different disks.
/// Then the versions.
Status runtime::agreeOnPlan(Rendezvous &processes, const std::string &path,
                            const Status &opened, const plan::PlanFile *file) {
  PLAIT_RETURN_IF_ERROR(processes.agree(opened));
  auto plan = PlanIdentity::of(file->plan(), file->hash());
  PLAIT_RETURN_IF_ERROR(processes.agreeOn(std::vector<SharedValue>{
      {plan.hash, "plan '" + path + "' (" + plan.mesh + "), " + plan.hash}}));
  return processes.agreeOn("version", describeVersion());
}

/// The executor's description of itself is printed before anything can go
/// wrong, as it is what one needs to know then.
Result<std::unique_ptr<Executor>>
runtime::makeExecutor(const fb::Plan &plan, const TrainOptions &options) {
  auto executor = Executor::create(plan, options.executor);
  if (!executor.ok())
    return executor.status();
  for (const std::string *line :
       {&(*executor)->libraries(), &(*executor)->placement()})
    if (!line->empty())
      (*executor)->tell(Severity::Info, *line);
  return executor;
}

/// A model, and adapters where there are some.
static Result<WeightFiles> openWeights(const fb::Plan &plan,
                                       const TrainOptions &options) {
  if (options.adapter.empty())
    return WeightFiles::open(options.weights);
  return openWithAdapter(plan, options.weights, options.adapter);
}

/// Files are opened by every process: each reads the elements of its own ranks.
Status runtime::setInitialWeights(Executor &executor,
                                  const TrainOptions &options) {
  // How long reading takes is the disk's business.
  return doTogether(executor, [&] {
    if (options.weights.empty())
      return initializeWeights(executor, options.seed);
    Result<WeightFiles> files = openWeights(executor.plan(), options);
    return files.ok() ? loadWeights(executor, *files, options.seed)
                      : files.status();
  });
}

Status runtime::saveModel(Executor &executor, const TrainOptions &options,
                          const std::string &directory) {
  const std::string &origin =
      options.weights.empty() ? options.origin : options.weights;
  return agree(executor,
               saveWeights(executor, directory, origin,
                           options.savesRounded ? FileTensor::Type::BF16
                                                : FileTensor::Type::F32));
}

Result<std::unique_ptr<Executor>>
runtime::startExecutor(const fb::Plan &plan, const TrainOptions &options) {
  auto executor = makeExecutor(plan, options);
  if (executor.ok())
    PLAIT_RETURN_IF_ERROR(setInitialWeights(**executor, options));
  return executor;
}

/// Not an error: folders of other tools have buffers that a model does not
/// need. A few names are enough to see which case it is.
void runtime::warnOfUnused(const Executor &executor,
                           const TrainOptions &options) {
  if (options.weights.empty())
    return;
  double dropout =
      options.adapter.empty() ? 0.0 : findAdapterDropout(options.adapter);
  if (dropout > 0) {
    std::ostringstream text;
    text << "adapter '" << options.adapter << "' has lora_dropout " << dropout
         << ", which is not applied";
    executor.warn(text.str());
  }
  Result<WeightFiles> files = openWeights(executor.plan(), options);
  if (!files.ok()) // setInitialWeights says so
    return;
  std::vector<std::string> names = findUnusedTensors(executor.plan(), *files);
  if (names.empty())
    return;
  constexpr size_t most = 5;
  std::string list = names.front();
  for (size_t i = 1; i < std::min(most, names.size()); ++i)
    list += ", " + names[i];
  if (names.size() > most)
    list += " and " + std::to_string(names.size() - most) + " more";
  executor.warn("weights '" + options.weights +
                "' has what the model has no place for: " + list);
}
