//===- Certificate.cpp - Certificates of plans ----------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What the plan says of its proof. The proof itself is lib/Proof's; here it is
// called, its reasons are kept for the certificate, and model and plan are
// named by hashes. A claim that fails is an error, since the plan computes
// something else; one that cannot be decided is a warning, and the plan says
// so.
//
//===----------------------------------------------------------------------===//

#include "Certificate.h"

#include "plait/Dialect/Plait/IR/Plait.h"
#include "plait/Plan/Container.h"
#include "plait/Proof/Kernels.h"
#include "plait/Proof/Prove.h"

#include "mlir/IR/Diagnostics.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Support/xxhash.h"

using namespace mlir;
using namespace plait;

/// A newer prover may know more: plans name theirs.
static CertificatePtr createCertificate() {
  auto certificate = std::make_unique<plan::fb::CertificateT>();
  certificate->prover = "plaitc " PLAIT_VERSION;
  return certificate;
}

/// Hashes it as if it had been read from the dump of phase import. The text is
/// without locations, so that the dump of the model has the same hash.
static uint64_t hashText(ModuleOp model) {
  setPhase(model, Phase::Import, /*mesh=*/"");
  keepOrigins(model);
  std::string text;
  llvm::raw_string_ostream out(text);
  // It has been verified when it was imported, or printing would do it again.
  model->print(out, OpPrintingFlags().assumeVerified());
  return llvm::xxh3_64bits(text);
}

/// The plan is written all the same, and says why.
CertificatePtr plait::certifyNothing(const llvm::Twine &reason,
                                     Messages &messages) {
  CertificatePtr certificate = createCertificate();
  certificate->unproven = reason.str();
  messages.warn("the plan is not proven: " + reason);
  return certificate;
}

/// Kernels of processors run on this machine, against what they were made from.
FailureOr<std::string>
plait::checkKernels(const plan::fb::PlanT &plan,
                    ArrayRef<codegen::EmittedKernel> kernels,
                    TargetAttr target) {
  if (target && target.isGPU())
    return std::to_string(kernels.size()) +
           " for GPUs, which were not run on this machine";
  // A plan without code has no kernels, as one of copies and collectives.
  if (plan.code.empty())
    return std::string("there are none");
  return proof::checkKernels(
      kernels,
      {plan.code[0]->cpu, target ? target.getFeatures().str() : std::string()},
      plan.code[0]->data);
}

/// 1. The model's hash, before the claim is made of it.
/// 2. The first diagnostic is kept as the reason, and is printed all the same.
/// 3. The claim: the training step of the model on one rank.
/// 4. The verdict.
CertificatePtr plait::certify(OwningOpRef<ModuleOp> model, ModuleOp lowered) {
  CertificatePtr certificate = createCertificate();
  // 1. Which model.
  certificate->model = hashText(*model);
  // 2. Why not, if not.
  std::string reason;
  // Ends with this function; the context's own handler prints.
  ScopedDiagnosticHandler keep(lowered->getContext(), [&](Diagnostic &diag) {
    if (reason.empty())
      reason = diag.str();
    return failure(); // told by others
  });
  // 3. The claim takes the model.
  auto claim = proof::makeClaim(std::move(model));
  if (!claim)
    return nullptr;
  // 4. Each has been told by its own diagnostics.
  switch (proof::proveMeaning(*claim, lowered)) {
  case proof::Verdict::Wrong:
    return nullptr;
  case proof::Verdict::Unproven:
    certificate->unproven = reason;
    break;
  case proof::Verdict::Proven:
    break;
  }
  return certificate;
}

/// Last of all: what changes afterwards is not what was proven.
void plait::addCertificate(CertificatePtr certificate, plan::fb::PlanT &plan) {
  plan.certificate = std::move(certificate);
  if (plan.certificate)
    plan::certifyPlan(plan);
}
