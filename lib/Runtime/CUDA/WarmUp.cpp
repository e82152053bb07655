//===- WarmUp.cpp - The first call of every library step ------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// cuBLASLt and cuDNN load a kernel in its first call, for which the driver may
// wait until the GPU is idle. Where a kernel of NCCL's waits there for another
// rank, which waits likewise, it never is. So all of them are called once
// before there are communicators. The GPU being idle, and nothing in the arena,
// this is also when GEMMs and attention are timed. The arena is zero; so it is
// afterwards.
//
// Ranks that run one program compute the same GEMMs, and some of them the same
// numbers. The first of them measures, while the others wait; all take what it
// has found. Different programs have nothing that must be equal, but where they
// have a GEMM in common, it takes what the program of the lowest rank takes.
//
//===----------------------------------------------------------------------===//

#include "WarmUp.h"

#include "AttentionTimer.h"
#include "Core/Operands.h"
#include "CudaDevice.h"
#include "GemmTimer.h"
#include "plait/Plan/Defaults.h"
#include "plait/Plan/Messages.h"
#include "plait/Plan/Ranks.h"
#include "plait/Runtime/Rendezvous.h"

#include <algorithm>
#include <map>
#include <optional>
#include <thread>

using namespace plait;
using namespace plait::runtime;

namespace {

/// Walks the calls of a program for what libraries compute.
class LibrarySteps {
public:
  LibrarySteps(const fb::Plan &plan, const fb::Program &program,
               CudaDevice &device, uint32_t rank)
      : program(program), device(device), rank(rank), mesh(plan) {}

  /// Prepares all actions of the rank's program, in order; what several of them
  /// share is called once. Transfers have no steps to be called. Nothing is
  /// called before it is known what computes it.
  Status prepare() {
    for (uint32_t i = 0; i < plan::length(program.actions()); ++i) {
      const fb::Action &action = *program.actions()->Get(i);
      if (plan::isTransfer(action))
        continue;
      const fb::Function &function =
          *program.functions()->Get(action.function());
      for (uint32_t j = 0; j < plan::length(function.steps()); ++j)
        PLAIT_RETURN_IF_ERROR(visit(action, *function.steps()->Get(j)));
    }
    return Status::success();
  }
  std::vector<GemmUse> gemmUses() const {
    std::vector<GemmUse> uses;
    for (const auto &[number, use] : gemms)
      uses.push_back(use);
    return uses;
  }
  std::vector<AttentionUse> attentionUses() const {
    std::vector<AttentionUse> uses;
    for (const auto &[number, use] : attentions)
      uses.push_back(use);
    return uses;
  }

private:
  /// Preparing is idempotent: equal steps have one number, and the executor
  /// gets the same one later. That number decides whether it has been called.
  Status visit(const fb::Action &action, const fb::Step &step) {
    // The addresses are those of the plan, so that alignment is what it will
    // be.
    auto place = [&](const fb::Ref &ref) {
      return RankMemory(device).at(action, ref);
    };
    if (const auto *gemm = step.step_as_GemmStep()) {
      auto number = device.prepareGemm(*gemm);
      if (!number.ok())
        return number.status();
      GemmUse &use =
          gemms.try_emplace(*number, GemmUse{*number, operandsOf(*gemm, place)})
              .first->second;
      use.adds |= gemm->accumulate() != fb::Accumulate::Overwrite;
      ++use.calls;
    }
    // Loading its kernels is all that may have to wait.
    if (const auto *grouped = step.step_as_GroupedGemmStep())
      return device
          .prepareGroupedGemm(
              *grouped, plan::valueOf(mesh, rank, grouped->first_expert()))
          .status();
    if (const auto *attention = step.step_as_AttentionStep()) {
      auto number = device.prepareAttention(
          *attention, {plan::valueOf(mesh, rank, attention->first_query())});
      if (!number.ok())
        return number.status();
      auto [use, isNew] = attentions.try_emplace(
          *number, AttentionUse{*number, operandsOf(*attention, place)});
      ++use->second.calls;
    }
    return Status::success();
  }

  const fb::Program &program;
  CudaDevice &device;
  uint32_t rank;
  plan::RankGrid mesh;
  std::map<uint32_t, GemmUse> gemms;
  std::map<uint32_t, AttentionUse> attentions;
};

} // namespace

/// Whether `holds` of an attention step of some program.
template <typename Predicate>
static bool anyAttention(const fb::Plan &plan, Predicate holds) {
  for (const fb::Program *program : *plan.programs())
    for (uint32_t f = 0; f < plan::length(program->functions()); ++f) {
      const auto *steps = program->functions()->Get(f)->steps();
      for (uint32_t i = 0; i < plan::length(steps); ++i)
        if (const auto *attention = steps->Get(i)->step_as_AttentionStep();
            attention && holds(*attention))
          return true;
    }
  return false;
}

bool runtime::isDeterministic(const fb::Plan &plan) {
  return plan.deterministic() ||
         anyAttention(plan, [](const fb::AttentionStep &step) {
           return step.deterministic();
         });
}

