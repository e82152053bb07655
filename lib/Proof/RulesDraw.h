//===- RulesDraw.h - Rules of random numbers of compressors -----*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_PROOF_RULESDRAW_H
#define PLAIT_LIB_PROOF_RULESDRAW_H

#include "Rules.h"

namespace plait::proof {

llvm::ArrayRef<OpRule> getDrawRules();

} // namespace plait::proof

#endif // PLAIT_LIB_PROOF_RULESDRAW_H
