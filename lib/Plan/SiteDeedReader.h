//===- SiteDeedReader.h - Reads what a list of sites does -------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_PLAN_SITEDEEDREADER_H
#define PLAIT_LIB_PLAN_SITEDEEDREADER_H

#include "SiteDeeds.h"
#include "plait/Plan/Defaults.h"
#include "plait/Plan/Messages.h"
#include "plait/Plan/Ranks.h"
#include "plait/Plan/Uses.h"
#include "plait/Support/Collectives.h"

namespace plait::plan {

/// Whether `ref` is this place of the arena.
inline bool isAt(const fb::Ref *ref, uint64_t offset) {
  return ref && ref->slot() < 0 && ref->offset() == offset;
}

/// Reads one list of a program, from its first action to its last.
class DeedReader {
public:
  DeedReader(const fb::Plan &plan, const fb::Program &program, uint32_t list)
      : plan(plan), program(program), rule(*plan.outer()), mesh(plan),
        corrects(outerOf(plan).corrects()),
        keepsBefore(outerOf(plan).keepsBefore()),
        clips(outerOf(plan).is(Agreement::Clipping)) {
    while (action < actions() && get(action).list() != list)
      ++action;
    for (end = action; end < actions() && get(end).list() == list;)
      ++end;
  }

  Result<std::vector<Done>> run() {
    while (action < end) {
      Status status = isMixing() ? readMixing() : readCall();
      if (!status.ok())
        return status;
    }
    return std::move(done);
  }

private:
  uint32_t actions() const { return length(program.actions()); }
  const fb::Action &get(uint32_t index) const {
    return *program.actions()->Get(index);
  }
  const fb::Function &functionOf(const fb::Action &call) const {
    return *program.functions()->Get(call.function());
  }

  Status readCall();
  Result<Done> readSum(const fb::CollectiveStep &step) const;
  Result<Done> readOuter(const fb::OuterStep &step) const;
  Status readNorm(const fb::Function &function, uint32_t &step);
  bool addsUp(const fb::Step &step, uint32_t axis, uint64_t place) const;
  Result<Done> readMiddle(const fb::Function &function, uint32_t first) const;
  Result<Done> readMessage(const fb::Function &function, uint32_t first) const;
  bool isBlocks(const fb::Step &step, CollectiveKind kind, uint64_t chunk,
                uint64_t input, uint64_t output,
                fb::DType dtype = fb::DType::F32) const;
  /// Whether the list is of an agreement of neighbours, and the next action is
  /// none that copies are rounded by.
  bool isMixing() const;
  Status readMixing();
  Status readTracking();
  Result<ElementRange> readExchanges(uint64_t &received, uint64_t &sum);
  Result<Done> readLearning(const fb::Function &function, uint32_t first) const;
  uint64_t valueOf(uint32_t call) const;
  Status expectTransfer(fb::ActionKind kind, uint32_t exchange, uint64_t buffer,
                        uint64_t bytes);
  Status expectStep(fb::OuterKind kind, uint32_t exchange,
                    const ElementRange &value, const fb::OuterStep *&step);
  Status checkScratch(uint64_t place, uint64_t bytes, uint32_t at) const;
  Status checkScratch(uint64_t one, uint64_t other, uint64_t bytes,
                      uint32_t from, uint32_t to) const;

  const fb::Plan &plan;
  const fb::Program &program;
  const fb::OuterRule &rule;
  RankGrid mesh;
  bool corrects, keepsBefore, clips; // the scheme
  uint32_t action = 0, end = 0; // what is read next, and where the list ends
  uint32_t mixed = 0;           // ranges so far
  std::optional<uint64_t> norm; // where a site has it, once it does
  std::vector<Done> done;
};

} // namespace plait::plan

#endif // PLAIT_LIB_PLAN_SITEDEEDREADER_H
