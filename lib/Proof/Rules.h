//===- Rules.h - Rules of ops on forms --------------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One rule for each op, in a table by name, to which each file of rules adds
// its own. A rule follows from what the op is
// defined to compute and from what a form means; it asks no other description
// of the op, so that a mistake there is no mistake here. An op that has none
// but decomposes is what it decomposes into.
//
// The general reasons:
//   - an op that treats elements alike gives, of slices that begin at the same
//     place, the slice of its result;
//   - a sum over a dimension that is a slice is a partial sum over its axes, if
//     the slices are all there is and padding adds nothing;
//   - equal numbers are a slice of any dimension. Once something else lies in
//     the padding they are one of so many elements, and as often in a sum;
//   - a linear op gives, of partial sums, partial sums of its result; any other
//     op must not see one;
//   - where each row is whole on one rank, and all operands agree on which,
//     what treats elements alike gives such rows, too; they are a partial sum
//     if other ranks have zeros for them;
//   - an axis occurs once in a form: of two slices along it a rank has the
//     diagonal only.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_PROOF_RULES_H
#define PLAIT_LIB_PROOF_RULES_H

#include "Form.h"
#include "Repeat.h"
#include "Report.h"
#include "plait/Dialect/NN/IR/NN.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/iterator.h"

namespace plait::proof {

using Contents = llvm::SmallVector<Content, 2>;

/// The operands of an op, wherever each of them is kept.
class Operands {
public:
  Operands() = default;
  Operands(llvm::ArrayRef<const Content *> all) : all(all) {}
  Operands(const llvm::SmallVectorImpl<const Content *> &all) : all(all) {}

  const Content &operator[](size_t index) const { return *all[index]; }
  size_t size() const { return all.size(); }
  bool empty() const { return all.empty(); }
  auto begin() const { return Iterator(all.begin()); }
  auto end() const { return Iterator(all.end()); }
  Operands take_front(size_t count) const { return all.take_front(count); }

private:
  using Iterator = llvm::pointee_iterator<const Content *const *>;

  llvm::ArrayRef<const Content *> all;
};

/// The addresses of what lies side by side, while that is there.
inline llvm::SmallVector<const Content *, 4>
pointTo(llvm::ArrayRef<Content> contents) {
  return llvm::map_to_vector<4>(contents,
                                [](const Content &own) { return &own; });
}

class Rules;

/// What the result of an op of one result, of `type`, is.
using Rule = llvm::FailureOr<Content> (*)(Rules &rules, mlir::Operation *op,
                                          Operands operands,
                                          mlir::RankedTensorType type);

/// A row of the table.
struct OpRule {
  llvm::StringRef op;
  Rule rule;
  bool takesPacks = false; // by itself; elementwise ops do anyway
  bool takesOwned = false; // rows that belong to one rank each; the same
};

// Each file of rules lists its own.
llvm::ArrayRef<OpRule> getElementwiseRules();
llvm::ArrayRef<OpRule> getShapeRules();
llvm::ArrayRef<OpRule> getChunkRules();
llvm::ArrayRef<OpRule> getContractionRules();
llvm::ArrayRef<OpRule> getIndexRules();
llvm::ArrayRef<OpRule> getCollectiveRules();
llvm::ArrayRef<OpRule> getCompressionRules();
llvm::ArrayRef<OpRule> getKeepRules();

/// The sum of two sums over other chunks of the same; none: they are none.
std::optional<Content> uniteChunks(const Content &first, const Content &second);

/// The sum or the maximum of one tensor over `dims`, which are ascending.
llvm::FailureOr<Content> reduceOver(Rules &rules, mlir::Operation *op,
                                    const Content &input, nn::ReduceKind kind,
                                    llvm::ArrayRef<int64_t> dims,
                                    mlir::RankedTensorType type);

/// Asks `rule` for each member of a pack by itself; the result is seen as
/// `view`. What lies between members stays.
llvm::FailureOr<Content>
mapMembers(Rules &rules, mlir::Operation *op, const Content &input,
           mlir::RankedTensorType type, PackView view,
           llvm::function_ref<llvm::FailureOr<Content>(const Content &)> rule);

// Of packs whose view is not plain: what replicas make of them to compress.
llvm::FailureOr<Content> reduceView(Rules &rules, mlir::Operation *op,
                                    const Content &input,
                                    mlir::RankedTensorType type);
llvm::FailureOr<Content> broadcastView(Rules &rules, mlir::Operation *op,
                                       const Content &input,
                                       mlir::RankedTensorType type);

/// Whether it is a pack of a replica's parts, each with all of its elements.
bool areParts(const Content &input);
/// Counts the elements of the rows that a rank has of a pack.
int64_t countElements(Rules &rules, const Pack &pack);
/// Says that there is no rule for `op` of such a view.
llvm::FailureOr<Content> failView(Rules &rules, mlir::Operation *op,
                                  const Content &input);
/// Whether a rank has whole chunks of `block` elements of `member`, called
/// `name`.
llvm::LogicalResult checkChunks(Rules &rules, mlir::Operation *op,
                                const Content &member, llvm::StringRef name,
                                int64_t block);

/// The one-hot code of `ids`: their dimensions and classes, which `op` counts
/// from `begin` on and of which there are `limit`, or 0. With `other`, of which
/// they are dimension `classes`, it counts the slice that this has.
llvm::FailureOr<Content>
makeOneHot(Rules &rules, mlir::Operation *op, const Content &ids,
           mlir::RankedTensorType type, std::optional<nn::BeginAttr> begin,
           int64_t limit, const Content *other, int64_t classes);

class Rules {
public:
  Rules(Terms &terms, const MeshSizes &mesh, Report &report)
      : terms(terms), mesh(mesh), report(report), repeats(terms) {}

