//===- SiteBuilder.h - Lists of what sites do -------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_CONVERSION_TOPLAN_SITEBUILDER_H
#define PLAIT_LIB_CONVERSION_TOPLAN_SITEBUILDER_H

#include "plait/Configuration/Outer.h"
#include "plait/Plan/Plan_generated.h"
#include "plait/Plan/Sites.h"
#include "plait/Support/Collectives.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/Twine.h"

#include <map>
#include <memory>

namespace plait {

namespace fb = plan::fb;
using plan::FragmentPlace;
using plan::ListFacts;

/// The address of bytes of the arena.
inline std::unique_ptr<plan::fb::Ref> at(uint64_t offset) {
  return std::make_unique<plan::fb::Ref>(offset, -1);
}

/// A range that is sent at once, and where its state is.
struct SentRange {
  uint64_t begin, end;
  FragmentPlace place = {};
  uint64_t anchor = 0, momentum = 0, difference = 0, error = 0;
  uint64_t correction = 0, before = 0;
  /// The elements of each trained parameter, by where it begins in the range.
  std::map<uint64_t, uint64_t> pieces = {};

  uint64_t elements() const { return (end - begin) / sizeof(float); }
  bool contains(uint64_t offset) const {
    return begin <= offset && offset < end;
  }
};

/// Adds the lists to one program.
class SiteBuilder {
public:
  SiteBuilder(fb::PlanT &plan, uint32_t index, const Outer &outer,
              llvm::ArrayRef<FragmentPlace> places, uint8_t axis,
              uint32_t location)
      : plan(plan), index(index), program(*plan.programs[index]), outer(outer),
        compress(outer.getCompression()), places(places), axis(axis),
        location(location), ranges(findRanges()),
        steps(program.actions.size()) {}

  void build();

private:
  llvm::SmallVector<SentRange> findRanges() const;
  uint64_t allocate(const llvm::Twine &name, uint64_t bytes,
                    fb::Category category = fb::Category::Optimizer);
  uint64_t allocate(const SentRange &range, llvm::StringRef what);
  void placeSideBySide(llvm::StringRef name, uint64_t SentRange::*state);
  void findPieces();
  void addState();
  void addSum(fb::FunctionT &function, uint64_t offset, uint64_t elements) {
    addCollective(function, CollectiveKind::AllReduce, offset, offset,
                  elements);
  }
  void addMessage(fb::FunctionT &function,
                  llvm::ArrayRef<const SentRange *> sent, uint64_t value);
  void addCollective(fb::FunctionT &function, CollectiveKind kind,
                     uint64_t input, uint64_t output, uint64_t elements,
                     fb::DType dtype = fb::DType::F32) {
    addCollective(function, kind, axis, input, output, elements, dtype);
  }
  void addCollective(fb::FunctionT &function, CollectiveKind kind, uint8_t over,
                     uint64_t input, uint64_t output, uint64_t elements,
                     fb::DType dtype);
  void addCopy(fb::FunctionT &function, uint64_t source, uint64_t target,
               uint64_t elements);
  fb::OuterStepT &addOuter(fb::FunctionT &function, fb::OuterKind kind,
                           uint64_t value, uint64_t elements);
  template <typename Step> Step &addStep(fb::FunctionT &function, Step own) {
    auto step = std::make_unique<fb::StepT>();
    step->step.Set(std::move(own));
    step->location = location;
    function.steps.push_back(std::move(step));
    return *static_cast<Step *>(function.steps.back()->step.value);
  }
  void addReport();
  void addAgreement();
  void addMean(fb::FunctionT &function, const SentRange &range);
  void addDifference(fb::FunctionT &function, const SentRange &range);
  void addUpdate(fb::FunctionT &function, const SentRange &range);
  void addClipping(fb::FunctionT &function);
  void addNorm(fb::FunctionT &function);
  void addMiddle(fb::FunctionT &function, const SentRange &range);
  void addSums(fb::FunctionT &function, FragmentPlace place);
  void addFragment(const ListFacts &facts);
  void addMixing(const fb::MixingT &mixing);
  void mix(const SentRange &range, uint64_t value, uint32_t tensor,
           uint32_t exchanges);
  void agree(const SentRange &range, uint32_t tensor, uint32_t exchanges);
  void addCorrections();
  void addScaffold(fb::FunctionT &function, const SentRange &range);
  void track(const SentRange &range, uint32_t tensor, uint32_t exchanges);
  void joinMixed(const SentRange &range, uint32_t tensor, uint32_t exchanges);
  void addTransfer(fb::ActionKind kind, uint32_t exchange, uint64_t buffer,
                   const SentRange &range, uint32_t tensor);
  void addRounding(fb::FunctionT &function, uint32_t fragment = 0);
  bool hasCopies() const;
  fb::FunctionT &addCall();
  unsigned countBuffers() const;
  void placeScratch();
  void placeMessages();
  void moveBeside(llvm::ArrayRef<ListFacts> facts);
  uint64_t countWords(llvm::ArrayRef<const SentRange *> sent) const;
  llvm::SmallVector<const SentRange *> getPart(FragmentPlace place) const;
  uint64_t addScratch(uint64_t bytes);
  uint64_t findRoom(uint64_t bytes) const;

  fb::PlanT &plan;
  uint32_t index;
  fb::ProgramT &program;
  const Outer &outer;
  const SiteCompression compress;
  llvm::ArrayRef<FragmentPlace> places; // by parameter
  uint8_t axis;
  uint32_t location;
  llvm::SmallVector<SentRange> ranges;
  uint32_t steps;    // actions of the step alone
  uint32_t list = 0; // that actions are added to
  uint64_t scratch[3] = {}, scratchBytes = 0;
};

/// The elements that a rank has of what it updates of a trained parameter,
/// padding included; of what is divided as a part of a pack, of that part.
uint64_t countHeld(const fb::PlanT &plan, const fb::ShardT &shard);

/// Fails where a rank would have a part of a chunk: then what is sent would
/// depend on the mesh.
Status checkChunks(const fb::PlanT &plan, const Outer &outer);

} // namespace plait

#endif // PLAIT_LIB_CONVERSION_TOPLAN_SITEBUILDER_H
