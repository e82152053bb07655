//===- Adapters.h - Models of which adapters are trained --------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_DIALECT_NN_IR_ADAPTERS_H
#define PLAIT_DIALECT_NN_IR_ADAPTERS_H

#include "plait/Dialect/NN/IR/NN.h"
#include "plait/Plan/Adapters.h"

#include "mlir/IR/BuiltinOps.h"

namespace plait::nn {

/// Returns the tensor of the files that `parameter` is, or is a part of.
inline llvm::StringRef findTensor(ParameterOp parameter) {
  FileAttr file = parameter.getFileAttr();
  return file ? file.getName().getValue() : parameter.getSymName();
}

/// Whether `parameter` has no master where it is computed with in bf16: where
/// adapters are trained, nothing updates the others, nor are they saved.
inline bool lacksMaster(ParameterOp parameter) {
  auto module = parameter->getParentOfType<mlir::ModuleOp>();
  auto model = module->getAttrOfType<mlir::DictionaryAttr>(kModelAttr);
  return model && model.contains(plan::kAlphaEntry) &&
         !plan::isAdapter(findTensor(parameter));
}

} // namespace plait::nn

#endif // PLAIT_DIALECT_NN_IR_ADAPTERS_H