  /// Appends what the results of `op` are; an error on the op if that makes no
  /// sense.
  llvm::LogicalResult evaluate(mlir::Operation *op, Operands operands,
                               Contents &results);

  /// What a rank holds of a leaf that is split over `axes` of each dimension,
  /// in blocks of equal size.
  Content makeLeaf(llvm::StringRef name, mlir::RankedTensorType global,
                   llvm::ArrayRef<llvm::SmallVector<mlir::StringAttr>> axes);
  /// The sum of what lies alike; zeros count nothing.
  llvm::FailureOr<Content> add(mlir::Operation *op, const Content &a,
                               const Content &b);

  /// The same of any number of tensors of `type`.
  llvm::FailureOr<Content> addUp(mlir::Operation *op,
                                 llvm::ArrayRef<Content> summands,
                                 mlir::RankedTensorType type);

  /// A sum of parts and wholes: what it is follows, and mostly it is a mistake.
  struct Mixture {
    mlir::Operation *op;
    std::string text;
    llvm::SmallVector<mlir::Location, 2> writers;
  };
  /// The first one that `term` is made of; null: there is none.
  const Mixture *findMixture(const Term *term) const;
  mlir::InFlightDiagnostic wrong(const Mixture &mixture);

  //===--- What rules ask -------------------------------------------------===//

  llvm::FailureOr<Content> sum(mlir::Operation *op, Operands operands,
                               llvm::ArrayRef<double> factors,
                               mlir::RankedTensorType type);
  llvm::FailureOr<Form> unify(mlir::Operation *op, Operands operands);
  llvm::FailureOr<Content> finish(mlir::Operation *op, Operands operands,
                                  Form form, Expression expression,
                                  mlir::RankedTensorType type);
  /// Tells first of a mixture that the op takes.
  mlir::InFlightDiagnostic wrong(mlir::Operation *op);
  /// The same about operands: tells where they were written.
  mlir::InFlightDiagnostic wrong(mlir::Operation *op, Operands operands);
  mlir::InFlightDiagnostic wrong(mlir::Operation *op, const Content &operand) {
    const Content *one[] = {&operand};
    return wrong(op, Operands(one));
  }
  /// About padding that is taken into a result and should be `neutral`: wrong
  /// where it cannot be. Else the rules may not see what makes it so.
  mlir::InFlightDiagnostic taken(mlir::Operation *op,
                                 const NumberRange &padding, double neutral) {
    return padding.contains(neutral) ? report.unproven(op) : report.wrong(op);
  }
  /// A rank has the diagonal only of what one axis splits twice.
  llvm::LogicalResult checkAxes(mlir::Operation *op, const Form &form);
  llvm::LogicalResult requireWhole(mlir::Operation *op, const Content &operand);
  /// Whether rows that belong to one rank each, if it has such, are a partial
  /// sum.
  llvm::LogicalResult requireSum(mlir::Operation *op, const Content &operand);
  /// Makes that of them.
  llvm::FailureOr<Content> addOwned(mlir::Operation *op,
                                    const Content &operand);
  /// Adds the axes of a reduced dimension to those that `form` is partial over.
  llvm::LogicalResult addPartial(mlir::Operation *op, Form &form,
                                 const Dimension &dim, dist::Reduction kind);

  Terms &terms;
  const MeshSizes &mesh;
  Report &report;
  /// Ops of which it is known what evaluate() would say.
  Repeats repeats;
  /// Whether a mixture was met since this was last set to false.
  bool hasMixed = false;

private:
  void noteMixture(mlir::Operation *op, Operands operands, const Term *sum);
  void derivePadding(mlir::Operation *op, Operands operands, Form &form,
                     mlir::RankedTensorType type);
  /// An op on packs is one on each of their members.
  llvm::FailureOr<Content> evaluatePacked(mlir::Operation *op,
                                          Operands operands, Rule rule,
                                          mlir::RankedTensorType type);
  /// An op on rows that belong to one rank each and stay so.
  llvm::FailureOr<Content> evaluateOwned(mlir::Operation *op, Operands operands,
                                         Rule rule,
                                         mlir::RankedTensorType type);
  llvm::FailureOr<Content> apply(mlir::Operation *op, Operands operands,
                                 const OpRule &rule,
                                 mlir::RankedTensorType type);
  llvm::LogicalResult evaluateFused(nn::FusedMatmulOp op, Operands operands,
                                    Contents &results);
  llvm::LogicalResult decompose(mlir::Operation *op, Operands operands,
                                Contents &results);

  llvm::DenseMap<const Term *, Mixture> mixtures;
  Operands current; // of the op that is interpreted
};

} // namespace plait::proof

#endif // PLAIT_LIB_PROOF_RULES_H
