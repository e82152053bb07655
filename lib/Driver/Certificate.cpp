//===- Certificate.cpp - What is proven of a plan -------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Certificate.h"

#include "Model.h"
#include "plait/Dialect/Plait/IR/Plait.h"
#include "plait/Plan/Container.h"
#include "plait/Proof/Kernels.h"
#include "plait/Proof/Prove.h"

#include "mlir/IR/Diagnostics.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Support/xxhash.h"

using namespace mlir;
using namespace plait;

static CertificatePtr createCertificate() {
  auto certificate = std::make_unique<plan::fb::CertificateT>();
  certificate->prover = "plaitc " PLAIT_VERSION;
  return certificate;
}

/// As if it had been read from the dump of phase import.
static uint64_t hashText(ModuleOp model) {
  setPhase(model, Phase::Import);
  keepOrigins(model);
  std::string text;
  llvm::raw_string_ostream out(text);
  model->print(out);
  return llvm::xxh3_64bits(text);
}

CertificatePtr plait::certifyNothing(const llvm::Twine &reason) {
  CertificatePtr certificate = createCertificate();
  certificate->unproven = reason.str();
  printWarning("the plan is not proven: " + reason);
  return certificate;
}

FailureOr<std::string>
plait::checkKernels(const plan::fb::PlanT &plan,
                    ArrayRef<codegen::EmittedKernel> kernels,
                    TargetAttr target) {
  if (target && target.isGPU())
    return std::to_string(kernels.size()) +
           " for GPUs, which were not run on this machine";
  if (plan.code.empty())
    return std::string("there are none");
  return proof::checkKernels(
      kernels,
      {plan.code[0]->cpu, target ? target.getFeatures().str() : std::string()},
      plan.code[0]->data);
}

CertificatePtr plait::certify(OwningOpRef<ModuleOp> model, ModuleOp lowered) {
  CertificatePtr certificate = createCertificate();
  certificate->model = hashText(*model);
  std::string reason;
  ScopedDiagnosticHandler keep(lowered->getContext(), [&](Diagnostic &diag) {
    if (reason.empty())
      reason = diag.str();
    return failure(); // told by others
  });
  auto claim = proof::makeClaim(std::move(model));
  if (!claim)
    return nullptr;
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

void plait::addCertificate(CertificatePtr certificate, plan::fb::PlanT &plan) {
  if (certificate)
    certificate->plan = plan::hashPlan(plan);
  plan.certificate = std::move(certificate);
}
