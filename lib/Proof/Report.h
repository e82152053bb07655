//===- Report.h - Reasons why there is no proof -----------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_PROOF_REPORT_H
#define PLAIT_LIB_PROOF_REPORT_H

#include "plait/Proof/Prove.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Operation.h"

namespace plait::proof {

/// Collects why there is no proof. The first reason ends it.
class Report {
public:
  /// The program computes something else than is claimed. Notes say which
  /// arguments of its function `op` takes, and where those are returned.
  mlir::InFlightDiagnostic wrong(mlir::Operation *op);
  /// A rule is missing: what `op` computes may be right.
  mlir::InFlightDiagnostic unproven(mlir::Operation *op) {
    verdict = Verdict::Unproven;
    return op->emitWarning("cannot be proven to compute what the model asks "
                           "for: ");
  }
  Verdict getVerdict() const { return verdict; }

private:
  Verdict verdict = Verdict::Proven;
};

} // namespace plait::proof

#endif // PLAIT_LIB_PROOF_REPORT_H
