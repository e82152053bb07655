//===- LetterRule.h - Factors of contractions -------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_DIALECT_NN_IR_LETTERRULE_H
#define PLAIT_LIB_DIALECT_NN_IR_LETTERRULE_H

#include "plait/Dialect/NN/IR/NN.h"

namespace plait::nn {

/// Makes a factor of each letter, which is its name, given those of all
/// operands. Ranks that split a letter that the result lacks hold partial sums.
/// Letters are numbered as they appear, which remarks and the choice among
/// equals go by.
FactorRule getLetterRule(ContractionOpInterface op,
                         llvm::ArrayRef<llvm::StringRef> operands);

} // namespace plait::nn

#endif // PLAIT_LIB_DIALECT_NN_IR_LETTERRULE_H
