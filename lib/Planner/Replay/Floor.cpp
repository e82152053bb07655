//===- Floor.cpp - What a step of a plan could take at best ---------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Each step of each function once, counted as often as the program calls it.
// Names of steps are those of the model; numbers in them, as of layers, are one
// entry, so that the list is as long as a layer and not as the model.
//
//===----------------------------------------------------------------------===//

#include "plait/Planner/Floor.h"

#include "plait/Plan/Check.h"
#include "plait/Plan/Communicators.h"
#include "plait/Plan/Defaults.h"
#include "plait/Plan/Uses.h"
#include "plait/Planner/Cost.h"

#include <algorithm>
#include <cctype>
#include <map>

using namespace plait;
using namespace plait::planner;
using plan::length;
namespace fb = plait::plan::fb;

namespace {

/// One step of a program, and how often a training step runs it.
struct Called {
  const fb::Function *function;
  uint32_t place; // among the function's steps
  const fb::Step *step;
  double calls, seconds; // of one call
};

/// Calls `visit` for each step that costs something, in order.
template <typename Visit>
void visitSteps(const fb::Plan &plan, uint32_t index,
                const plan::ReplayCosts &costs, Visit visit) {
  const fb::Program &program = *plan.programs()->Get(index);
  std::vector<double> calls(length(program.functions()));
  for (uint32_t i = 0; i < length(program.actions()); ++i)
    if (int32_t function = program.actions()->Get(i)->function(); function >= 0)
      ++calls[size_t(function)];
  for (uint32_t i = 0; i < calls.size(); ++i) {
    const fb::Function &function = *program.functions()->Get(i);
    for (uint32_t j = 0; calls[i] > 0 && j < length(function.steps()); ++j)
      visit(Called{&function, j, function.steps()->Get(j), calls[i],
                   costs.steps[index][i][j]});
  }
}

} // namespace

/// "h.3.mlp" is "h.*.mlp"; numbers within words stay.
static std::string foldNumbers(const std::string &text) {
  std::string folded;
  for (size_t i = 0; i < text.size(); ++i) {
    bool begins = i == 0 || text[i - 1] == '.' || text[i - 1] == ' ';
    size_t end = i;
    while (begins && end < text.size() && std::isdigit(text[end]))
      ++end;
    bool isNumber =
        end > i && (end == text.size() || text[end] == '.' || text[end] == ' ');
    folded += isNumber ? '*' : text[i];
    if (isNumber)
      i = end - 1;
  }
  return folded;
}

static std::string nameStep(const fb::Plan &plan, const fb::Step &step) {
  uint32_t location = step.location();
  return location < length(plan.locations())
             ? foldNumbers(plan.locations()->Get(location)->str())
             : std::string(fb::EnumNameStepKind(step.step_type()));
}

//===----------------------------------------------------------------------===//
// The floor
//===----------------------------------------------------------------------===//

/// The bytes of all operands, each once; what is not known to end counts
/// nothing.
static double countBytes(const plan::RankGrid &mesh, const fb::Step &step) {
  double bytes = 0;
  for (const plan::Use &use : plan::usesOf(mesh, step))
    if (use.count && !use.toEnd)
      bytes += double(*use.count * use.unit);
  return bytes;
}

static double countFlops(const fb::GemmStep &step) {
  double flops = 2.0 * double(step.m()) * double(step.n()) * double(step.k());
  for (uint32_t i = 0; i < length(step.batch()); ++i)
    flops *= double(step.batch()->Get(i));
  return flops;
}

static FloorPart getPart(const fb::Step &step) {
  if (step.step_as_GemmStep() || step.step_as_GroupedGemmStep())
    return FloorPart::Matmuls;
  if (step.step_as_AttentionStep())
    return FloorPart::Attention;
  if (step.step_as_CollectiveStep() || plan::asPlaceCopy(step))
    return FloorPart::Communication;
  return FloorPart::Bytes;
}

/// Takes what a library or wires do as it is. No floor is above what the
/// model predicts: it knows of caches.
static double getFloor(const Called &called, const plan::RankGrid &mesh,
                       const Device &device) {
  double launched = std::max(0.0, called.seconds - device.launchSeconds);
  double bytes = countBytes(mesh, *called.step) / getMemoryRate(device);
  if (const auto *gemm = called.step->step_as_GemmStep()) {
    Precision precision =
        gemm->dtype() == fb::DType::BF16 ? Precision::BF16 : Precision::FP32;
    double arithmetic = countFlops(*gemm) / getGemmRate(device, precision);
    return std::min(called.seconds, std::max(arithmetic, bytes));
  }
  return getPart(*called.step) == FloorPart::Bytes ? std::min(launched, bytes)
                                                   : launched;
}

