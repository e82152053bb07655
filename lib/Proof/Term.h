//===- Term.h - Terms for values of tensors ---------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Global tensors as expressions over parameters, state and inputs of a step.
// Terms are hash-consed: two are equal exactly if their addresses are, and what
// is computed twice is one term.
//
// An argument of a term names its dimensions by *letters*, as einsum does:
// numbers below the rank of the result are the result's dimensions, others are
// summed (or maximised) over. A dimension of the result that an argument does
// not name is one along which the argument is repeated, so broadcasts and
// transposes are no terms of their own.
//
// The normal form is small; each rule stands with its reason in Term.cpp.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_PROOF_TERM_H
#define PLAIT_LIB_PROOF_TERM_H

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/Operation.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/Hashing.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/ADT/StringSet.h"
#include <deque>
#include <optional>
#include <string>
#include <vector>

namespace plait::proof {

struct Term;
using Letters = llvm::SmallVector<int, 4>;

/// factor · term, with a letter for each dimension of the term.
struct Argument {
  const Term *term;
  Letters letters;
  double factor = 1; // of a sum's arguments
};

struct Term {
  enum Kind {
    /// A parameter, a state slot, an input, a number that the trainer sets.
    Leaf,
    /// Of arguments with factors, each at most once. No argument: zero.
    Sum,
    /// Elementwise.
    Product,
    /// Anything else; what it is called says what it is.
    Apply,
  };

  Kind kind;
  llvm::StringRef name = {};  // of a leaf or of what is applied
  mlir::Attribute attrs = {}; // what else the op says; may be null
  llvm::SmallVector<Argument, 2> arguments = {};
  llvm::SmallVector<int64_t, 4> shape = {};
  /// In the order of creation, so that output does not depend on addresses.
  unsigned id = 0;
  /// Whether the claim computes it.
  bool inClaim = false;
  /// The first op that computes it; null: none does.
  mlir::Operation *origin = nullptr;

  bool isZero() const { return kind == Sum && arguments.empty(); }
  /// Which number it is, if it is one.
  std::optional<double> getNumber() const;
};

/// A term in the letters of an op: dimension i of the term is letters[i].
struct Expression {
  const Term *term = nullptr;
  Letters letters; // ascending
};

/// Makes terms, in normal form, and owns them.
class Terms {
public:
  /// From now on terms are the claim's, or not; what is created is computed by
  /// `op` first.
  void setClaim(bool claim) { isClaim = claim; }
  void setOrigin(mlir::Operation *op) { origin = op; }

  const Term *leaf(llvm::StringRef name, llvm::ArrayRef<int64_t> shape);
  /// The number 1, without dimensions.
  const Term *one();
  Expression sum(llvm::ArrayRef<Argument> arguments);
  /// factor · the elementwise product.
  Expression product(llvm::ArrayRef<Argument> arguments, double factor = 1);
  /// Letters of arguments that `result` does not have are reduced. With
  /// `extents`, the result's; otherwise those of the arguments.
  Expression apply(llvm::StringRef name, mlir::Attribute attrs,
                   llvm::ArrayRef<Argument> arguments,
                   llvm::ArrayRef<int> result,
                   llvm::ArrayRef<int64_t> extents = {});
  /// The same for what is linear in each argument: numeric factors come out.
  Expression applyLinear(llvm::StringRef name, mlir::Attribute attrs,
                         llvm::ArrayRef<Argument> arguments,
                         llvm::ArrayRef<int> result,
                         llvm::ArrayRef<int64_t> extents = {});
  /// The sum, or the maximum, over the letters that `result` does not have.
  Expression reduceSum(const Argument &argument, llvm::ArrayRef<int> result);
  Expression reduceMaximum(const Argument &argument,
                           llvm::ArrayRef<int> result);
  /// In another float type: `type` is its attribute.
  Expression cast(const Argument &argument, mlir::TypeAttr type);
  /// Added up over all microbatches of a step.
  const Term *overMicrobatches(const Term *term);

  /// A call of one of the above but `overMicrobatches`, and what it has made.
  struct Call {
    enum Kind { Leaf, One, Sum, Product, Apply, Linear, AddUp, Maximum, Cast };

    Kind kind;
    llvm::StringRef name = {};
    mlir::Attribute attrs = {};
    llvm::SmallVector<Argument, 2> arguments = {};
    Letters result = {};
    llvm::SmallVector<int64_t, 4> extents = {};
    double factor = 1;
    Expression made = {};
  };
  /// Appends the calls from now on to `calls`; null: to nothing. Calls that a
  /// call makes are not listed.
  void note(std::vector<Call> *calls) { noted = calls; }
  /// Makes the call again, whatever it has made before.
  Expression make(const Call &call);

  /// What only the plan computes, by the op that does first.
  llvm::DenseMap<mlir::Operation *, llvm::SmallVector<const Term *, 1>>
  findStrangers() const;

private:
  const Term *intern(Term &&term);
  Expression note(Call call);
  const Term *roundTotal(const Term *term);
  Expression finish(Term::Kind kind,
                    llvm::SmallVector<Argument, 2> &&arguments);

  /// A term in the table of all. The hash stands beside it: looking for it in
  /// terms that lie anywhere takes longer than the rest.
  struct Entry {
    const Term *term;
    size_t hash;
  };
  /// Finds a term by what it says, and not by its address.
  struct ByContent {
    using Address = llvm::DenseMapInfo<const Term *>;
    static Entry getEmptyKey() { return {Address::getEmptyKey(), 0}; }
    static Entry getTombstoneKey() { return {Address::getTombstoneKey(), 0}; }
    static unsigned getHashValue(const Entry &entry) {
      return static_cast<unsigned>(entry.hash);
    }
    static bool isEqual(const Entry &a, const Entry &b);
  };

  std::deque<Term> terms;
  llvm::DenseSet<Entry, ByContent> known;
  llvm::StringSet<> names;
  const Term *unit = nullptr; // the number 1; null: nobody has asked for it
  std::vector<Call> *noted = nullptr;
  bool isClaim = false;
  mlir::Operation *origin = nullptr;
};

/// Calls `visit` with all that `term` is made of and the claim does not have.
void findStrangers(const Term *term,
                   llvm::function_ref<void(const Term *)> visit);

/// The letters 0, 1, …
Letters countLetters(size_t rank);

/// For messages: "nn.exp(nn.matmul(@w value, …))", at most `depth` deep.
std::string print(const Term *term, int depth = 3);

} // namespace plait::proof

#endif // PLAIT_LIB_PROOF_TERM_H
