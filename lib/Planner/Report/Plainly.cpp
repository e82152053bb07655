//===- Plainly.cpp - A prediction in sentences ----------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What a page begins with: the answer for somebody who decides about it and
// knows none of the words, what the words mean, and of several cases which are
// the best.
//
//===----------------------------------------------------------------------===//

#include "Report/Projected.h"
#include "Report/Words.h"
#include "plait/Support/Quantities.h"

#include <algorithm>

using namespace plait;
using namespace plait::planner;

/// "20 billion", "1.5 trillion": as they are spoken of.
static std::string speakTokens(double tokens) {
  constexpr std::pair<double, const char *> scales[] = {
      {1e12, " trillion"}, {1e9, " billion"}, {1e6, " million"}};
  for (auto [scale, word] : scales)
    if (tokens >= scale) {
      double shown = tokens / scale;
      bool isWhole = shown == double(int64_t(shown));
      return printNumber(shown, isWhole ? 0 : 1) + word;
    }
  return printCount(tokens);
}

static std::string nameDevice(const ReportInput &input) {
  return input.cluster.device.isProcessor ? "rank" : "GPU";
}

/// How long, how much; without a goal how fast.
static std::string speakOfTime(const ReportInput &input) {
  const Estimate &estimate = input.result.estimate;
  std::string model = input.model.empty() ? "the model" : input.model;
  std::string begin =
      countOf(uint64_t(input.result.configuration.ranks()), nameDevice(input)) +
      " of " + input.cluster.name + " train " + model;
  std::string step = "A step of " +
                     countOf(uint64_t(input.training.globalBatch), "sequence") +
                     " of " + printCount(double(input.training.sequence)) +
                     " tokens takes " + printSeconds(estimate.iterationSeconds);
  if (!input.goal)
    return begin + " on " + printCount(estimate.tokensPerSecond) +
           " tokens a second. " + step + ".";
  Projection projection =
      project(*input.goal, input.result, input.cluster, input.training);
  std::string cost =
      !projection.money
          ? ""
          : ", and that costs " + printMoney(*projection.money, *input.goal) +
                " at " + printMoney(*input.goal->price, *input.goal, 2) +
                " for a device and hour";
  return begin + " on " + speakTokens(projection.tokens) + " tokens in " +
         printDuration(projection.seconds) + cost + ". " + step + ".";
}

/// Tells what is divided over whom, a clause for each kind of parallelism.
static std::string speakOfLayout(const ReportInput &input) {
  const Configuration &c = input.result.configuration;
  std::vector<std::string> clauses;
  auto size = [&](Axis axis) { return std::to_string(c.mesh[axis]); };
  int64_t groups = c.mesh.product(&AxisFacts::copiesState);
  if (groups > 1)
    clauses.push_back("the batch is divided over " + std::to_string(groups) +
                      " groups, each with a copy of the whole model (HSDP)");
  if (c.mesh[Axis::DP] > 1) {
    static constexpr const char *shares[] = {
        "each with all of its parameters and optimizer state",
        "which share the optimizer state (ZeRO 1)",
        "which share optimizer state and gradients (ZeRO 2)",
        "which share parameters, gradients and optimizer state (ZeRO 3, FSDP)"};
    clauses.push_back((groups > 1 ? "a group's part of it over "
                                  : "the batch is divided over ") +
                      size(Axis::DP) + " replicas of the model, " +
                      shares[c.zero]);
  }
  if (c.mesh[Axis::PP] > 1)
    clauses.push_back("the layers are divided over " + size(Axis::PP) +
                      " stages (pipeline parallelism, schedule " + c.schedule +
                      ")");
  if (c.mesh[Axis::TP] > 1)
    clauses.push_back("the matrices of each layer are divided over " +
                      size(Axis::TP) + " (tensor parallelism)");
  if (c.mesh[Axis::EP] > 1)
    clauses.push_back("experts and sequences are divided over " +
                      size(Axis::EP) + " (expert parallelism)");
  if (c.mesh[Axis::CP] > 1)
    clauses.push_back("each sequence is divided over " + size(Axis::CP) +
                      " (context parallelism)");
  if (c.recompute.getUniform() != Recompute::None)
    clauses.push_back("some activations are computed twice to save memory "
                      "(activation checkpointing)");
  if (c.offload != Offload::None)
    clauses.push_back("the memory of the host is used, too (CPU offload)");
  std::string text;
  for (const std::string &clause : clauses)
    text += (text.empty() ? "" : "; ") + clause;
  return text.empty() ? "" : "How: " + text + ".";
}

/// A runner-up with another layout, if it is slower.
static std::string speakOfNext(const SearchResult &result) {
  for (const Alternative &other : result.runnersUp) {
    double more =
        other.estimate.iterationSeconds / result.estimate.iterationSeconds - 1;
    if (other.fits && other.configuration.mesh != result.configuration.mesh &&
        more > 0)
      return "The best on another mesh (" + print(other.configuration) +
             ") is " + printNumber(100 * more, 1) + " % slower.";
  }
  return "";
}

