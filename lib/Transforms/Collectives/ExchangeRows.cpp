//===- ExchangeRows.cpp - Rows of experts in place of all tokens ----------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Ranks that split experts gather the tokens of all, and scatter sums of what
// their own experts make. Most of a token is of use to few ranks: it is
// dispatched to those (Lepikhin et al. 2020, "GShard"), once to each, however
// many of its choices are there. What comes back is a row for each choice, and
// the token's rank adds up: in the order of choices, as where no axis splits
// experts.
//
// Works on one rank's tensors, where experts may have been cut into chunks. It
// finds gathers by who reads them, and scatters by what they add up; whether
// that is the same step is the proof's to show, which knows no more of it.
//
//===----------------------------------------------------------------------===//

#include "../Remarks.h"
#include "plait/Dialect/Dist/IR/Dist.h"
#include "plait/Dialect/NN/IR/NN.h"
#include "plait/Dialect/Plait/IR/Plait.h"
#include "plait/Transforms/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace plait {
#define GEN_PASS_DEF_EXCHANGEROWSPASS
#include "plait/Transforms/Passes.h.inc"
} // namespace plait

using namespace mlir;
using namespace plait;

namespace {

/// Says by what rows belong to ranks: null ids, they do not.
struct Rows {
  mlir::TypedValue<RankedTensorType> ids;
  int64_t experts = 0; // of a rank

  explicit operator bool() const { return bool(ids); }
  bool operator==(const Rows &) const = default;
};

/// Exchanges along one axis.
class Exchanger {
public:
  explicit Exchanger(StringRef axis) : axis(axis) {}

  void dispatch(dist::AllGatherOp gather);
  void combine(dist::ReduceScatterOp scatter);

private:
  Rows getRows(GroupedOpInterface matmul) const;
  Rows findRows(Value value, int depth = 0) const;
  Rows findReaders(Value gathered, SmallVectorImpl<Operation *> &repeats) const;
  Rows findOwnRows(Value value) const;
  Rows findSummed(Value sum) const;
  Value bringHome(OpBuilder &builder, dist::ReduceScatterOp scatter, Value sum);
  void eraseSum(Value sum);

  StringRef axis;
};

} // namespace

static ArrayRef<int64_t> shapeOf(Value value) {
  return cast<RankedTensorType>(value.getType()).getShape();
}

/// The axis has to be the one that splits the op's experts.
Rows Exchanger::getRows(GroupedOpInterface matmul) const {
  std::optional<nn::BeginAttr> begin = matmul.getBegin();
  if (!begin || begin->getTerms().size() != 1 ||
      begin->getTerms().front().axis != axis)
    return {};
  return {matmul.getIds(), begin->getTerms().front().scale};
}

/// Finds who makes the rows: the first grouped matmul that elementwise ops lead
/// to, of which there are few behind one.
Rows Exchanger::findRows(Value value, int depth) const {
  constexpr int most = 4;
  Operation *maker = value.getDefiningOp();
  if (auto matmul = dyn_cast_if_present<GroupedOpInterface>(maker))
    return matmul.makesMatrices() ? Rows() : getRows(matmul);
  if (!maker || depth == most || !maker->hasTrait<OpTrait::Elementwise>())
    return {};
  for (Value operand : maker->getOperands())
    if (Rows rows = findRows(operand, depth + 1))
      return rows;
  return {};
}

//===----------------------------------------------------------------------===//
// Gathers
//===----------------------------------------------------------------------===//

/// Finds by what all readers of `gathered` take its rows: grouped matmuls
/// alone, or what repeats it for them.
Rows Exchanger::findReaders(Value gathered,
                            SmallVectorImpl<Operation *> &repeats) const {
  Rows rows;
  for (OpOperand &use : gathered.getUses()) {
    Rows own;
    if (auto matmul = dyn_cast<GroupedOpInterface>(use.getOwner())) {
      bool isRows = use.get() != matmul.getIds() &&
                    (use.getOperandNumber() == 0 || matmul.makesMatrices());
      own = isRows ? getRows(matmul) : Rows();
    } else if (getFacts(use.getOwner()).repeats && repeats.empty()) {
      repeats.push_back(use.getOwner());
      own = findReaders(use.getOwner()->getResult(0), repeats);
    }
    if (!own || (rows && rows != own))
      return {};
    rows = own;
  }
  return rows;
}

/// Behind the gather and the ids; what repeats it in front of them moves along.
void Exchanger::dispatch(dist::AllGatherOp gather) {
  SmallVector<Operation *> repeats;
  Rows rows = findReaders(gather.getResult(), repeats);
  auto options = about(gather, "experts", "dist-exchange-rows");
  if (gather.getAxis() != axis || gather.getDim() != 0 || !rows)
    return;
  Operation *last = rows.ids.getDefiningOp();
  if (!last || last->getBlock() != gather->getBlock() ||
      last->isBeforeInBlock(gather))
    last = gather;
  OpBuilder builder(gather.getContext());
  builder.setInsertionPointAfter(last);
  auto made = dist::DispatchOp::create(
      builder, gather.getLoc(), gather.getType(), gather.getInput(), rows.ids,
      gather.getMeshAttr(), gather.getAxisAttr(),
      builder.getI64IntegerAttr(rows.experts));
  made->setDiscardableAttrs(gather->getDiscardableAttrDictionary());
  for (Operation *repeat : repeats)
    if (repeat->isBeforeInBlock(made))
      repeat->moveAfter(made);
  gather.replaceAllUsesWith(made.getResult());
  remark::passed(made.getLoc(), options) << remark::add(
      "tokens go to ranks of \"{0}\" that have experts of theirs", axis);
  gather.erase();
}

