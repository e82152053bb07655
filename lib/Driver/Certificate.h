//===- Certificate.h - Certificates of plans --------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_DRIVER_CERTIFICATE_H
#define PLAIT_LIB_DRIVER_CERTIFICATE_H

#include "Messages.h"
#include "plait/Codegen/Kernel.h"
#include "plait/Dialect/Plait/IR/Plait.h"
#include "plait/Plan/Plan_generated.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "llvm/ADT/Twine.h"
#include <memory>

namespace plait {

using CertificatePtr = std::unique_ptr<plan::fb::CertificateT>;

/// Holds `lowered` against the step of the imported `model` on one rank. Null
/// after errors: it computes something else. What has no rule is warned of and
/// noted.
CertificatePtr certify(mlir::OwningOpRef<mlir::ModuleOp> model,
                       mlir::ModuleOp lowered);

/// Runs the kernels of a plan where that can be done (plait/Proof/Kernels.h);
/// failure after an error: one computes something else. Else what is known.
mlir::FailureOr<std::string>
checkKernels(const plan::fb::PlanT &plan,
             llvm::ArrayRef<codegen::EmittedKernel> kernels, TargetAttr target);

/// The certificate of what cannot be proven for `reason`, of which it warns.
CertificatePtr certifyNothing(const llvm::Twine &reason, Messages &messages);

/// Writes `certificate`, null where there is none, into the plan that it is of.
void addCertificate(CertificatePtr certificate, plan::fb::PlanT &plan);

} // namespace plait

#endif // PLAIT_LIB_DRIVER_CERTIFICATE_H
