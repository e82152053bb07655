//===- Spans.h - What lies between ops of a block ---------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_TRANSFORMS_LOWERING_SPANS_H
#define PLAIT_LIB_TRANSFORMS_LOWERING_SPANS_H

#include "mlir/IR/Operation.h"

#include <map>

namespace plait {

/// Parts of a block, each from one op to another, both left out. Those that
/// overlap are one. Takes time logarithmic in the number of spans.
class Spans {
public:
  /// Adds the ops from `first` to `last`, which may be one op.
  void add(mlir::Operation *first, mlir::Operation *last) {
    if (first == last)
      return;
    auto next = spans.upper_bound(first);
    if (next != spans.begin() &&
        first->isBeforeInBlock(std::prev(next)->second))
      --next;
    while (next != spans.end() && next->first->isBeforeInBlock(last)) {
      if (next->first->isBeforeInBlock(first))
        first = next->first;
      if (last->isBeforeInBlock(next->second))
        last = next->second;
      next = spans.erase(next);
    }
    spans.insert_or_assign(first, last);
  }

  /// Returns the first op of the span that `op` lies in; `op` itself where
  /// there is none.
  mlir::Operation *findBegin(mlir::Operation *op) const {
    auto next = spans.lower_bound(op);
    bool isInside =
        next != spans.begin() && op->isBeforeInBlock(std::prev(next)->second);
    return isInside ? std::prev(next)->first : op;
  }

private:
  struct IsBefore {
    bool operator()(mlir::Operation *a, mlir::Operation *b) const {
      return a != b && a->isBeforeInBlock(b);
    }
  };
  std::map<mlir::Operation *, mlir::Operation *, IsBefore> spans;
};

} // namespace plait

#endif // PLAIT_LIB_TRANSFORMS_LOWERING_SPANS_H