bool runtime::measuresForOthers(const plan::RankGrid &mesh, uint32_t rank) {
  return !rank || mesh.index(rank - 1, 0) != mesh.index(rank, 0);
}

Status CudaDevice::prepareLibraries(uint32_t rank) {
  PLAIT_RETURN_IF_ERROR(attachThread());
  LibrarySteps steps(plan, program, *this, rank);
  PLAIT_RETURN_IF_ERROR(steps.prepare());
  gemmUses = steps.gemmUses();
  attentionUses = steps.attentionUses();
  hasWarmedUp = !attentionUses.empty() || !gemmUses.empty();
  return Status::success();
}

/// Says the same on all ranks, also on those whose program has no attention.
Result<std::string> CudaDevice::describeLibrary() {
  Result<const CublasLt *> library = CublasLt::load();
  if (!library.ok())
    return library.status();
  std::string text =
      "cuBLASLt " + std::to_string((*library)->cublasLtGetVersion());
  if (timing.isKept &&
      anyAttention(plan, [](const fb::AttentionStep &) { return true; })) {
    PLAIT_RETURN_IF_ERROR(openAttention());
    text += " and " + attentions->describeLibrary();
  }
  return text + " on " + queue->context->name + " with " +
         std::to_string(queue->context->multiprocessors) + " multiprocessors";
}

/// Each with the operands of its step.
std::vector<GemmUse> CudaDevice::partsOfGemms() const {
  std::vector<GemmUse> parts;
  for (const GemmUse &use : gemmUses)
    for (uint32_t part : gemms->partsOf(use.gemm)) {
      parts.push_back(use);
      parts.back().gemm = part;
    }
  return parts;
}

/// Attention first: what lies between the rows of its results is still zero.
Status CudaDevice::timeLibraries(LibraryChoices &choices) {
  PLAIT_RETURN_IF_ERROR(attachThread());
  Measurer measurer(*queue);
  if (timing.isKept && !attentionUses.empty()) {
    AttentionTimer timer(measurer, *attentions, timing);
    PLAIT_RETURN_IF_ERROR(
        timer.run(attentions->callsOf(attentionUses), choices));
    timedText = timer.report();
  }
  if (gemmUses.empty())
    return Status::success();
  GemmTimer timer(measurer, *gemms, timing);
  PLAIT_RETURN_IF_ERROR(timer.run(partsOfGemms(), choices));
  timedText += (timedText.empty() ? "" : "\n") + timer.report();
  return Status::success();
}

/// Leaves what nobody has chosen to the library, whose first is the same on all
/// ranks.
Status CudaDevice::take(const LibraryChoices &choices) {
  if (attentions)
    for (const AttentionUse &call : attentions->callsOf(attentionUses))
      if (const std::string *found =
              choices.find(attentions->describe(call.number)))
        PLAIT_RETURN_IF_ERROR(attentions->take(call.number, *found));
  for (const GemmUse &part : partsOfGemms())
    if (const std::string *found = choices.find(gemms->describe(part.gemm)))
      PLAIT_RETURN_IF_ERROR(gemms->take(part.gemm, *found));
  return Status::success();
}

/// Zeroes again what libraries have written, workspace and results of zeros, as
/// plans count on it.
Status CudaDevice::callLibraries(const LibraryChoices *choices) {
  PLAIT_RETURN_IF_ERROR(attachThread());
  if (choices)
    PLAIT_RETURN_IF_ERROR(take(*choices));
  for (const AttentionUse &use : attentionUses)
    PLAIT_RETURN_IF_ERROR(attention(use.number, use.operands));
  for (const GemmUse &use : gemmUses)
    PLAIT_RETURN_IF_ERROR(gemm(use.gemm, use.operands, /*add=*/false));
  if (!hasWarmedUp)
    return Status::success();
  PLAIT_RETURN_IF_ERROR(queue->fillZero(arena(), owned->bytes()));
  return queue->synchronize();
}

namespace {

/// The part that a rank has in the choice of algorithms, as it tells the
/// others.
struct Offer {
  bool times;
  std::string library;
  std::string chosen; // by an earlier start, on rank 0

  std::string write() const {
    return (times ? "on\n" : "off\n") + library + "\n" + chosen;
  }
  static Offer read(const std::string &text) {
    size_t first = text.find('\n'), second = text.find('\n', first + 1);
    return {text.substr(0, first) == "on",
            text.substr(first + 1, second - first - 1),
            text.substr(second + 1)};
  }
};

/// Chooses what computes all ranks' GEMMs and attention.
class Choosing {
public:
  Choosing(const fb::Plan &plan, const ExecutorOptions &options, bool atOnce,
           Backend &backend)
      : mesh(plan), options(options), atOnce(atOnce), backend(backend) {}