std::string planner::describePlainly(const ReportInput &input) {
  const Estimate &estimate = input.result.estimate;
  std::string text = speakOfTime(input);
  for (const std::string &sentence :
       {describeTrust(input), speakOfLayout(input),
        "The fullest " + nameDevice(input) + " holds " +
            printBytes(estimate.peakMemory()) + " of the " +
            printBytes(input.cluster.device.usableBytes()) + " that it has.",
        speakOfNext(input.result)})
    text += (sentence.empty() ? "" : " ") + sentence;
  return text;
}

std::span<const std::pair<const char *, const char *>> planner::getLegend() {
  static constexpr std::pair<const char *, const char *> words[] = {
      {"pp, dp, ep, cp, tp",
       "sizes of pipeline, data, expert, context and tensor parallelism; their "
       "product is the number of ranks"},
      {"rank", "a GPU, or a processor's share of a run without GPUs"},
      {"sp", "sequence parallelism: ranks of tp also divide what is outside of "
             "attention and MLP"},
      {"ZeRO 1, 2, 3", "replicas share the optimizer state; gradients as well; "
                       "parameters as well, as FSDP does"},
      {"micro-batch", "sequences that a replica computes at a time; their "
                      "gradients are accumulated over a step"},
      {"recompute",
       "activation checkpointing: none, selective, or full layers"},
      {"offload", "CPU offload, to the memory of the host"},
      {"chunks", "virtual stages of a pipeline rank"},
      {"MFU", "the part of the device's peak that the model's arithmetic uses, "
              "attention counted without its causal half left out"},
      {"bubble", "time in which a pipeline rank waits for others"},
      {"slowest replica", "waiting for the replica that happens to be the "
                          "slowest in a step"},
      {"launches", "host time between kernels that the device waits for"},
      {"band", "where 8 of 10 runs like it are, by runs that were published: "
               "wider where few were, or none of a part of it"},
      {"workspace", "memory of a pass that is free again after it"},
      {"communicators", "what they take beyond what the device reserves"},
      {"on each", "tokens a second of each rank"},
      {"unmeasured", "nobody has published a run that shows how good the "
                     "prediction is"}};
  return words;
}

//===----------------------------------------------------------------------===//
// Several cases
//===----------------------------------------------------------------------===//

std::string planner::getLabel(const Compared &one) {
  return one.label.empty() ? one.cluster : one.label;
}

namespace {

/// A case for which there is an answer.
struct Answered {
  const Compared *compared;
  double tokensPerSecond, devices;
  std::optional<Projection> projection;

  explicit Answered(const Compared &one)
      : compared(&one),
        tokensPerSecond(one.report->result.estimate.tokensPerSecond),
        devices(double(one.report->result.configuration.ranks())) {
    const ReportInput &input = *one.report;
    if (input.goal)
      projection =
          project(*input.goal, input.result, input.cluster, input.training);
  }
};

} // namespace

/// Names the case with the fewest devices among those that are done in time.
static std::string describeSoonEnough(const std::vector<Answered> &answers,
                                      double days) {
  std::string limit = printDuration(86400 * days);
  const Answered *fewest = nullptr;
  for (const Answered &one : answers)
    if (one.projection && one.projection->days() <= days &&
        (!fewest || one.devices < fewest->devices))
      fewest = &one;
  if (!fewest)
    return "None is done within " + limit + ".";
  return "The fewest devices that are done within " + limit + ": " +
         getLabel(*fewest->compared) + ", with " + printCount(fewest->devices) +
         " in " + printDuration(fewest->projection->seconds) + ".";
}

std::vector<std::string>
planner::describeBest(const std::vector<Compared> &compared) {
  std::vector<Answered> answers;
  std::string without;
  for (const Compared &one : compared)
    if (one.report)
      answers.emplace_back(one);
    else
      without += (without.empty() ? "" : "; ") + getLabel(one);
  std::vector<std::string> sentences;
  if (answers.size() > 1) {
    auto fastest =
        std::ranges::max_element(answers, {}, &Answered::tokensPerSecond);
    sentences.push_back(
        "The most tokens a second: " + getLabel(*fastest->compared) + ", " +
        printCount(fastest->tokensPerSecond) + ".");
    bool isPriced = std::ranges::all_of(answers, [](const Answered &one) {
      return one.projection && one.projection->money;
    });
    if (isPriced) {
      auto cheapest =
          std::ranges::min_element(answers, {}, [](const Answered &one) {
            return *one.projection->money;
          });
      sentences.push_back("The cheapest: " + getLabel(*cheapest->compared) +
                          ", " +
                          printMoney(*cheapest->projection->money,
                                     *cheapest->compared->report->goal) +
                          ".");
    }
  }
  if (!answers.empty())
    if (const auto &goal = answers.front().compared->report->goal;
        goal && goal->days)
      sentences.push_back(describeSoonEnough(answers, *goal->days));
  // Cases come in the order in which they were asked for.
  bool isSwept = !compared.empty() && !compared.front().label.empty();
  if (!without.empty() && !answers.empty() && isSwept)
    sentences.push_back("The last that there is a plan for: " +
                        getLabel(*answers.back().compared) +
                        "; there is none for " + without + ".");
  else if (!without.empty())
    sentences.push_back("There is no plan for " + without + ".");
  return sentences;
}
