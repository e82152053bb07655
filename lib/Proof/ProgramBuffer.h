//===- ProgramBuffer.h - What lies in a buffer of a program -----*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The state of a buffer while a rank goes through its program (Program.cpp).
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_PROOF_PROGRAMBUFFER_H
#define PLAIT_LIB_PROOF_PROGRAMBUFFER_H

#include "plait/Dialect/Pipe/IR/Pipe.h"
#include "plait/Dialect/Plan/IR/PlanIR.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include <algorithm>
#include <string>

namespace plait::proof {

/// What a function gave for a microbatch. What crosses a boundary of stages is
/// called after the function that makes it.
struct Thing {
  pipe::PortKind kind;
  /// `index` is the port's number among those of its kind.
  int32_t index, stage, microbatch;

  bool operator==(const Thing &) const = default;
  std::string print() const {
    return (pipe::stringifyPortKind(kind) + " " + llvm::Twine(index) +
            " of stage " + llvm::Twine(stage) + ", microbatch " +
            llvm::Twine(microbatch))
        .str();
  }
};

/// A buffer, and what lies in it now.
struct Buffer {
  plan::BufferOp op;
  int64_t first, last, bytes;
  /// Whether the rows of all microbatches lie there, of tokens or another input
  /// of the model: it is called as its port is.
  bool isInput;
  bool isNamed; // functions use it by its name
  /// A send of it that has not been waited for; null: none.
  plan::ActionOp send;
  struct Held {
    int64_t begin, end; // bytes
    Thing thing;
  };
  llvm::SmallVector<Held, 1> holds; // disjoint, in the order of their bytes

  /// Only what begins exactly there: a thing at another offset is another
  /// tensor.
  const Thing *find(int64_t begin) const {
    const Held *held = llvm::partition_point(
        holds, [&](const Held &own) { return own.begin < begin; });
    return held == holds.end() || held->begin != begin ? nullptr : &held->thing;
  }
  /// What has a byte there is nobody's any more.
  void erase(int64_t begin, int64_t end) {
    Held *first = llvm::partition_point(holds, [&](const Held &own) {
      return own.begin < begin && own.end <= begin;
    });
    Held *last = std::partition_point(
        first, holds.end(), [&](const Held &own) { return own.begin < end; });
    holds.erase(first, last);
  }
  void put(int64_t begin, int64_t end, Thing thing) {
    // Of no bytes there is one, too.
    erase(begin, std::max(end, begin + 1));
    Held *behind = llvm::partition_point(
        holds, [&](const Held &own) { return own.begin < begin; });
    holds.insert(behind, Held{begin, end, thing});
  }
};

} // namespace plait::proof

#endif // PLAIT_LIB_PROOF_PROGRAMBUFFER_H
