//===- ShowCommand.cpp - plait-plan show ----------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Prints a plan from the top down: what it trains and how, then each program
// with its functions, memory and traffic, then the schedule as a chart.
// Counting is PlanSummary.cpp's. Lines are for people; programs read the plan
// itself.
//
//===----------------------------------------------------------------------===//

#include "ChartOutput.h"
#include "Commands.h"
#include "PlanSummary.h"
#include "TextOutput.h"
#include "plait/Configuration/Mixing.h"
#include "plait/Plan/Communicators.h"
#include "plait/Plan/CompileSettings.h"
#include "plait/Plan/Container.h"
#include "plait/Plan/Defaults.h"
#include "plait/Plan/FloatInputs.h"
#include "plait/Plan/Ranks.h"
#include "plait/Plan/Sites.h"
#include "plait/Support/MemoryPlaces.h"
#include "plait/Support/Quantities.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <iostream>
#include <map>
#include <memory>

using namespace plait;
using tool::format;
using tool::formatBytes;
using tool::toWord;
namespace fb = plait::plan::fb;

/// Shows what updates parameters, and what it keeps of them: of matrices
/// perhaps something else than of others.
static void showOptimizer(const fb::Plan &plan) {
  if (!plan.optimizer())
    return;
  std::vector<std::string> kept;
  for (const fb::Program *program : *plan.programs())
    for (const fb::Shard *shard : *program->shards())
      for (uint32_t i = 0; i < plan::length(shard->state()); ++i) {
        std::string name = shard->state()->Get(i)->name()->str();
        if (std::find(kept.begin(), kept.end(), name) == kept.end())
          kept.push_back(std::move(name));
      }
  std::cout << "optimizer " << plan.optimizer()->str();
  for (size_t i = 0; i < kept.size(); ++i)
    std::cout << (i == 0                 ? ", keeps "
                  : i + 1 == kept.size() ? " and "
                                         : ", ")
              << kept[i];
  std::cout << "\n";
}

/// Shows the groups of parameters that have a learning rate or an optimizer of
/// their own.
static void showGroups(const fb::Plan &plan) {
  using Names = std::vector<std::string>;
  std::map<double, Names> rates;
  std::map<std::string, Names> optimizers;
  for (const fb::Parameter *parameter : *plan.parameters()) {
    std::string name = parameter->name()->str();
    if (parameter->rate() != 1)
      rates[parameter->rate()].push_back(name);
    if (parameter->optimizer())
      optimizers[parameter->optimizer()->str()].push_back(name);
  }
  auto show = [](const Names &names) {
    constexpr size_t most = 3;
    for (size_t i = 0; i < std::min(most, names.size()); ++i)
      std::cout << (i ? ", " : "") << names[i];
    if (names.size() > most)
      std::cout << " and " << names.size() - most << " more";
    std::cout << "\n";
  };
  for (const auto &[optimizer, names] : optimizers) {
    std::cout << "group     " << optimizer << " for ";
    show(names);
  }
  for (const auto &[rate, names] : rates) {
    std::cout << "rate      " << rate << " times lr for ";
    show(names);
  }
}

/// Shows what a row of data has behind its tokens.
static void showFloats(const fb::Plan &plan) {
  if (!plan::length(plan.float_inputs()))
    return;
  std::cout << "floats   ";
  for (const fb::FloatInput *input : *plan.float_inputs()) {
    std::cout << " " << input->name()->str() << " [";
    std::string text =
        input->of_positions() ? std::to_string(plan.sequence()) : "";
    for (uint32_t i = 0; i < plan::length(input->shape()); ++i)
      text +=
          (text.empty() ? "" : ", ") + std::to_string(input->shape()->Get(i));
    std::cout << text << "]";
  }
  std::cout << ", rows of " << 4 * plan::countRowWords(plan) << " bytes\n";
}

/// Counts what is kept like a parameter, but is none of the model.
static size_t countUnsaved(const fb::Plan &plan) {
  return std::count_if(
      plan.parameters()->begin(), plan.parameters()->end(),
      [](const fb::Parameter *parameter) { return parameter->unsaved(); });
}