  /// 1. Prepare what libraries compute.
  /// 2. Hear what others have, and what was chosen before.
  /// 3. Measure what is left, for others as well, and tell them.
  /// 4. Call everything once.
  Status run(bool mayChoose) {
    // 1.
    PLAIT_RETURN_IF_ERROR(forEachRank([&](size_t i) {
      return deviceOf(i).prepareLibraries(backend.ranks[i]);
    }));
    // 2.
    if (mayChoose)
      PLAIT_RETURN_IF_ERROR(hear());
    // 3.
    if (choices)
      PLAIT_RETURN_IF_ERROR(measure());
    // 4.
    PLAIT_RETURN_IF_ERROR(forEachRank([&](size_t i) {
      return deviceOf(i).callLibraries(choices ? &*choices : nullptr);
    }));
    if (choices && choices->size())
      backend.libraryChoices = choices->write();
    say(deviceOf(0).timingReport());
    return Status::success();
  }

private:
  CudaDevice &deviceOf(size_t i) {
    return static_cast<CudaDevice &>(*backend.parts[i].device);
  }

  /// Returns the failure of the lowest rank that has one.
  template <typename Job> Status forEachRank(Job job) {
    std::vector<Status> results(backend.ranks.size(), Status::success());
    std::vector<std::thread> threads;
    for (size_t i = 0; i < results.size(); ++i)
      if (atOnce)
        threads.emplace_back([&, i] { results[i] = job(i); });
      else
        results[i] = job(i);
    for (std::thread &thread : threads)
      thread.join();
    for (size_t i = 0; i < results.size(); ++i)
      if (!results[i].ok())
        return fail(results[i].code(), "rank ", backend.ranks[i], ": ",
                    results[i].message());
    return Status::success();
  }

  void say(const std::string &line) {
    if (backend.ranks.front() == 0 && !line.empty())
      backend.libraries += "\n" + line;
  }

  /// All ranks', each in a process of its own or all in this one.
  Result<std::vector<Offer>> exchangeOffers() {
    std::vector<Offer> offers;
    for (size_t i = 0; i < backend.ranks.size(); ++i) {
      auto library = deviceOf(i).describeLibrary();
      if (!library.ok())
        return library.status();
      offers.push_back({options.gemmTiming.enabled, *library,
                        backend.ranks[i] ? "" : options.gemmTiming.chosen});
    }
    if (!options.processes)
      return offers;
    auto told = options.processes->exchange(offers.front().write());
    if (!told.ok())
      return told.status();
    offers.clear();
    for (const std::string &text : *told)
      offers.push_back(Offer::read(text));
    return offers;
  }

  /// Decides whether there is anything to choose: where one rank has to take
  /// cuBLASLt's first choice, all do.
  Status hear() {
    auto offers = exchangeOffers();
    if (!offers.ok())
      return offers.status();
    const Offer &first = offers->front();
    for (size_t rank = 0; rank < offers->size(); ++rank) {
      const Offer &other = (*offers)[rank];
      if (other.times && other.library == first.library)
        continue;
      if (first.times)
        say("matmuls: not timed, as rank " + std::to_string(rank) + " has " +
            (other.times ? other.library + ", rank 0 " + first.library
                         : "`time-matmuls` off"));
      return Status::success();
    }
    choices.emplace(first.library);
    if (!first.chosen.empty())
      goOnWith(first.chosen);
    return Status::success();
  }

  /// Takes up what an earlier start has chosen, if that means anything here.
  void goOnWith(const std::string &chosen) {
    auto earlier = LibraryChoices::parse(chosen);
    if (!earlier.ok())
      say("matmuls: chosen anew, as what was kept of an earlier start is "
          "damaged: " +
          earlier.status().message());
    else if (earlier->library() != choices->library())
      say("matmuls: chosen anew, as what was kept is of " + earlier->library() +
          " and this is " + choices->library());
    else
      choices = std::move(*earlier);
  }

  /// Ranks of a process that come one after the other know what those before
  /// have found.
  Status measure() {
    const LibraryChoices before = *choices;
    std::vector<LibraryChoices> own(backend.ranks.size(), before);
    PLAIT_RETURN_IF_ERROR(forEachRank([&](size_t i) {
      if (!atOnce && i)
        own[i] = own[i - 1];
      return measuresForOthers(mesh, backend.ranks[i])
                 ? deviceOf(i).timeLibraries(own[i])
                 : Status::success();
    }));
    // What lower ranks say counts, and comes last.
    for (size_t i = own.size(); i--;)
      choices->take(own[i].since(before));
    if (!options.processes)
      return Status::success();
    auto told = options.processes->exchange(choices->since(before).write());
    if (!told.ok())
      return told.status();
    for (size_t i = told->size(); i--;) {
      auto theirs = LibraryChoices::parse((*told)[i]);
      if (!theirs.ok())
        return theirs.status();
      choices->take(*theirs);
    }
    return Status::success();
  }

  plan::RankGrid mesh;
  const ExecutorOptions &options;
  bool atOnce;
  Backend &backend;
  std::optional<LibraryChoices> choices; // none: the library's first ones
};

} // namespace

/// A plan that is to have the same bits in every run takes the heuristic's
/// choice.
Status runtime::warmUpLibraries(const fb::Plan &plan,
                                const ExecutorOptions &options, bool atOnce,
                                Backend &backend) {
  return Choosing(plan, options, atOnce, backend)
      .run(/*mayChoose=*/!isDeterministic(plan));
}