FloorEntry StepFloor::getSum(std::optional<FloorPart> part) const {
  FloorEntry sum;
  for (const FloorEntry &entry : entries) {
    if (part && entry.part != *part)
      continue;
    sum.calls += entry.calls;
    sum.seconds += entry.seconds;
    sum.floor += entry.floor;
    sum.launches += entry.launches;
  }
  return sum;
}

StepFloor planner::findFloor(const fb::Plan &plan, uint32_t index,
                             const plan::ReplayCosts &costs,
                             const Cluster &cluster) {
  plan::RankGrid mesh(plan);
  std::map<std::pair<FloorPart, std::string>, FloorEntry> entries;
  visitSteps(plan, index, costs, [&](const Called &called) {
    FloorPart part = getPart(*called.step);
    std::string name = nameStep(plan, *called.step);
    FloorEntry &entry = entries[{part, name}];
    double floor = getFloor(called, mesh, cluster.device);
    entry.part = part;
    entry.name = name;
    entry.calls += called.calls;
    entry.seconds += called.calls * called.seconds;
    entry.floor += called.calls * floor;
    entry.launches += called.calls * std::min(cluster.device.launchSeconds,
                                              called.seconds - floor);
  });
  StepFloor floor;
  for (auto &[key, entry] : entries)
    floor.entries.push_back(std::move(entry));
  std::stable_sort(floor.entries.begin(), floor.entries.end(),
                   [](const FloorEntry &a, const FloorEntry &b) {
                     return a.getExcess() > b.getExcess();
                   });
  return floor;
}

//===----------------------------------------------------------------------===//
// The lint
//===----------------------------------------------------------------------===//

namespace {

/// Looks for signs in one program, and adds those of layers up.
class Linter {
public:
  Linter(const fb::Plan &plan, const Cluster &cluster)
      : plan(plan), device(cluster.device), mesh(plan),
        units(device.isProcessor ? 0 : device.multiprocessors) {}

  void visit(const Called &called);
  void countNodes(double nodes);
  std::vector<LintFinding> take();

private:
  void visitGemm(const Called &called, const fb::GemmStep &step);
  void visitKernel(const Called &called, const fb::KernelStep &step);
  void visitCollective(const Called &called, const fb::CollectiveStep &step);
  void findWrittenOnce(const Called &called);
  void add(const Called &called, const char *rule, std::string text,
           double seconds);

  const fb::Plan &plan;
  const Device &device;
  plan::RankGrid mesh;
  double units; // multiprocessors; 0: a processor has none
  std::map<std::pair<std::string, std::string>, LintFinding> findings;
};

} // namespace

void Linter::add(const Called &called, const char *rule, std::string text,
                 double seconds) {
  std::string where = nameStep(plan, *called.step);
  LintFinding &finding = findings[{rule, where}];
  if (finding.rule.empty())
    finding = {rule, where, std::move(text)};
  finding.seconds += called.calls * seconds;
}

/// Tiles of the largest kind that the device's library has: smaller ones fill
/// more units and are slower each.
void Linter::visitGemm(const Called &called, const fb::GemmStep &step) {
  double best = 0, tiles = 0;
  for (const Tile &tile : device.matrix.tiles) {
    if (double(tile.m) * tile.n <= best)
      continue;
    best = double(tile.m) * tile.n;
    auto count = [](int64_t extent, int of) {
      return double((extent + of - 1) / of);
    };
    tiles = std::min(count(step.m(), tile.m) * count(step.n(), tile.n),
                     count(step.m(), tile.n) * count(step.n(), tile.m));
  }
  for (uint32_t i = 0; i < length(step.batch()); ++i)
    tiles *= double(step.batch()->Get(i));
  if (tiles == 0 || tiles >= units)
    return;
  double floor = getFloor(called, mesh, device);
  add(called, "below-a-wave",
      std::to_string(step.m()) + " x " + std::to_string(step.n()) + " x " +
          std::to_string(step.k()) + ": " + std::to_string(int64_t(tiles)) +
          " tiles for " + std::to_string(int64_t(units)) + " multiprocessors",
      called.seconds - floor);
}

