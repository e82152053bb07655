//===- AlikeLayers.h - Layers that compute the same ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Repeated layers differ in the names of their parameters and in nothing else.
// Whoever decides something for a layer can decide it once for all that are
// alike.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_ANALYSIS_ALIKELAYERS_H
#define PLAIT_ANALYSIS_ALIKELAYERS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/DenseMap.h"

#include <map>

namespace plait {

class AlikeLayers {
public:
  /// Groups the ops of `function` that carry `nn.layer`. The function must stay
  /// as it is while this object is used.
  explicit AlikeLayers(mlir::func::FuncOp function);

  /// The op that stands where `op` does in the first layer that is alike; `op`
  /// itself if it is of that layer or of none.
  mlir::Operation *representative(mlir::Operation *op) const;

  /// The ops of every layer, in program order.
  const std::map<int64_t, llvm::SmallVector<mlir::Operation *>> &
  getLayers() const {
    return layers;
  }
  /// The first layer that is like `layer`.
  int64_t getFirst(int64_t layer) const { return first.at(layer); }

private:
  std::map<int64_t, llvm::SmallVector<mlir::Operation *>> layers;
  std::map<int64_t, int64_t> first;
  llvm::DenseMap<mlir::Operation *, mlir::Operation *> alike;
};

} // namespace plait

#endif // PLAIT_ANALYSIS_ALIKELAYERS_H