//===----------------------------------------------------------------------===//
// Scatters
//===----------------------------------------------------------------------===//

/// Whether `value` has rows of experts: by their ids, and some numbers each.
Rows Exchanger::findOwnRows(Value value) const {
  Rows rows = findRows(value);
  if (!rows)
    return {};
  ArrayRef<int64_t> ids = shapeOf(rows.ids), of = shapeOf(value);
  return of.size() > ids.size() && of.take_front(ids.size()) == ids ? rows
                                                                    : Rows();
}

/// Finds by what the rows belong that `sum` is, or whose sum over the choices
/// of tokens it is, or the sum of several such sums.
Rows Exchanger::findSummed(Value sum) const {
  if (Rows rows = findOwnRows(sum))
    return rows;
  if (!sum.hasOneUse())
    return {};
  Operation *maker = sum.getDefiningOp();
  if (maker && maker->hasTrait<AddsOperands>()) {
    Rows rows = findSummed(maker->getOperand(0));
    return rows == findSummed(maker->getOperand(1)) ? rows : Rows();
  }
  if (!getFacts(maker).adds)
    return {};
  auto reduce = cast<FusableOpInterface>(maker);
  Rows rows = findOwnRows(reduce->getOperand(0));
  return rows && reduce.getDims() == ArrayRef{rows.ids.getType().getRank() - 1}
             ? rows
             : Rows();
}

/// Makes the rank's block of `sum` from the rows of its tokens.
Value Exchanger::bringHome(OpBuilder &builder, dist::ReduceScatterOp scatter,
                           Value sum) {
  auto type = cast<RankedTensorType>(sum.getType());
  SmallVector<int64_t> shape(type.getShape());
  shape[0] = scatter.getType().getDimSize(0);
  if (Rows rows = findOwnRows(sum)) {
    auto combined = dist::CombineOp::create(
        builder, scatter.getLoc(), type.clone(shape), sum, rows.ids,
        scatter.getMeshAttr(), scatter.getAxisAttr(),
        builder.getI64IntegerAttr(rows.experts));
    combined->setDiscardableAttrs(scatter->getDiscardableAttrDictionary());
    return combined.getResult();
  }
  IRMapping home;
  for (Value operand : sum.getDefiningOp()->getOperands())
    home.map(operand, bringHome(builder, scatter, operand));
  Operation *copy = builder.clone(*sum.getDefiningOp(), home);
  copy->getResult(0).setType(type.clone(shape));
  return copy->getResult(0);
}

/// Erases what bringHome() has made again.
void Exchanger::eraseSum(Value sum) {
  Operation *maker = sum.getDefiningOp();
  if (findOwnRows(sum) || !sum.use_empty())
    return;
  SmallVector<Value> operands(maker->getOperands());
  maker->erase();
  for (Value operand : operands)
    eraseSum(operand);
}

void Exchanger::combine(dist::ReduceScatterOp scatter) {
  if (scatter.getAxis() != axis || scatter.getDim() != 0 ||
      scatter.getReduction() != dist::Reduction::Sum)
    return;
  Value sum = scatter.getInput();
  Rows rows = findSummed(sum);
  auto options = about(scatter, "experts", "dist-exchange-rows");
  if (!rows) {
    remark::missed(scatter.getLoc(), options) << remark::add(
        "ranks of \"{0}\" add up what is no sum over choices", axis);
    return;
  }
  OpBuilder builder(scatter);
  Value block = bringHome(builder, scatter, sum);
  remark::passed(scatter.getLoc(), options)
      << remark::add("rows come back from ranks of \"{0}\"", axis);
  scatter.replaceAllUsesWith(block);
  scatter.erase();
  eraseSum(sum);
}

namespace {
struct ExchangeRowsPass : plait::impl::ExchangeRowsPassBase<ExchangeRowsPass> {
  using ExchangeRowsPassBase::ExchangeRowsPassBase;

  /// Ops are collected before any is replaced.
  template <typename OpTy>
  static void forEach(func::FuncOp function, function_ref<void(OpTy)> visit) {
    SmallVector<OpTy> ops(function.getOps<OpTy>());
    llvm::for_each(ops, visit);
  }

  void runOnOperation() override {
    ModuleOp module = getOperation();
    if (getConfiguration(module).expertExchange != ExpertExchange::Rows)
      return;
    WalkResult found =
        module.walk([](GroupedOpInterface) { return WalkResult::interrupt(); });
    if (!found.wasInterrupted()) {
      module.emitError("rows of experts are to be exchanged "
                       "(`expert-exchange` rows), but the model has none");
      return signalPassFailure();
    }
    for (const AxisFacts &facts : kAxes) {
      if (!facts.splitsExperts)
        continue;
      Exchanger exchanger(facts.name);
      for (auto function : module.getOps<func::FuncOp>()) {
        if (function.getBody().empty())
          continue;
        forEach<dist::AllGatherOp>(
            function, [&](dist::AllGatherOp op) { exchanger.dispatch(op); });
        forEach<dist::ReduceScatterOp>(
            function, [&](dist::ReduceScatterOp op) { exchanger.combine(op); });
      }
    }
  }
};
} // namespace
