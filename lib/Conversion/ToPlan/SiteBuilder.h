//===- SiteBuilder.h - The lists of sites of one program --------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Internal to AddSites.cpp and AddCorrections.cpp.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_CONVERSION_TOPLAN_SITEBUILDER_H
#define PLAIT_LIB_CONVERSION_TOPLAN_SITEBUILDER_H

#include "AddSites.h"

#include "plait/Plan/Sites.h"
#include "plait/Support/Collectives.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/ADT/Twine.h"

#include <memory>

namespace plait {

/// A range that is sent at once, and where its state is.
struct Range {
  uint64_t begin, end;
  plan::FragmentPlace place = {};
  uint64_t anchor = 0, momentum = 0, difference = 0;
  uint64_t correction = 0, before = 0;

  uint64_t elements() const { return (end - begin) / sizeof(float); }
  bool contains(uint64_t offset) const {
    return begin <= offset && offset < end;
  }
};

/// Adds the lists to one program.
class SiteBuilder {
public:
  SiteBuilder(plan::fb::PlanT &plan, uint32_t index, const Outer &outer,
              llvm::ArrayRef<plan::FragmentPlace> places, uint8_t axis,
              uint32_t location)
      : plan(plan), index(index), program(*plan.programs[index]), outer(outer),
        places(places), axis(axis), location(location), ranges(findRanges()),
        steps(program.actions.size()) {}

  void build();

private:
  llvm::SmallVector<Range> findRanges() const;
  uint64_t allocate(const llvm::Twine &name, uint64_t bytes);
  uint64_t allocate(const Range &range, llvm::StringRef what);
  void placeDifferences();
  void addState();
  void addSum(plan::fb::FunctionT &function, uint64_t offset,
              uint64_t elements) {
    addCollective(function, CollectiveKind::AllReduce, offset, offset,
                  elements);
  }
  void addCollective(plan::fb::FunctionT &function, CollectiveKind kind,
                     uint64_t input, uint64_t output, uint64_t elements);
  void addCopy(plan::fb::FunctionT &function, uint64_t source, uint64_t target,
               uint64_t elements);
  plan::fb::OuterStepT &addOuter(plan::fb::FunctionT &function,
                                 plan::fb::OuterKind kind, uint64_t value,
                                 uint64_t elements);
  template <typename Step>
  Step &addStep(plan::fb::FunctionT &function, Step step);
  void addReport();
  void addAgreement();
  void addMean(plan::fb::FunctionT &function, const Range &range);
  void addMiddle(plan::fb::FunctionT &function, const Range &range);
  void addSums(plan::fb::FunctionT &function, plan::FragmentPlace place);
  void addFragment(const plan::ListFacts &facts);
  void addMixing(const plan::fb::MixingT &mixing);
  void mix(const Range &range, uint64_t value, uint32_t tensor,
           uint32_t exchanges);
  void agree(const Range &range, uint32_t tensor, uint32_t exchanges);
  void addCorrections();
  void addScaffold(plan::fb::FunctionT &function, const Range &range);
  void track(const Range &range, uint32_t tensor, uint32_t exchanges);
  void joinMixed(const Range &range, uint32_t tensor, uint32_t exchanges);
  void addTransfer(plan::fb::ActionKind kind, uint32_t exchange,
                   uint64_t buffer, const Range &range, uint32_t tensor);
  void addRounding(plan::fb::FunctionT &function, uint32_t fragment = 0);
  bool hasCopies() const;
  plan::fb::FunctionT &addCall();
  unsigned countBuffers() const;
  void placeScratch();
  uint64_t findRoom(uint64_t bytes) const;

  plan::fb::PlanT &plan;
  uint32_t index;
  plan::fb::ProgramT &program;
  const Outer &outer;
  llvm::ArrayRef<plan::FragmentPlace> places; // by parameter
  uint8_t axis;
  uint32_t location;
  llvm::SmallVector<Range> ranges;
  uint32_t steps;    // actions of the step alone
  uint32_t list = 0; // that actions are added to
  uint64_t scratch[3] = {}, scratchBytes = 0;
};

/// A place in the arena.
inline std::unique_ptr<plan::fb::Ref> at(uint64_t offset) {
  return std::make_unique<plan::fb::Ref>(offset, -1);
}

} // namespace plait

#endif // PLAIT_LIB_CONVERSION_TOPLAN_SITEBUILDER_H
