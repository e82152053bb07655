//===- ElementType.h - Element types in the plan ----------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_CONVERSION_ELEMENTTYPE_H
#define PLAIT_CONVERSION_ELEMENTTYPE_H

#include "mlir/IR/TypeUtilities.h"
#include "plait/Plan/Plan_generated.h"

namespace plait {

/// What the plan calls the elements of a float tensor: bf16 or, for all others,
/// f32.
inline plan::fb::DType getElementDType(mlir::Value value) {
  return mlir::getElementTypeOrSelf(value).isBF16() ? plan::fb::DType::BF16
                                                    : plan::fb::DType::F32;
}

} // namespace plait

#endif // PLAIT_CONVERSION_ELEMENTTYPE_H
