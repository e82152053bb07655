//===- Check.cpp - Compares a plan with its reference ---------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// `plait-run --check`: one step of the plan and one of its reference, the same
// model on one rank, with the same weights and data; loss, gradient norm and
// every gradient are compared. docs/Accuracy.md says what the bounds are and
// where they come from.
//
// Plans in f32 differ from their reference by the order of additions, and have
// fixed bounds. Those in bf16 round in other places as well; where they exceed
// the bounds, what rounding may do to this model is measured with the reference
// itself (allowNoise()).
//
//===----------------------------------------------------------------------===//

#include "Controls.h"
#include "Core/Processes.h"
#include "Setup.h"
#include "plait/Plan/Defaults.h"
#include "plait/Runtime/Weights.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <numeric>

using namespace plait;
using namespace plait::runtime;

namespace {

/// How far a plan may be from its reference, relative. The norm of all
/// gradients is bounded like each of them.
struct Limits {
  double loss, gradient;
};
constexpr Limits floats = {1e-5, 1e-4};
/// A target of which the model is next to certain has a probability that is
/// rounded beside 1, however small its loss and its gradient are, which are
/// what is left of 1: below this loss, bounds are those of a loss of this size.
/// What f32 does not tell from 0 at all says nothing about a plan.
constexpr double certainLoss = 0.1, zeroLoss = 0x1p-20;
/// Ranks round to 8 bits where one rank does not: partial sums, and what goes
/// from stage to stage. Models of 4 to 12 layers on up to 8 ranks were measured
/// to be off by 5e-5 and 1.3e-2; what is computed wrongly is off by about 1.
constexpr Limits halves = {0x1p-12, 0x1p-5};
/// The loss is not rounded where gradients alone are, before ranks add them up.
constexpr Limits roundedSums = {floats.loss, halves.gradient};
/// The change that rounding may make depends on the model, though: the loss is
/// a mean over tokens, of which a small batch has few, and may be small beside
/// the logits that it is a difference of. A number that is farther off than
/// `halves` is held against what roundings of the weights change in the
/// reference, as root mean square over some draws: they leave each GEMM as if
/// it had been rounded once more. A plan is one draw of rounding a few more
/// things unlike its reference: factors, partial sums, results. Of 250 draws of
/// one small model's weights 138 were farther off than `halves`, by up to 5
/// times that mean.
constexpr int noiseDraws = 8;
constexpr double noiseFactor = 8;
/// Beyond this, rounding could not be told from what is computed wrongly. A
/// loss below 1 is a difference of logits that are rounded at their own size:
/// it may be off by as much as one of 1.
constexpr Limits largest = {0x1p-6, 0x1p-2};
constexpr double smallestLoss = 1e-3; // of those that this is true of
constexpr size_t maxRows = 20;

using Gradients = std::vector<std::vector<float>>; // by parameter

/// A step that leaves the weights alone.
struct Step {
  StepMetrics metrics;
  Gradients gradients; // empty tensors in processes without rank 0
};

/// Gives the reporter of `executor` a line of the result.
template <typename... Parts>
void print(const Executor &executor, const char *format, Parts... parts) {
  char line[512];
  std::snprintf(line, sizeof(line), format, parts...);
  executor.result(line);
}

std::string nameOf(const Executor &executor, size_t parameter) {
  return executor.plan().parameters()->Get(parameter)->name()->str();
}

/// A learning rate of zero leaves the weights as they are, so that the same
/// executor may do several of these. Gradients are gathered parameter by
/// parameter to the process of rank 0: all processes call this.
Result<Step> runStep(Executor &executor, const Batches &batches,
                     const TrainOptions &options) {
  if (options.interrupted && options.interrupted())
    return Status::failure("interrupted before all was compared");
  auto controls = Controls::create(options, getOptions(executor.plan()));
  if (!controls.ok())
    return controls.status();
  auto metrics = executor.runStep(1, batches, controls->scalars({}));
  if (!metrics.ok())
    return metrics.status();
  Step step = {*metrics, {}};
  for (uint32_t i = 0; i < executor.plan().parameters()->size(); ++i) {
    auto gradient = gatherTensor(executor, i, ParameterTensor::Gradient);
    if (!gradient.ok())
      return gradient.status();
    step.gradients.push_back(std::move(*gradient));
  }
  return step;
}

//===----------------------------------------------------------------------===//
// Differences
//===----------------------------------------------------------------------===//

/// How the gradient of one parameter differs from the reference's.
struct Difference {
  double largest = 0;   // absolute, of one element
  double norm = 0;      // of the difference
  double reference = 0; // the norm of the reference gradient
  double relative = 0;
};

/// How a step differs from the reference's, relative.
struct Differences {
  double loss = 0, norm = 0;
  std::vector<Difference> gradients; // by parameter
};

/// Computes in double. Both have equally many elements, as the caller has made
/// sure.
Difference compareGradient(const std::vector<float> &found,
                           const std::vector<float> &expected) {
  Difference result;
  for (size_t i = 0; i < found.size(); ++i) {
    double difference = double(found[i]) - expected[i];
    // Not std::max: what is not a number stays.
    if (!(std::abs(difference) <= result.largest) &&
        !std::isnan(result.largest))
      result.largest = std::abs(difference);
    result.norm += difference * difference;
    result.reference += double(expected[i]) * expected[i];
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
void setRelative(std::vector<Difference> &differences,
                 const Gradients &expected) {
  double squares = 0, elements = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    squares += differences[i].reference * differences[i].reference;
    elements += double(expected[i].size());
  }
  for (size_t i = 0; i < expected.size(); ++i) {
    Difference &difference = differences[i];
    double floor = std::sqrt(squares / elements * double(expected[i].size()));
    difference.relative =
        difference.norm == 0
            ? 0
            : difference.norm / std::max(difference.reference, floor);
  }
}

/// Equal numbers differ by 0, also where the reference is 0.
Differences compare(const Step &found, const Step &expected) {
  auto relative = [&](fb::Metric metric) {
    double reference = at(expected.metrics, metric);
    double difference = std::abs(at(found.metrics, metric) - reference);
    return difference == 0 ? 0 : difference / std::abs(reference);
  };
  Differences result = {
      relative(fb::Metric::Loss), relative(fb::Metric::GradNorm), {}};
  for (size_t i = 0; i < expected.gradients.size(); ++i)
    result.gradients.push_back(
        compareGradient(found.gradients[i], expected.gradients[i]));
  setRelative(result.gradients, expected.gradients);
  return result;
}

//===----------------------------------------------------------------------===//
// Bounds
//===----------------------------------------------------------------------===//

/// Relative, as Differences are. Of each gradient its own, since rounding
/// touches some more than others.
struct Bounds {
  double loss, norm;
  std::vector<double> gradients; // by parameter
};

Bounds makeBounds(const Limits &limits, const Step &expected) {
  double size = std::abs(at(expected.metrics, fb::Metric::Loss));
  double scale = certainLoss / std::min(size, certainLoss);
  double gradient = std::min(limits.gradient * scale, largest.gradient);
  return {limits.loss * scale, gradient,
          std::vector<double>(expected.gradients.size(), gradient)};
}

/// Tells by how many times its bound a gradient is off: what is not a number
/// most.
double getExcess(const Differences &differences, const Bounds &bounds,
                 size_t parameter) {
  double relative = differences.gradients[parameter].relative;
  return std::isnan(relative) ? std::numeric_limits<double>::infinity()
                              : relative / bounds.gradients[parameter];
}

/// NaN counts as bad: its excess is infinite.
size_t countBad(const Differences &differences, const Bounds &bounds) {
  size_t bad = 0;
  for (size_t i = 0; i < differences.gradients.size(); ++i)
    bad += getExcess(differences, bounds, i) > 1;
  return bad;
}

/// Written so that NaN is not within anything.
bool isWithin(const Differences &differences, const Bounds &bounds) {
  return differences.loss <= bounds.loss && differences.norm <= bounds.norm &&
         !countBad(differences, bounds);
}

/// Raises bounds to what other roundings of the weights change: see noiseDraws.
/// 1. For each draw: disturb the weights, do the step, put the weights back,
///    and note by how much everything differs.
/// 2. Raise each bound to the root mean square times `noiseFactor`, but never
///    beyond `largest`. A bound is never lowered: a draw that happens to change
///    nothing proves nothing.
Status allowNoise(Bounds &bounds, Executor &reference, const Batches &batches,
                  const TrainOptions &options, const Step &expected) {
  double loss = 0, norm = 0;
  std::vector<double> gradients(expected.gradients.size());
  // 1.
  for (int draw = 0; draw < noiseDraws; ++draw) {
    auto weights = disturbWeights(reference, draw);
    if (!weights.ok())
      return weights.status();
    auto step = runStep(reference, batches, options);
    if (!step.ok())
      return step.status();
    PLAIT_RETURN_IF_ERROR(restoreWeights(reference, *weights));
    Differences noise = compare(*step, expected);
    loss += noise.loss * noise.loss;
    norm += noise.norm * noise.norm;
    for (size_t i = 0; i < gradients.size(); ++i)
      gradients[i] += std::pow(noise.gradients[i].relative, 2);
  }
  // 2.
  auto raise = [](double &bound, double squares, double most) {
    double noise = noiseFactor * std::sqrt(squares / noiseDraws);
    bound = std::max(bound, std::min(noise, most));
  };
  double size = std::abs(at(expected.metrics, fb::Metric::Loss));
  raise(bounds.loss, loss, largest.loss / std::clamp(size, smallestLoss, 1.0));
  raise(bounds.norm, norm, largest.gradient);
  for (size_t i = 0; i < gradients.size(); ++i)
    raise(bounds.gradients[i], gradients[i], largest.gradient);
  print(reference,
        "bounds from %d other roundings of the weights: loss %.2g, norm "
        "%.2g, gradients up to %.2g",
        noiseDraws, bounds.loss, bounds.norm,
        *std::max_element(bounds.gradients.begin(), bounds.gradients.end()));
  return Status::success();
}

//===----------------------------------------------------------------------===//
// The verdict
//===----------------------------------------------------------------------===//

/// The parameters, worst first.
std::vector<size_t> sortParameters(const Differences &differences,
                                   const Bounds &bounds) {
  std::vector<size_t> order(differences.gradients.size());
  std::iota(order.begin(), order.end(), size_t(0));
  std::sort(order.begin(), order.end(), [&](size_t left, size_t right) {
    double a = getExcess(differences, bounds, left);
    double b = getExcess(differences, bounds, right);
    return a != b ? a > b : left < right;
  });
  return order;
}

void printTable(const Executor &executor, const Differences &differences,
                const std::vector<size_t> &order) {
  print(executor, "%-48s %14s %14s", "parameter", "max abs diff", "relative");
  for (size_t i = 0; i < std::min(maxRows, order.size()); ++i)
    print(executor, "%-48s %14.3e %14.3e", nameOf(executor, order[i]).c_str(),
          differences.gradients[order[i]].largest,
          differences.gradients[order[i]].relative);
  if (order.size() > maxRows)
    print(executor, "and %zu more that differ less", order.size() - maxRows);
}

/// Prints the worst parameters and one line with everything, then fails by the
/// first of loss, gradients and norm that is out of bounds. `!(a <= b)` rather
/// than `a > b`, which NaN would pass.
Status judge(const Executor &reference, const Step &found, const Step &expected,
             const Differences &differences, const Bounds &bounds) {
  std::vector<size_t> order = sortParameters(differences, bounds);
  printTable(reference, differences, order);
  auto describe = [&](const char *name, fb::Metric metric) {
    char text[128];
    std::snprintf(text, sizeof text, "%s %.9g, reference %.9g", name,
                  at(found.metrics, metric), at(expected.metrics, metric));
    return std::string(text);
  };
  std::string loss = describe("loss", fb::Metric::Loss);
  std::string norm = describe("gradient norm", fb::Metric::GradNorm);
  print(reference, "%s; %s; %zu of %zu gradients differ by more than %g: %s",
        loss.c_str(), norm.c_str(), countBad(differences, bounds), order.size(),
        order.empty() ? 0 : bounds.gradients[order[0]],
        isWithin(differences, bounds) ? "passed" : "failed");
  if (!(differences.loss <= bounds.loss))
    return fail(loss, ": differs by ", differences.loss, ", allowed ",
                bounds.loss);
  if (countBad(differences, bounds))
    return fail("the gradient of '", nameOf(reference, order[0]),
                "' differs from the reference's by ",
                differences.gradients[order[0]].relative, ", allowed ",
                bounds.gradients[order[0]]);
  if (!(differences.norm <= bounds.norm))
    return fail(norm, ": differs by ", differences.norm, ", allowed ",
                bounds.norm);
  return Status::success();
}

/// The reference computes on the microbatches that the plan has: one of a .mlir
/// model may mix its rows, and is as large as those of all replicas together.
void arrangeRows(Batches &batches, const fb::Plan &plan,
                 const fb::Plan &reference) {
  int64_t replicas = plan::RankGrid::partsOf(plan, Splits::Batch);
  if (reference.micro_batch() == plan.micro_batch() * replicas)
    batches.interleave(replicas, plan.micro_batch());
}

/// Holds `found` against the reference, in the process of rank 0.
/// 1. Start the reference, in this process alone.
/// 2. Do the same step with it.
/// 3. Refuse to compare what says nothing: no tokens, numbers that are not
///    finite, a loss of zero.
/// 4. Compare, measure the noise if that is called for, and judge.
Status checkAgainst(const fb::Plan &plan, const Step &found, Batches &batches,
                    TrainOptions options) {
  // 1. One rank needs no other process.
  options.executor.processes = nullptr;
  const fb::Plan &unpartitioned = *plan.reference_nested_root();
  arrangeRows(batches, plan, unpartitioned);
  auto reference = startExecutor(unpartitioned, options);
  if (!reference.ok())
    return fail(reference.status().code(),
                "reference plan: ", reference.status().message());
  // 2.
  auto expected = runStep(**reference, batches, options);
  if (!expected.ok())
    return fail(expected.status().code(),
                "reference plan: ", expected.status().message());
  // 3.
  for (auto [step, whose] :
       {std::pair(&found, "the plan"), {&*expected, "the reference"}})
    if (Status status = checkMetrics(step->metrics); !status.ok())
      return fail("nothing to compare: in ", whose, " ", status.message());
  if (double loss = at(expected->metrics, fb::Metric::Loss);
      std::abs(loss) < zeroLoss)
    return fail("nothing to compare: in the reference the loss is ", loss,
                ", below ", zeroLoss, " f32 does not tell it from 0");
  for (size_t i = 0; i < found.gradients.size(); ++i)
    if (found.gradients[i].size() != expected->gradients[i].size())
      return fail("parameter ", i, " has ", found.gradients[i].size(),
                  " elements, in the reference ",
                  expected->gradients[i].size());
  // 4.
  Differences differences = compare(found, *expected);
  bool isMixed = plan::isMixed(plan);
  bool sumsHalves = plan::reducePrecisionOf(plan) == "bf16";
  Bounds bounds = makeBounds(isMixed      ? halves
                             : sumsHalves ? roundedSums
                                          : floats,
                             *expected);
  if (isMixed && !isWithin(differences, bounds))
    PLAIT_RETURN_IF_ERROR(
        allowNoise(bounds, **reference, batches, options, *expected));
  return judge(**reference, found, *expected, differences, bounds);
}

} // namespace

/// All processes do the plan's step; that of rank 0 alone has its gradients,
/// runs the reference and tells the others the verdict. They wait for it in
/// doTogether(), as the reference may take longer than the time limit of an
/// exchange.
Status runtime::check(const fb::Plan &plan, const TrainOptions &given) {
  if (!plan.reference())
    return Status::failure("the plan has no reference to check against");
  TrainOptions options = given;
  options.learningRate = 0;
  completeSettings(options, plan);
  Result<Batches> batches = openBatches(plan, options);
  if (!batches.ok())
    return batches.status();
  auto executor = startExecutor(plan, options);
  if (!executor.ok())
    return executor.status();
  auto found = runStep(**executor, *batches, options);
  if (!found.ok())
    return found.status();
  return agree(**executor, doTogether(**executor, [&] {
    if (!(*executor)->leads())
      return Status::success();
    warnOfUnused(**executor, options);
    return checkAgainst(plan, *found, *batches, options);
  }));
}
