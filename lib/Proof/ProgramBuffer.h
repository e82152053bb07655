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

#include <iterator>
#include <map>
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
  /// A send of it that has not been waited for; null: none.
  plan::ActionOp send;
  struct Held {
    int64_t end; // bytes
    Thing thing;
  };
  std::map<int64_t, Held> holds; // by the byte that it begins at; disjoint

  /// Only what begins exactly there: a thing at another offset is another
  /// tensor.
  const Thing *find(int64_t begin) const {
    auto held = holds.find(begin);
    return held == holds.end() ? nullptr : &held->second.thing;
  }
  /// What has a byte there is nobody's any more.
  void erase(int64_t begin, int64_t end) {
    auto first = holds.lower_bound(begin);
    if (first != holds.begin() && std::prev(first)->second.end > begin)
      --first;
    holds.erase(first, holds.lower_bound(end));
  }
  void put(int64_t begin, int64_t end, Thing thing) {
    erase(begin, end);
    holds.insert_or_assign(begin, Held{end, thing});
  }
};

} // namespace plait::proof

#endif // PLAIT_LIB_PROOF_PROGRAMBUFFER_H
