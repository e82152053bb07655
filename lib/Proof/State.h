//===- State.h - State of a rank of the pipeline ----------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The slots of parameters and accumulators on one rank of the pipeline in the
// course of a step. Packs have none of their own: a pack's tensor is those of
// its members side by side.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_PROOF_STATE_H
#define PLAIT_LIB_PROOF_STATE_H

#include "Rules.h"
#include "plait/Dialect/Pipe/IR/Pipe.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"
#include <deque>
#include <map>

namespace plait::proof {

/// The symbols of a module.
class Symbols {
public:
  explicit Symbols(mlir::ModuleOp module);

  nn::ParameterOp findParameter(llvm::StringRef name) const {
    return parameters.lookup(name);
  }
  nn::PackOp findPack(llvm::StringRef name) const { return packs.lookup(name); }
  /// The pack of `rank` that has a parameter, and which of its members that is;
  /// no pack: it is alone.
  std::pair<nn::PackOp, unsigned> findMember(llvm::StringRef name,
                                             int64_t rank) const {
    return members.lookup({name, rank});
  }
  /// The rank of the pipeline that executes a function.
  int64_t getRank(pipe::FunctionAttr function) const {
    return placement && !function.isOfRank()
               ? placement.getRank(function.getIndex())
               : function.getIndex();
  }

  /// How `slot` lies, as the module declares it: the axes of each dimension.
  llvm::SmallVector<llvm::SmallVector<mlir::StringAttr>>
  getAxes(nn::ParameterOp parameter, nn::Slot slot) const;

  /// Whether what lies between the members of a pack has to be zero.
  bool hasZeroGaps(nn::Slot slot) const;

private:
  llvm::StringMap<nn::ParameterOp> parameters;
  llvm::StringMap<nn::PackOp> packs;
  llvm::StringSet<> computed; // with a copy to compute with
  llvm::DenseMap<std::pair<llvm::StringRef, int64_t>,
                 std::pair<nn::PackOp, unsigned>>
      members;                   // by name and rank
  pipe::PlacementAttr placement; // null: in line
  bool sendsMomentum;            // replicas compress it
};

/// Whether a slot is there when the next step begins.
inline bool outlivesStep(nn::Slot slot) {
  return slot != nn::Slot::Gradient && slot != nn::Slot::Reduced;
}

/// Something that is added up over the microbatches of a step.
struct Contribution {
  SlotOpInterface op;
  Content content; // of one microbatch
};

class RankState {
public:
  RankState(Rules &rules, const Symbols &symbols, int64_t rank)
      : rules(rules), symbols(symbols), rank(rank) {}

  using Key = std::pair<llvm::StringRef, nn::Slot>;
  struct Stored {
    Content content;
    /// Of a slot of a divided pack.
    llvm::SmallVector<RankTerm, 2> rows;
    mlir::Operation *writer = nullptr;
  };

  llvm::FailureOr<Content> read(SlotOpInterface op);
  llvm::LogicalResult write(SlotOpInterface op, const Content &content);
  /// All microbatches' sum of a contribution.
  llvm::LogicalResult accumulate(const Contribution &contribution);

  /// Ends the microbatches: what they have added up may be read from now on.
  void endMicrobatches() { sumsAreComplete = true; }

  /// What was written, by name and slot.
  const std::map<Key, Stored> &getWritten() const { return stored; }
  /// Parameters that were read or written, in the order of the first access.
  const llvm::SetVector<llvm::StringRef> &getTouched() const { return touched; }
  std::map<std::string, Stored> metrics;

  /// Ends the gather that begins a step, which may have written nothing but
  /// copies to compute with. They are again what every step begins with, and
  /// what was written is kept to be held against that.
  llvm::LogicalResult endGather();
  const std::map<llvm::StringRef, Stored> &getGathered() const {
    return gathered;
  }

  /// What a slot holds when a step begins.
  const Content &getInitial(nn::ParameterOp parameter, nn::Slot slot) {
    return getInitiallyStored(parameter, slot).content;
  }
  /// Returns what was written to a slot; null: nothing.
  const Stored *findWritten(const Key &key) const { return known.lookup(key); }

private:
  const Stored &getInitiallyStored(nn::ParameterOp parameter, nn::Slot slot);
  llvm::FailureOr<const Stored *> find(mlir::Operation *op,
                                       llvm::StringRef name, nn::Slot slot);
  Stored &getStored(llvm::StringRef name, nn::Slot slot);
  llvm::LogicalResult checkRank(SlotOpInterface op, nn::PackOp pack);
  llvm::LogicalResult convertBlock(SlotOpInterface op, nn::PackOp pack,
                                   Content &content, bool isWhole);
  llvm::FailureOr<Content> readPack(SlotOpInterface op, nn::PackOp pack);
  llvm::LogicalResult store(SlotOpInterface op, nn::ParameterOp parameter,
                            Stored value);
  llvm::LogicalResult writePack(SlotOpInterface op, nn::PackOp pack,
                                const Content &content);
  llvm::SmallVector<RankTerm, 2> getRows(nn::PackOp pack, nn::Slot slot);

  Rules &rules;
  const Symbols &symbols;
  int64_t rank; // of the pipeline
  bool sumsAreComplete = false;
  std::map<Key, Stored> stored;
  llvm::DenseMap<Key, Stored *> known;         // the same, to find them soon
  llvm::DenseMap<Key, const Stored *> initial; // of those that were asked for
  std::deque<Stored> kept;
  std::map<llvm::StringRef, Stored> gathered; // by parameter
  llvm::SetVector<llvm::StringRef> touched;
};

} // namespace plait::proof

#endif // PLAIT_LIB_PROOF_STATE_H
