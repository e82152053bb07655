//===- Watch.cpp - Recording of a run's steps -----------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Decides which steps are noted and passes the notes to who reads them. Notes
// cost time and are collected by all processes together, so that all have to
// decide alike: process 0, which sees all notes, says when the next step is
// watched.
//
//===----------------------------------------------------------------------===//

#include "Watch.h"

#include "plait/Plan/Defaults.h"
#include "plait/Plan/Streams.h"
#include "plait/Runtime/Rendezvous.h"

#include <algorithm>
#include <climits>
#include <sched.h>
#include <unistd.h>

using namespace plait;
using namespace plait::runtime;

/// A step of a GPU that is replayed has no notes. One rank alone waits for
/// nobody, but the page shows what it does.
static bool canWatch(const fb::Plan &plan, const TrainOptions &options) {
  const ExecutorOptions &executor = options.executor;
  bool isWalked = !plan::isCuda(plan) || !executor.cudaGraph;
  return isWalked &&
         (plan::RankGrid(plan).ranks() > 1 || !options.dashboard.empty()) &&
         Stragglers::canWatch(plan);
}

/// Notes that others have asked for already (a profile) are shared.
Watch::Watch(const fb::Plan &plan, TrainOptions &options)
    : readers(options.readers) {
  ExecutorOptions &executor = options.executor;
  if (canWatch(plan, options)) {
    if (!executor.notes)
      executor.notes = &own.emplace(
          plan, plan::overlaps(plan, executor.overlap), executor.processes);
    readers.push_back(&stragglers.emplace(plan));
  }
  notes = executor.notes;
}

/// Clocks of hosts are compared first: times of different ranks are held
/// against each other.
Status Watch::beginRun(Executor &executor, uint64_t first, uint64_t last) {
  if (!notes)
    return Status::success();
  Rendezvous *processes = executor.processes();
  if (processes)
    PLAIT_RETURN_IF_ERROR(notes->compareClocks(*processes));
  if (stragglers)
    PLAIT_RETURN_IF_ERROR(findHosts(executor.plan(), processes));
  for (StepReader *reader : readers)
    PLAIT_RETURN_IF_ERROR(reader->beginRun(first, last));
  return Status::success();
}

/// GPUs' ranks do not share processors in what is measured, so that their
/// number is left out for them. The number comes first in the text, as a host's
/// name may have any characters.
Status Watch::findHosts(const fb::Plan &plan, Rendezvous *processes) {
  using Host = Stragglers::Host;
  if (!processes) {
    char name[HOST_NAME_MAX + 1] = "";
    gethostname(name, sizeof(name) - 1);
    cpu_set_t set;
    uint32_t processors = sched_getaffinity(0, sizeof(set), &set) == 0
                              ? uint32_t(CPU_COUNT(&set))
                              : 0;
    stragglers->setHosts({Host{name, plan::isCuda(plan) ? 0 : processors}},
                         {uint32_t(stragglers->ranks().size()), 1});
    return Status::success();
  }
  const ProcessPlace &place = processes->place();
  auto all =
      processes->gather(std::to_string(place.processors) + " " + place.host);
  if (!all.ok())
    return all.status();
  std::vector<Host> hosts;
  for (const std::string &text : *all) {
    size_t name = 0;
    uint32_t processors = uint32_t(std::stoul(text, &name));
    hosts.push_back(
        {text.substr(name + 1), plan::isCuda(plan) ? 0 : processors});
  }
  if (place.index == 0)
    stragglers->setHosts(hosts, processes->spread());
  return Status::success();
}

/// Notes are on only in the steps that somebody wants.
void Watch::beforeStep(uint64_t step) {
  if (notes)
    notes->enable(std::any_of(
        readers.begin(), readers.end(),
        [&](const StepReader *reader) { return reader->wants(step); }));
}

/// 1. Switch notes off and bring those of all processes to process 0.
/// 2. Give them to the readers that want this step.
/// 3. Tell all processes which step is the next.
Status Watch::afterStep(Executor &executor, uint64_t step, double seconds) {
  isWatched = false;
  if (!notes || !notes->isEnabled())
    return Status::success();
  // 1.
  notes->enable(false); // evaluations are no steps
  Rendezvous *processes = executor.processes();
  PLAIT_RETURN_IF_ERROR(notes->collect(processes));
  // 2. Asked before add(), which sets the next step.
  isWatched = stragglers && stragglers->wants(step);
  for (StepReader *reader : readers)
    if (executor.leads() && reader->wants(step))
      reader->add(step, seconds, *notes);
  if (!isWatched || !processes)
    return Status::success();
  // 3. Process 0 alone has all notes and decides when to watch again. All need
  // the same answer, as collecting notes is collective.
  auto next = processes->broadcast(std::to_string(stragglers->nextStep()));
  if (!next.ok())
    return next.status();
  stragglers->setNextStep(std::stoull(*next));
  return Status::success();
}