/// A scratch tensor's bytes that the next reader, a kernel, alone takes could
/// have stayed in registers. The workspace is the function's last slot.
void Linter::findWrittenOnce(const Called &called) {
  int32_t workspace = int32_t(length(called.function->slots())) - 1;
  for (const plan::Use &use : plan::usesOf(mesh, *called.step)) {
    if (!use.writes || use.toEnd || !use.count || use.ref->slot() != workspace)
      continue;
    uint64_t begin = use.ref->offset(), end = begin + *use.count * use.unit;
    int kernels = 0, others = 0;
    bool isLive = true;
    for (uint32_t i = called.place + 1;
         isLive && i < length(called.function->steps()); ++i) {
      const fb::Step &later = *called.function->steps()->Get(i);
      for (const plan::Use &own : plan::usesOf(mesh, later)) {
        if (own.ref->slot() != workspace || own.ref->offset() >= end ||
            own.end(called.function->workspace_bytes()) <= begin)
          continue;
        if (!own.writes)
          ++(later.step_as_KernelStep() ? kernels : others);
        isLive &= !own.writes;
      }
    }
    double seconds = 2 * double(end - begin) / getMemoryRate(device);
    if (kernels == 1 && others == 0 && seconds > device.launchSeconds)
      add(called, "written-once",
          std::to_string(end - begin) +
              " bytes that one other kernel reads, and nothing else",
          seconds);
  }
}

void Linter::visitKernel(const Called &called, const fb::KernelStep &step) {
  const fb::Kernel &kernel = *plan.kernels()->Get(step.kernel());
  double seconds = std::max(0.0, called.seconds - device.launchSeconds);
  if (kernel.indices_per_block() > 0) {
    double blocks = double((step.extent() + kernel.indices_per_block() - 1) /
                           kernel.indices_per_block());
    // Where there is little to do few blocks do it in no time.
    if (blocks < units && seconds > device.launchSeconds)
      add(called, "few-blocks",
          std::to_string(int64_t(blocks)) + " blocks for " +
              std::to_string(int64_t(units)) + " multiprocessors",
          seconds * (1 - blocks / units));
  }
  double bytes = countBytes(mesh, *called.step);
  double most = 1.2 * bytes, moved = double(step.traffic());
  if (bytes > 0 && moved > most && seconds > device.launchSeconds)
    add(called, "traffic",
        std::to_string(step.traffic()) + " bytes of operands of " +
            std::to_string(uint64_t(bytes)),
        (moved - bytes) / getMemoryRate(device));
  findWrittenOnce(called);
}

/// The arena is in a window of the group's, and so are all operands of
/// collectives, as plans are checked for; what is packed is not. It is copied
/// there and back.
void Linter::visitCollective(const Called &called,
                             const fb::CollectiveStep &step) {
  uint64_t bytes =
      plan::packedBytesOf(step, plan::membersOf(mesh, step).size());
  if (units > 0 && bytes > 0)
    add(called, "packed",
        std::to_string(bytes) + " bytes in " + std::to_string(step.outer()) +
            " rows, which are packed where no window is",
        2 * double(bytes) / getMemoryRate(device));
}

void Linter::visit(const Called &called) {
  if (const auto *collective = called.step->step_as_CollectiveStep())
    visitCollective(called, *collective);
  if (const auto *gemm = called.step->step_as_GemmStep())
    visitGemm(called, *gemm);
  if (const auto *kernel = called.step->step_as_KernelStep())
    visitKernel(called, *kernel);
}

void Linter::countNodes(double nodes) {
  constexpr double most = 50000;
  if (units > 0 && nodes > most)
    findings[{"many-nodes", "step"}] = {"many-nodes", "step",
                                        std::to_string(int64_t(nodes)) +
                                            " operations are recorded"};
}

std::vector<LintFinding> Linter::take() {
  std::vector<LintFinding> sorted;
  for (auto &[key, finding] : findings)
    sorted.push_back(std::move(finding));
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const LintFinding &a, const LintFinding &b) {
                     return a.seconds > b.seconds;
                   });
  return sorted;
}

std::vector<LintFinding> planner::lintPlan(const fb::Plan &plan, uint32_t index,
                                           const plan::ReplayCosts &costs,
                                           const Cluster &cluster) {
  Linter linter(plan, cluster);
  double nodes = 0;
  visitSteps(plan, index, costs, [&](const Called &called) {
    nodes += called.calls;
    linter.visit(called);
  });
  linter.countNodes(nodes);
  return linter.take();
}