/// Shows what is trained, and on what.
static void showModel(const fb::Plan &plan) {
  std::string name = flatbuffers::GetString(plan.model_name());
  std::cout << "model     " << plan.model_type()->str()
            << (name.empty() ? "" : " '" + name + "'") << ", vocabulary "
            << plan.vocab_size() << ", sequence " << plan.sequence() << ", "
            << countOf(plan.parameters()->size() - countUnsaved(plan),
                       "parameter");
  // A frozen parameter is read and saved, and has neither gradient nor state.
  size_t frozen =
      std::count_if(plan.parameters()->begin(), plan.parameters()->end(),
                    [](const fb::Parameter *parameter) {
                      return parameter->frozen() && !parameter->unsaved();
                    });
  std::cout << (frozen ? ", " + std::to_string(frozen) + " of them frozen" : "")
            << "\n";
  showFloats(plan);
  std::cout << "mesh     ";
  for (const fb::MeshAxis *axis : *plan.mesh())
    std::cout << " " << axis->name()->str() << "=" << axis->size();
  std::cout << ", " << countOf(plan::RankGrid(plan).ranks(), "rank") << "\n";
  // The hardware that the plan was made for; without one nobody has said.
  if (const fb::Cluster *cluster = plan.cluster())
    std::cout << "cluster   " << cluster->name()->str() << ", "
              << cluster->nodes() << " x " << cluster->devices_per_node() << " "
              << cluster->device()->str()
              << format(" of %.1f GB", double(cluster->memory_bytes()) / 1e9)
              << "\n";
}

/// Shows what sites average by, and how fast it brings them together.
static void showMixing(const fb::Plan &plan) {
  Outer outer = plan::outerOf(plan);
  if (!outer.is(Agreement::Gossip))
    return;
  Result<std::vector<Matrix>> period =
      makeMixings("the plan", outer.getGraph(), outer.sites);
  if (!period.ok())
    return; // it is checked elsewhere
  size_t most = 0;
  for (const fb::Mixing *mixing : *plan.outer()->mixings())
    most = std::max<size_t>(most, plan::length(mixing->exchanges()));
  std::cout << "mixing    doubly stochastic, at most "
            << countOf(uint64_t(most), "message") << " of a site at once, ";
  if (period->size() > 1)
    std::cout << "rho of " << period->size() << " agreements together ";
  else
    std::cout << "rho ";
  std::cout << format("%.4f\n", getContraction(*period, outer.sites));
}

/// Shows what ranks of ep exchange around experts.
static void showExperts(const fb::Plan &plan) {
  for (const fb::MeshAxis *axis : *plan.mesh())
    if (axis->name()->str() == getFacts(Axis::EP).name && axis->size() > 1)
      std::cout << ", expert-exchange "
                << (plan::exchangesRows(plan) ? "rows" : "tokens");
}

/// Shows what a step is, and how it is spread.
static void showStep(const fb::Plan &plan) {
  std::cout << "batch     " << countOf(plan.global_batch(), "sequence")
            << ", in " << countOf(plan.microbatches(), "microbatch", "es")
            << " of " << plan.micro_batch() << " per data-parallel rank\n";
  // What utilisation (MFU) is computed from; it does not count what is
  // recomputed.
  if (plan.model_flops() > 0)
    std::cout << "work      "
              << format("%.4g FLOP of the model in a step\n",
                        plan.model_flops());
  std::cout << "schedule  " << plan.schedule()->str() << ", recompute "
            << plan.recompute()->str();
  if (plan.zero())
    std::cout << ", zero " << int(plan.zero());
  if (plan.context_parallel())
    std::cout << ", context-parallel " << plan.context_parallel()->str();
  showExperts(plan);
  if (plan.offload())
    std::cout << ", offload " << plan.offload()->str();
  std::cout << "\n";
  std::cout << "precision " << plan::precisionOf(plan);
  if (plan::reducePrecisionOf(plan) != "fp32")
    std::cout << ", gradients summed in " << plan::reducePrecisionOf(plan);
  if (plan.compress())
    std::cout << ", gradients sent as " << plan.compress()->str();
  if (plan.deterministic())
    std::cout << ", the same bits in every run";
  std::cout << "\n";
  std::cout << "options  ";
  for (const auto &[name, value] : plan::unusualSettingsOf(plan))
    std::cout << " --" << name << " " << value;
  std::cout << "\n";
  showOptimizer(plan);
  showGroups(plan);
  if (plan.outer())
    std::cout << "outer     " << plan::describeOuter(plan) << ", "
              << countOf(plan::RankGrid(plan).sites(), "site")
              << " with weights of their own\n";
  if (plan.outer())
    showMixing(plan);
}

