//===- Repeat.h - Ops that repeat what others have done ---------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A deep model has the same op in each layer, of operands that lie alike. Its
// rule would say the same each time, of other terms. So the rule is asked once,
// and the terms that it has made are made again of those of the others.
//
// Nothing is taken for granted: op, types and layouts are compared in full, and
// the terms go through the same constructors. What a rule can see of a term is
// its shape, which number it is, and which terms are one; if any of that is not
// as it was, the rule is asked.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_PROOF_REPEAT_H
#define PLAIT_LIB_PROOF_REPEAT_H

#include "Form.h"

#include "llvm/Support/Allocator.h"
#include <unordered_map>

namespace plait::proof {

/// Knowledge of a value, in two parts.
struct Known {
  /// Its own, or that of a value that lies alike and has another term.
  const Content *content = nullptr;
  const Term *term = nullptr;
  /// The number of its layout; 0: nobody has asked for it.
  unsigned layout = 0;
};

class Repeats {
public:
  explicit Repeats(Terms &terms) : terms(terms) {}

  /// Fills in the results of `op` if its rule has been asked of the like.
  bool repeat(mlir::Operation *op, llvm::ArrayRef<Known *> operands,
              llvm::SmallVectorImpl<Known> &results);
  /// Notes the terms that are made from here on, to be repeated for an op that
  /// is like the one that was just asked for.
  void begin() { terms.note(isKnowable ? &calls : nullptr); }
  /// Takes what the rule has said; `isPlain`, unless it has noted something
  /// elsewhere.
  void end(mlir::Operation *op, llvm::ArrayRef<Known *> operands,
           llvm::ArrayRef<Content> results, bool isPlain);

private:
  /// A term that a rule has seen or made: the operands' come first.
  struct Node {
    unsigned first; // the first node with the same term
    Letters letters;
    std::optional<double> number;
    llvm::SmallVector<int64_t, 4> shape;
  };
  struct Step {
    Terms::Call call; // with the terms of whoever asked last
    llvm::SmallVector<unsigned, 2> arguments; // nodes
  };
  struct Result {
    unsigned layout, node;
  };
  struct Recipe {
    mlir::Operation *op;
    llvm::SmallVector<unsigned, 4> layouts;
    llvm::SmallVector<Node, 4> nodes;
    std::vector<Step> steps;
    llvm::SmallVector<Result, 1> results;
  };

  unsigned findLayout(const Content &content);
  bool askLayouts(llvm::ArrayRef<Known *> operands);
  bool fits(const Recipe &recipe, mlir::Operation *op,
            llvm::ArrayRef<Known *> operands) const;
  bool follow(Recipe &recipe, llvm::ArrayRef<Known *> operands,
              llvm::SmallVectorImpl<const Term *> &made);

  Terms &terms;
  std::vector<const Content *> layouts; // the first is at 1
  std::unordered_multimap<size_t, unsigned> layoutsByHash;
  std::unordered_multimap<size_t, Recipe> recipes;
  llvm::SpecificBumpPtrAllocator<Content> kept;
  // These are of the op that was asked for last.
  size_t hash = 0;
  bool isKnowable = false;
  std::vector<Terms::Call> calls;
};

} // namespace plait::proof

#endif // PLAIT_LIB_PROOF_REPEAT_H
