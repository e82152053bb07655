//===- NN.h - The nn dialect ------------------------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The training graph; the contracts are in NN*Ops.td.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_DIALECT_NN_IR_NN_H
#define PLAIT_DIALECT_NN_IR_NN_H

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/IR/TypeUtilities.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "plait/Dialect/Dist/IR/Dist.h"
#include "plait/Dialect/NN/IR/Slot.h"
#include "plait/Interfaces/OpInterfaces.h"
#include "plait/Support/AttentionTraits.h"
#include <optional>
#include <string>

#include "plait/Dialect/NN/IR/NNDialect.h.inc"
#include "plait/Dialect/NN/IR/NNEnums.h.inc"
#define GET_ATTRDEF_CLASSES
#include "plait/Dialect/NN/IR/NNAttrs.h.inc"

namespace plait::nn {
/// Says what an op does to a slot of a parameter.
enum class SlotAccess { Read, Replace, Add };

/// Memory that a step finds or leaves.
struct StepMemory {
  enum Kind {
    InSlot, // `slot` of the parameter, pack or accumulator `name`
    Scalar, // what the trainer sets as `name`
    Metric, // what it is told as `name`
  };
  Kind kind;
  llvm::StringRef name;
  Slot slot = Slot::Value;
};

/// Says that an op takes the entries of `from` that `ids` name, along `dim`, of
/// which a rank has those from `begin` on.
struct Selection {
  mlir::Value ids, from;
  int64_t dim = 0;
  BeginAttr begin;
  int64_t limit = 0; // entries of the whole; 0: not said

  /// Counts the entries of the rank that runs the op.
  int64_t getEntries() const {
    return llvm::cast<mlir::RankedTensorType>(from.getType()).getDimSize(dim);
  }
  /// Whether it is one of the classes of a row.
  bool isOfRow() const {
    return dim + 1 ==
           llvm::cast<mlir::RankedTensorType>(from.getType()).getRank();
  }
};

/// The words of a score, which ops of several dialects have.
mlir::ParseResult parseScore(mlir::OpAsmParser &parser, ScoreAttr &score);
void printScore(mlir::OpAsmPrinter &printer, mlir::Operation *op,
                ScoreAttr score);

/// One parallel factor per dimension of the result: no dimension is special.
FactorRule elementwiseRule(mlir::Operation *op);
} // namespace plait::nn

#include "plait/Dialect/NN/IR/NNInterfaces.h.inc"

#define GET_OP_CLASSES
#include "plait/Dialect/NN/IR/NNOps.h.inc"

namespace plait::nn {

/// Returns what `op`, which may be null, does to a slot; nothing where it is no
/// such op.
inline std::optional<SlotAccess> getSlotAccess(mlir::Operation *op) {
  auto access = llvm::dyn_cast_or_null<SlotOpInterface>(op);
  return access ? std::optional(access.getAccess()) : std::nullopt;
}

/// The ops within `root` that access slots in this way, in order.
llvm::SmallVector<SlotOpInterface> findAccesses(mlir::Operation *root,
                                                SlotAccess access);

/// The discardable attribute with the index of the repeated block of an op.
inline constexpr llvm::StringLiteral kLayerAttr = "nn.layer";

/// The discardable unit attribute of an op of the backward pass.
inline constexpr llvm::StringLiteral kBackwardAttr = "nn.backward";

/// The number of a dropout in its model, which tells its masks from others'.
inline constexpr llvm::StringLiteral kSiteAttr = "site";

/// The name of the function that computes the loss.
inline constexpr llvm::StringLiteral kLossFunction = "loss";

/// The module attribute that describes the model: a dictionary with
/// `model_type`, `name`, `vocab` and `layers`.
inline constexpr llvm::StringLiteral kModelAttr = "plait.model";

/// (L1) to (L6) of the dialect for the body of the loss function, which takes
/// the inputs of Inputs.h and returns numbers; ids are
/// less than `vocab`, unless it is 0 and not known. Errors name the op or the
/// parameter.
mlir::LogicalResult verifyLoss(mlir::FunctionOpInterface loss, int64_t vocab);

/// The position along `dim` in the whole tensor, as i32, of which the rank
/// holds the part that `begin` says; null: all of it, in order.
mlir::Value emitPosition(ElementContext &context, int64_t dim, BeginAttr begin);

/// Returns where a rank's part of a dimension begins that as a whole lies in
/// the order of `whole`, which may be null.
BeginAttr localize(BeginAttr whole, mlir::MLIRContext *context,
                   llvm::ArrayRef<RankTerm> begin, int64_t limit);

/// Finds which variants of attention the ops within `root` are.
AttentionTraits findAttentionTraits(mlir::Operation *root);

/// The element type that the gradient of `primal` has: that of `primal`, but
/// f32 for a parameter's compute copy, resharded or not. Its gradient is added
/// up over microbatches and ranks, where a bf16 sum would stop growing.
mlir::Type getGradientElementType(mlir::Value primal);

/// (C1) to (C3) of `nn.dropout` for an op that drops elements of `batch`
/// sequences, or has neither keys nor probability nor site.
mlir::LogicalResult verifyDropout(mlir::Operation *op, mlir::Value keys,
                                  int64_t batch, mlir::FloatAttr probability,
                                  mlir::IntegerAttr site);

/// (C1) and (C2) of `nn.matmul`.
mlir::LogicalResult verifyLetters(ContractionOpInterface op);
/// (C1) to (C3) of `nn.matmul`.
mlir::LogicalResult verifyContraction(ContractionOpInterface op);

/// Fails unless `sum`, the result of the op, may add up numbers like `term`. A
/// sum may be wider than its terms, as the gradient of a bf16 parameter is
/// (getGradientElementType()), but not narrower.
mlir::LogicalResult verifySum(mlir::Operation *op, mlir::Value term,
                              mlir::Value sum);

/// Verifies an op on rows, of which the rank has those from `begin` on, and
/// there are `limit`, or 0.
mlir::LogicalResult verifyRowLimit(mlir::Operation *op, BeginAttr begin,
                                   int64_t limit);

/// The letters of a contraction that is one matmul of two matrices, without
/// those of extent 1; none is empty but `rows`.
struct PlainMatmul {
  std::string rows, columns, summed;
};

/// `op` as one matmul of matrices whose rows or columns lie side by side in
/// memory, (C5) of `nn.fused_matmul`; nothing where it is no such matmul.
std::optional<PlainMatmul> getPlainMatmul(ContractionOpInterface op);

/// Whether `op` can be an `nn.fused_matmul`: it is one matmul, of operands and
/// a result of one type.
bool isFusable(ContractionOpInterface op);

/// The angles' frequencies of a rotary embedding of `size` elements: size / 2
/// numbers in radians per position.
std::vector<double> computeRopeFrequencies(double theta,
                                           RopeScalingAttr scaling,
                                           YarnAttr yarn, int64_t size);

} // namespace plait::nn

#endif // PLAIT_DIALECT_NN_IR_NN_H