/// One object a target: x86 for processors, PTX or cubins for GPUs.
static void showCode(const fb::Plan &plan) {
  for (uint32_t i = 0; i < plan::length(plan.code()); ++i) {
    const fb::CodeObject &code = *plan.code()->Get(i);
    std::cout << "code      " << code.target()->str();
    if (code.cpu() && code.cpu()->size())
      std::cout << " for " << code.cpu()->str();
    std::cout << ", " << code.data()->size() << " bytes\n";
  }
}

/// Shows what holds for all programs.
static void showHeader(const fb::Plan &plan) {
  showModel(plan);
  showStep(plan);
  showCode(plan);
  std::cout << "proof     " << plan::describeProof(plan) << "\n";
  if (const fb::Certificate *certificate = plan.certificate())
    std::cout << "          of plan " << std::hex << certificate->plan()
              << std::dec << "\n";
  if (plan.certificate() && plan.certificate()->kernels())
    std::cout << "kernels   " << plan.certificate()->kernels()->str() << "\n";
  std::cout << "reference " << (plan.reference() ? "included" : "none") << "\n";
}

/// The workspace is memory of the time of a call, bound by each action. What
/// sites do with each range is a function of its own: those of a list are told
/// together.
static void showFunctions(const fb::Program &program) {
  uint32_t count = plan::length(program.functions());
  for (uint32_t i = 0; i < count;) {
    const fb::Function &function = *program.functions()->Get(i);
    std::string name = function.name()->str();
    uint32_t steps = 0, calls = 0;
    for (; i < count && program.functions()->Get(i)->name()->str() == name;
         ++i, ++calls)
      steps += plan::length(program.functions()->Get(i)->steps());
    std::string title = name + ", " + countOf(steps, "step") + ", workspace";
    std::cout << format("    %-36s", title.c_str())
              << formatBytes(function.workspace_bytes());
    std::cout << (calls > 1 ? ", in " + std::to_string(calls) + " functions\n"
                            : "\n");
  }
}

/// The categories may peak at different steps: they need not add up to the
/// arena.
static void showMemory(const tool::ProgramSummary &summary,
                       const fb::Program &program, uint64_t reserve) {
  uint64_t arenaBytes = program.arena_bytes();
  std::cout << "  memory of a rank, each category at its own peak\n";
  for (auto [category, bytes] : summary.peakBytes)
    std::cout << format("    %-36s",
                        toWord(fb::EnumNameCategory(category)).c_str())
              << formatBytes(bytes) << "\n";
  std::cout << format("    %-36s", "arena") << formatBytes(arenaBytes) << "\n";
  for (const MemoryPlaceFacts &facts : otherPlaces)
    if (uint64_t bytes = getPlaceBytes(program, facts.place))
      std::cout << format("    offloaded to %-23s", facts.words.data())
                << formatBytes(bytes) << "\n";
  if (!reserve)
    return;
  std::cout << format("    %-36s", "reserved for context and libraries")
            << formatBytes(reserve) << "\n";
  // Ranks that share a GPU share its context, not their arenas.
  std::cout << format("    %-36s", "of a GPU with one rank")
            << formatBytes(arenaBytes + reserve) << "\n";
}

/// "sites, every 4 steps", "sites, step 2 of every 6".
static std::string describe(const fb::ActionList &list) {
  std::string every = std::to_string(list.every()), text = "sites, ";
  if (list.phase())
    text += "step " + std::to_string(list.phase()) + " of every " + every;
  else
    text += list.every() == 1 ? "when they agree" : "every " + every + " steps";
  if (list.except())
    text += ", not every " + std::to_string(list.except());
  return text;
}

/// Counts as if each collective ran as a ring: what libraries do is not known
/// here.
static void showTraffic(const fb::Plan &plan,
                        const tool::ProgramSummary &summary) {
  std::cout << "  sent by a rank in a training step, collectives as rings\n";
  for (uint32_t axis = 0; axis < summary.sentBytes.size(); ++axis)
    std::cout << format("    %-36s", plan.mesh()->Get(axis)->name()->c_str())
              << formatBytes(summary.sentBytes[axis]) << "\n";
  if (!plan.outer())
    return;
  // Of sites, the axis has what they send in each step.
  double mean = double(summary.sentBytes[plan::RankGrid(plan).sitesAxis()]);
  for (uint32_t i = 0; i < summary.agreedBytes.size(); ++i) {
    const fb::ActionList &list = *plan.lists()->Get(i);
    if (!summary.agreedBytes[i])
      continue;
    std::cout << format("    %-36s", describe(list).c_str())
              << formatBytes(summary.agreedBytes[i]) << "\n";
    mean += plan::runsPerStep(list) * double(summary.agreedBytes[i]);
  }
  std::cout << format("    %-36s", "sites, in a step on average")
            << formatBytes(uint64_t(mean)) << "\n";
}

