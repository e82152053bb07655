//===- Check.cpp - Compares a plan with its reference ---------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Setup.h"
#include "plait/Plan/Defaults.h"
#include "plait/Runtime/Weights.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

using namespace plait;
using namespace plait::runtime;

namespace {

/// How far a plan may be from its reference, relative.
struct Tolerance {
  double loss, gradient;
};
constexpr Tolerance floats = {1e-5, 1e-4};
/// Ranks round to 8 bits where one rank does not: partial sums, and what goes
/// from stage to stage. Models of 4 to 12 layers on up to 8 ranks were measured
/// to be off by 5e-5 and 1.3e-2; what is computed wrongly is off by about 1.
constexpr Tolerance halves = {0x1p-12, 0x1p-5};
constexpr size_t maxRows = 20;

/// How the gradient of one parameter differs from the reference's.
struct Difference {
  std::string name;
  int64_t elements;
  double largest;   // absolute, of one element
  double norm;      // of the difference
  double reference; // the norm of the reference gradient
  double relative = 0;
};

Result<Difference> compareGradient(Executor &plan, Executor &reference,
                                   uint32_t parameter) {
  auto found = gatherGradient(plan, parameter);
  if (!found.ok())
    return found.status();
  auto expected = gatherGradient(reference, parameter);
  if (!expected.ok())
    return expected.status();
  if (found->size() != expected->size())
    return fail("parameter ", parameter, " has ", found->size(),
                " elements, in the reference ", expected->size());
  const fb::Parameter &which = *plan.plan().parameters()->Get(parameter);
  Difference result = {which.name()->str(), int64_t(found->size()), 0, 0, 0};
  for (size_t i = 0; i < found->size(); ++i) {
    double difference = double((*found)[i]) - (*expected)[i];
    // Not std::max: what is not a number stays.
    if (!(std::abs(difference) <= result.largest) &&
        !std::isnan(result.largest))
      result.largest = std::abs(difference);
    result.norm += difference * difference;
    result.reference += double((*expected)[i]) * (*expected)[i];
  }
  result.norm = std::sqrt(result.norm);
  result.reference = std::sqrt(result.reference);
  return result;
}

/// Sets the relative differences. Some gradients are zero but for rounding:
/// softmax does not change when a constant is added to its inputs, so the
/// bias of the keys in attention has none. Relative to itself such a gradient
/// is noise. The floor is what the parameter's norm would be if its elements
/// were as large as those of the whole model are on average.
void setRelative(std::vector<Difference> &differences) {
  double squares = 0, elements = 0;
  for (const Difference &difference : differences) {
    squares += difference.reference * difference.reference;
    elements += double(difference.elements);
  }
  for (Difference &difference : differences) {
    double floor = std::sqrt(squares / elements * double(difference.elements));
    difference.relative =
        difference.norm == 0
            ? 0
            : difference.norm / std::max(difference.reference, floor);
  }
}

bool worse(const Difference &left, const Difference &right) {
  // What is not a number comes first.
  return std::isnan(left.relative) != std::isnan(right.relative)
             ? std::isnan(left.relative)
             : left.relative > right.relative;
}

void printTable(const std::vector<Difference> &differences) {
  std::printf("%-48s %14s %14s\n", "parameter", "max abs diff", "relative");
  for (size_t i = 0; i < std::min(maxRows, differences.size()); ++i)
    std::printf("%-48s %14.3e %14.3e\n", differences[i].name.c_str(),
                differences[i].largest, differences[i].relative);
  if (differences.size() > maxRows)
    std::printf("and %zu more that differ less\n",
                differences.size() - maxRows);
}

/// One step that leaves the weights alone and the gradients to be read.
struct Probe {
  std::unique_ptr<Executor> executor;
  StepMetrics metrics;
};

Result<Probe> runProbe(const fb::Plan &plan, const Batches &batches,
                       const TrainOptions &options) {
  auto executor = startExecutor(plan, options);
  if (!executor.ok())
    return executor.status();
  auto metrics = (*executor)->runStep(1, batches, scalarsOf(options, 1));
  if (!metrics.ok())
    return metrics.status();
  return Probe{std::move(*executor), *metrics};
}

Status judge(const std::vector<Difference> &differences, double loss,
             double expected, const Tolerance &tolerance) {
  double lossDifference = std::abs(loss - expected) / std::abs(expected);
  size_t bad = std::count_if(
      differences.begin(), differences.end(),
      [&](const Difference &d) { return !(d.relative <= tolerance.gradient); });
  bool same = loss == expected || lossDifference <= tolerance.loss;
  std::printf("loss %.9g, reference %.9g; %zu of %zu gradients differ by more "
              "than %g: %s\n",
              loss, expected, bad, differences.size(), tolerance.gradient,
              same && !bad ? "passed" : "failed");
  if (!same)
    return fail("the loss is ", loss, ", the reference's is ", expected);
  if (bad)
    return fail("the gradient of '", differences.front().name,
                "' differs from the reference's by ",
                differences.front().relative, ", allowed ", tolerance.gradient);
  return Status::success();
}

/// In the process of rank 0: the reference, and how the gradients of `probe`
/// differ from its, worst first.
Result<std::vector<Difference>> compare(const fb::Plan &plan,
                                        const Batches &batches,
                                        TrainOptions options, Probe &probe,
                                        StepMetrics &expected) {
  // One rank needs no other process.
  options.executor.alone = true;
  auto reference = runProbe(*plan.reference_nested_root(), batches, options);
  if (!reference.ok())
    return fail("reference plan: ", reference.status().message());
  expected = reference->metrics;
  std::vector<Difference> differences;
  for (uint32_t i = 0; i < plan.parameters()->size(); ++i) {
    auto difference = compareGradient(*probe.executor, *reference->executor, i);
    if (!difference.ok())
      return difference.status();
    differences.push_back(*difference);
  }
  setRelative(differences);
  std::sort(differences.begin(), differences.end(), worse);
  return differences;
}

/// In the other processes: gives rank 0 what it compares.
Status giveGradients(Executor &executor) {
  for (uint32_t i = 0; i < executor.plan().parameters()->size(); ++i)
    PLAIT_RETURN_IF_ERROR(gatherGradient(executor, i).status());
  return Status::success();
}

} // namespace

Status runtime::check(const fb::Plan &plan, const TrainOptions &given) {
  if (!plan.reference())
    return Status::failure("the plan has no reference to check against");
  TrainOptions options = given;
  options.learningRate = 0;
  Result<Batches> batches = openBatches(plan, options);
  if (!batches.ok())
    return batches.status();
  auto probe = runProbe(plan, *batches, options);
  if (!probe.ok())
    return probe.status();
  Executor &executor = *probe->executor;
  if (!executor.leads()) {
    PLAIT_RETURN_IF_ERROR(giveGradients(executor));
    return agree(executor, Status::success());
  }
  StepMetrics expected = {};
  auto differences = compare(plan, *batches, options, *probe, expected);
  if (!differences.ok())
    return differences.status();
  printTable(*differences);
  constexpr auto loss = static_cast<size_t>(fb::Metric::Loss);
  return agree(executor,
               judge(*differences, probe->metrics[loss], expected[loss],
                     plan::isMixed(plan) ? halves : floats));
}
