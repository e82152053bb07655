//===- Prove.h - A proof of what a partitioned step computes ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Shows that the functions and programs of a compiled step, executed on all
// ranks of the mesh, update every parameter and every moment and report the
// loss and the norm as the unpartitioned step does, up to the rounding of sums
// that are added up in another order.
//
// The method is abstract interpretation (Cousot and Cousot 1977): of each value
// it is known which global tensor it is, as an expression over parameters and
// inputs, and how the ranks' tensors make it up: slices, partial sums, copies.
// An op on such forms either gives such a form or is an error. Both steps are
// interpreted by the same rules; then the expressions must be equal. The rules
// share nothing with the passes that partition, schedule and place; both rely
// on what the ops are defined to compute.
//
// Trusted are: the differentiation and the optimizer of one rank, with which
// the claim is made (PyTorch's numbers test those), the rules, the runtime, and
// that ids lie in their range and memory starts with zeros.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_PROOF_PROVE_H
#define PLAIT_PROOF_PROVE_H

#include "mlir/IR/BuiltinOps.h"

namespace plait::proof {

enum class Verdict {
  Proven,
  /// The step computes something else.
  Wrong,
  /// There is no rule for something that it does: it may be right.
  Unproven,
};

/// Compares the step of `plan`, after any phase from `partition` on, with that
/// of `claim`, one rank's, from makeClaim(). Both are in one context. What is
/// Wrong is told by one error at the op that is to blame, what is Unproven by a
/// warning.
Verdict proveMeaning(mlir::ModuleOp claim, mlir::ModuleOp plan);

/// The step of an imported `model` on one rank: differentiated, with its
/// optimizer. What the module says of how to spread it is forgotten. Null after
/// an error.
mlir::OwningOpRef<mlir::ModuleOp>
makeClaim(mlir::OwningOpRef<mlir::ModuleOp> model);

} // namespace plait::proof

#endif // PLAIT_PROOF_PROVE_H
