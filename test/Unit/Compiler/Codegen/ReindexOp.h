//===- ReindexOp.h - An op with any index map -------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// "test.reindex" sums its first operand at the indices that its attributes say
// and all others at its own. No analysis and no emitter knows it.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_TEST_UNIT_COMPILER_CODEGEN_REINDEXOP_H
#define PLAIT_TEST_UNIT_COMPILER_CODEGEN_REINDEXOP_H

#include "plait/Dialect/NN/IR/NN.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/Dialect.h"

namespace plait::test {

class ReindexOp
    : public mlir::Op<ReindexOp, mlir::OpTrait::ZeroRegions,
                      mlir::OpTrait::OneResult, mlir::OpTrait::ZeroSuccessors,
                      mlir::OpTrait::VariadicOperands,
                      FusableOpInterface::Trait, ShardableOpInterface::Trait> {
public:
  using Op::Op;
  static llvm::StringRef getOperationName() { return "test.reindex"; }
  static llvm::ArrayRef<llvm::StringRef> getAttributeNames() { return {}; }

  FactorRule getFactorRule() {
    FactorRule rule = nn::elementwiseRule(*this);
    rule.factors[getIndexMap().dim].kind = FactorKind::Whole;
    return rule;
  }
  FusionRole getFusionRole() { return FusionRole::Reindex; }
  /// dim = 1, ends = [3, 8], shifts = [5, -3], negated = [true, false].
  IndexMap getIndexMap() {
    auto list = [&](const char *name) {
      return (*this)->getAttrOfType<mlir::ArrayAttr>(name).getValue();
    };
    IndexMap map;
    map.dim = (*this)->getAttrOfType<mlir::IntegerAttr>("dim").getInt();
    for (auto [end, shift, negated] :
         llvm::zip_equal(list("ends"), list("shifts"), list("negated")))
      map.pieces.push_back({llvm::cast<mlir::IntegerAttr>(end).getInt(),
                            llvm::cast<mlir::IntegerAttr>(shift).getInt(),
                            llvm::cast<mlir::BoolAttr>(negated).getValue()});
    return map;
  }
  mlir::Value emitElement(ElementContext &context, mlir::ValueRange operands) {
    mlir::Value sum = operands.front();
    for (mlir::Value other : operands.drop_front())
      sum =
          mlir::arith::AddFOp::create(context.builder, context.loc, sum, other);
    return sum;
  }
};

class TestDialect : public mlir::Dialect {
public:
  explicit TestDialect(mlir::MLIRContext *context)
      : Dialect("test", context, mlir::TypeID::get<TestDialect>()) {
    addOperations<ReindexOp>();
  }
  static llvm::StringRef getDialectNamespace() { return "test"; }
};

} // namespace plait::test

#endif // PLAIT_TEST_UNIT_COMPILER_CODEGEN_REINDEXOP_H