/// A program is that of a pipeline stage. The pipeline is the first axis of the
/// mesh, so the ranks of a program are consecutive in each site. Where all
/// ranks are alike, as without a pipeline, there is one program.
static void showProgram(const fb::Plan &plan, uint32_t index) {
  const fb::Program &program = *plan.programs()->Get(index);
  // Those that differ along the other axes.
  plan::RankGrid mesh(plan);
  uint32_t ranks = mesh.programRanks() / mesh.sites();
  tool::ProgramSummary summary = tool::summarise(plan, program);
  uint32_t first = index * ranks, last = first + ranks - 1;
  std::cout << "\nprogram " << index << ", "
            << (first == last ? "rank " : "ranks ") << first;
  if (first != last)
    std::cout << " to " << last;
  if (mesh.sites() > 1)
    std::cout << " of each site";
  std::cout << ", " << countOf(summary.weights, "weight") << ", "
            << countOf(summary.inFlight, "microbatch", "es") << " in flight\n";
  std::cout << "  functions\n";
  showFunctions(program);
  showMemory(summary, program, plan.device_reserve());
  // Times its calls, that is: a step of a forward function counts once a
  // microbatch.
  std::cout << "  steps executed in a training step:";
  for (auto [kind, count] : summary.steps)
    std::cout << " " << count << " " << toWord(fb::EnumNameStepKind(kind));
  std::cout << "\n";
  // Nothing is printed of what a plan does not have.
  if (!summary.epilogues.empty())
    std::cout << "  of the gemm steps, with an epilogue:";
  for (auto [kind, count] : summary.epilogues)
    std::cout << " " << count << " " << toWord(fb::EnumNameEpilogue(kind));
  std::cout << (summary.epilogues.empty() ? "" : "\n");
  // What memory bounds, beside GEMMs.
  std::cout << format("    %-36s", "kernels read and write")
            << formatBytes(summary.kernelBytes) << "\n";
  // GEMMs of rows at less than 16 bytes are slower on GPUs: their share is
  // shown.
  for (auto [bytes, flops] : summary.gemmFlops) {
    std::string title = "gemm with rows at multiples of " +
                        std::to_string(bytes) + (bytes > 9 ? "" : " ");
    std::cout << format("    %-36s%12.3f TFLOP\n", title.c_str(), flops / 1e12);
  }
  showTraffic(plan, summary);
}

/// A schedule that cannot be simulated is said, and is no failure. Drawn from
/// the actions, so that a schedule from a file is shown as it is.
static void showSchedule(const fb::Plan &plan, const tool::ChartFlags &flags) {
  schedule::Schedule schedule = tool::getSchedule(plan);
  // A plan holds no predicted times: a backward counts two forwards. Only what
  // is wrong with a schedule fails: a rank that waits for ever.
  auto timeline = schedule::simulate(schedule, schedule::Costs{});
  std::cout << "\nschedule, a backward drawn as long as two forwards\n";
  if (timeline.ok())
    std::cout << schedule::drawChart(schedule, *timeline,
                                     tool::getChartOptions(flags));
  else
    std::cout << "not drawn: " << timeline.status().message() << "\n";
}

/// Opening the file checks it: what is shown is a sound plan.
tool::Command tool::addShowCommand(CLI::App &app) {
  struct Options {
    std::string path;
    ChartFlags chart;
  };
  CLI::App *command =
      app.add_subcommand("show", "Print what a plan file holds");
  auto options = std::make_shared<Options>();
  command->add_option("plan", options->path, "The .plan file")->required();
  addChartFlags(*command, options->chart);
  return {command, [options]() -> Status {
            auto file = plan::PlanFile::open(options->path);
            if (!file.ok())
              return file.status();
            const fb::Plan &plan = file->plan();
            showHeader(plan);
            for (uint32_t i = 0; i < plan.programs()->size(); ++i)
              showProgram(plan, i);
            showSchedule(plan, options->chart);
            return Status::success();
          }};
}
