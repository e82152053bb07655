//===- Callees.h - Reads and writes of function calls -----------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The functions of a step as a call sees them: what they take from the slots
// that it binds and what they put there, where they write, and to which sums
// they add. Read from the functions alone, once for all calls.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_PROOF_CALLEES_H
#define PLAIT_LIB_PROOF_CALLEES_H

#include "plait/Dialect/NN/IR/NN.h"
#include "plait/Dialect/Pipe/IR/Pipe.h"
#include "plait/Dialect/Plan/IR/PlanIR.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/MapVector.h"

namespace plait::proof {

/// One of the sums over microbatches to which a function adds, and how it
/// treats what is there.
struct Adding {
  unsigned sum; // by number
  plan::Accumulate mode;
  SlotOpInterface op;
  bool isState; // it is kept from step to step
};

/// Bytes of a slot; `slot` is -1 for what lies in none.
struct SlotBytes {
  int64_t slot = -1;
  int64_t begin = 0, end = 0;
};

/// What a function takes or gives, and where.
struct Bound {
  pipe::PortAttr port;
  SlotBytes place;
};

/// What calls of a function do.
struct Callee {
  mlir::func::FuncOp function;
  pipe::FunctionAttr own;
  llvm::SmallVector<Bound> takes, gives;
  /// All that any of its ops writes, disjoint.
  llvm::SmallVector<SlotBytes> writes;
  llvm::SmallVector<Adding> addings; // in the order in which they are computed
  llvm::ArrayRef<int64_t> slotBytes;
  unsigned number = 0;
};

class Callees {
public:
  explicit Callees(mlir::ModuleOp module);

  /// Null: no function of a step is called that.
  const Callee *find(mlir::StringAttr name) const {
    auto known = callees.find(name);
    return known == callees.end() ? nullptr : &known->second;
  }
  auto begin() const { return callees.begin(); }
  auto end() const { return callees.end(); }
  size_t size() const { return callees.size(); }
  size_t countSums() const { return sums.size(); }

  /// Whether functions use the buffer by its own name, as that of a parameter.
  bool isNamed(mlir::StringAttr buffer) const { return named.contains(buffer); }

private:
  void add(mlir::func::FuncOp function, pipe::FunctionAttr own);
  llvm::SmallVector<Adding> findAddings(mlir::func::FuncOp function);
  llvm::SmallVector<SlotBytes> findWrites(mlir::func::FuncOp function);

  llvm::MapVector<mlir::StringAttr, Callee> callees; // by name
  llvm::DenseMap<std::pair<mlir::StringAttr, nn::Slot>, unsigned> sums;
  llvm::DenseSet<mlir::StringAttr> named;
};

} // namespace plait::proof

#endif // PLAIT_LIB_PROOF_CALLEES_H
