//===- Answers.cpp - Works that a search asks for -------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Answers what a search asks of a profile, one by one or many at a time. Each
// degree of tp and ep is one worker's, in whose context its keys are, and what
// is found of it depends on no other: so threads change nothing but when an
// answer is there.
//
//===----------------------------------------------------------------------===//

#include "Models.h"

#include "mlir/IR/Diagnostics.h"

#include <thread>

using namespace mlir;
using namespace plait;
using planner::Work;

LogicalResult plait::keepFirst(Diagnostic &diagnostic, std::string &reason) {
  if (reason.empty() && diagnostic.getSeverity() == DiagnosticSeverity::Error) {
    if (StringAttr origin = findOrigin(diagnostic.getLocation()))
      reason = origin.str() + ": ";
    reason += diagnostic.str();
  }
  return success();
}

/// Costs are straight lines over the tokens of a rank, so that what is cheapest
/// for fewer and for more of them is so for all between.
const Work *ModelProfile::Degree::find(double sequences) const {
  auto above = solved.lower_bound(sequences);
  if (above == solved.end())
    return nullptr;
  if (above->first == sequences)
    return above->second;
  bool isBetween =
      above != solved.begin() && std::prev(above)->second == above->second;
  return isBetween ? above->second : nullptr;
}

ModelProfile::Degree &ModelProfile::getDegree(const planner::Degrees &degrees) {
  auto [entry, isNew] = known.try_emplace(degrees);
  if (isNew)
    entry->second.worker = &getWorker(known.size() - 1);
  return entry->second;
}

/// Keeps answers, refusals as well, for later searches. Diagnostics are caught:
/// that a degree of tp does not divide the model is an answer, not an error,
/// and the first is the reason that a user sees; it is that for all sequences.
const Work *ModelProfile::answer(const planner::Degrees &degrees,
                                 double sequences, Worker &second) {
  Degree &degree = known.at(degrees);
  // One rank splits nothing.
  if (degrees.tensor == 1)
    sequences = 1;
  const Work *work = degree.find(sequences);
  if (work || !degree.refusal.empty())
    return work;
  ScopedDiagnosticHandler handler(
      &degree.worker->context, [&](Diagnostic &diagnostic) {
        return keepFirst(diagnostic, degree.refusal);
      });
  work = solve(degree, second, sequences, degrees);
  if (work)
    degree.solved[sequences] = work;
  return work;
}

const Work *ModelProfile::get(const planner::Degrees &degrees, double sequences,
                              std::string &reason) {
  Degree &degree = getDegree(degrees);
  bool isFirst = degree.worker == &getWorker(0);
  const Work *work = answer(degrees, sequences, getWorker(isFirst ? 1 : 0));
  reason = degree.refusal;
  return work;
}

/// Models are imported here, into the caller's context. One that cannot be is
/// left to get(), which says why.
void ModelProfile::prepare(std::span<const planner::WorkQuestion> questions) {
  ScopedDiagnosticHandler quiet(&context, [](Diagnostic &) {});
  std::map<Worker *, std::vector<planner::WorkQuestion>> parts;
  for (const planner::WorkQuestion &question : questions)
    if (int experts = question.degrees.experts;
        getModel(kSmall * experts) && getModel(kLarge * experts))
      parts[getDegree(question.degrees).worker].push_back(question);
  // One worker is faster with another beside it.
  if (parts.size() < 2)
    return;
  std::vector<std::jthread> threads;
  for (auto &[worker, part] : parts)
    threads.emplace_back([&, worker = worker] {
      for (const planner::WorkQuestion &question : part)
        answer(question.degrees, question.sequences, *worker);
    });
}
