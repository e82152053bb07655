//===- PackParameters.cpp - One update for many parameters ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A parameter's reduction, norm and update are small beside what it takes to
// start them. Parameters to which the same is done are laid side by side, and
// it is done once, to all of them.
//
// Padding holds zeros from the start of a run, and nothing writes to the
// padding of gradients; AdamW leaves zeros of zeros. (Where its epsilon is 0,
// the padding of values becomes 0 / 0, which no kernel but the update reads.)
//
//===----------------------------------------------------------------------===//

#include "StepEnd.h"
#include "plait/Dialect/NN/IR/NNBuilder.h"
#include "plait/Transforms/Passes.h"

#include "mlir/IR/IRMapping.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/Support/MathExtras.h"

#include <functional>
#include <map>

namespace plait {
#define GEN_PASS_DEF_PACKPARAMETERSPASS
#include "plait/Transforms/Passes.h.inc"
} // namespace plait

using namespace mlir;
using namespace plait;

/// Packs are tables with rows of at most so many elements: the norm is summed
/// up by rows, side by side, and then over rows. Enough rows for every core of
/// a GPU, and few enough that the second sum takes no time.
static constexpr int64_t kColumns = 4096;

namespace {

/// Packs parameters of one stage.
class Packer {
public:
  Packer(ArrayRef<ParameterEnd> members, int64_t stage, SymbolTable &symbols)
      : members(members), stage(stage), symbols(symbols),
        builder(symbols.getOp()->getContext()) {}

  /// `index` tells the packs of the stage apart.
  void run(unsigned index) {
    createPack(index);
    mergeReductions();
    mergeNorms();
    mergeUpdates();
  }

private:
  void createPack(unsigned index);
  void mergeReductions();
  void mergeNorms();
  void mergeUpdates();
  Value read(nn::Slot slot) {
    return nn::ReadOp::create(builder, loc, pack.getSlotType(slot),
                              pack.getSymName(), slot);
  }
  void write(Value value, nn::Slot slot) {
    nn::WriteOp::create(builder, loc, value, pack.getSymName(), slot);
  }
  Value repeat(Value value, IRMapping &done);

  ArrayRef<ParameterEnd> members;
  int64_t stage;
  SymbolTable &symbols;
  OpBuilder builder;
  nn::PackOp pack;
  Location loc = builder.getUnknownLoc();
};

} // namespace

//===----------------------------------------------------------------------===//
// The layout
//===----------------------------------------------------------------------===//

void Packer::createPack(unsigned index) {
  SmallVector<Attribute> names;
  SmallVector<int64_t> offsets;
  int64_t total = 0;
  for (const ParameterEnd &member : members) {
    nn::ParameterOp parameter = member.parameter;
    names.push_back(FlatSymbolRefAttr::get(parameter.getSymNameAttr()));
    offsets.push_back(total);
    total = llvm::alignTo(total + member.type.getNumElements(),
                          nn::PackOp::kAlignment);
  }
  int64_t columns = std::min<int64_t>(kColumns, llvm::PowerOf2Ceil(total));
  int64_t rows = llvm::divideCeil(total, columns);
  auto type = RankedTensorType::get({rows, columns}, builder.getF32Type());
  std::string name = ("pack" + Twine(stage) + "." + Twine(index)).str();
  loc = NameLoc::get(builder.getStringAttr(name));
  auto module = cast<ModuleOp>(symbols.getOp());
  builder.setInsertionPoint(*module.getOps<func::FuncOp>().begin());
  pack = nn::PackOp::create(builder, loc, name, stage,
                            builder.getArrayAttr(names), offsets, type);
  symbols.insert(pack);
}

//===----------------------------------------------------------------------===//
// What is done to a pack
//===----------------------------------------------------------------------===//

void Packer::mergeReductions() {
  const ParameterEnd &first = members.front();
  if (!first.reduced)
    return;
  builder.setInsertionPoint(first.reduced);
  // Stored after each one, so that all work in place.
  for (dist::AllReduceOp reduction : first.reductions) {
    IRMapping operand;
    operand.map(reduction.getInput(), read(nn::Slot::Gradient));
    auto *merged = builder.clone(*reduction, operand);
    merged->getResult(0).setType(pack.getSlotType(nn::Slot::Gradient));
    merged->setLoc(loc);
    write(merged->getResult(0), nn::Slot::Gradient);
  }
  for (const ParameterEnd &member : members) {
    nn::WriteOp(member.reduced).erase();
    for (dist::AllReduceOp reduction : llvm::reverse(member.reductions))
      reduction.erase();
  }
}

void Packer::mergeNorms() {
  Value first = members.front().norm;
  if (!first)
    return;
  builder.setInsertionPointAfterValue(first);
  nn::NNBuilder nn(builder, loc);
  Value gradient = read(nn::Slot::Gradient);
  Value rows = nn.sumRows(nn.mul(gradient, gradient));
  first.replaceAllUsesWith(nn.sumRows(rows));
  for (const ParameterEnd &member : members.drop_front()) {
    auto sum = cast<nn::AddOp>(*member.norm.user_begin());
    Value others = sum.getLhs() == member.norm ? sum.getRhs() : sum.getLhs();
    sum.replaceAllUsesWith(others);
    sum.erase();
  }
}

/// `value`, an expression of the first member's tensors, of those of the pack.
/// What is repeated stands before the op it repeats.
Value Packer::repeat(Value value, IRMapping &done) {
  if (Value known = done.lookupOrNull(value))
    return known;
  Operation *op = value.getDefiningOp();
  auto type = cast<RankedTensorType>(value.getType());
  // Numbers are shared.
  if (type.getRank() == 0)
    return value;
  for (Value operand : op->getOperands())
    repeat(operand, done);
  builder.setInsertionPoint(op);
  Value copy;
  if (auto own = dyn_cast<nn::ReadOp>(op)) {
    copy = read(own.getSlot());
  } else {
    copy = builder.clone(*op, done)->getResult(0);
    copy.setType(
        RankedTensorType::get(cast<RankedTensorType>(pack.getType()).getShape(),
                              type.getElementType()));
    copy.getDefiningOp()->setLoc(loc);
  }
  done.map(value, copy);
  return copy;
}

void Packer::mergeUpdates() {
  IRMapping done;
  for (nn::WriteOp store : members.front().updates) {
    Value merged = repeat(store.getInput(), done);
    builder.setInsertionPoint(store);
    write(merged, store.getSlot());
  }
  for (const ParameterEnd &member : members)
    for (nn::WriteOp store : member.updates)
      store.erase();
}

//===----------------------------------------------------------------------===//
// The pass
//===----------------------------------------------------------------------===//

static void eraseDead(func::FuncOp function) {
  for (Operation &op :
       llvm::make_early_inc_range(llvm::reverse(function.getBody().front())))
    if (isOpTriviallyDead(&op))
      op.erase();
}

namespace {
struct PackParametersPass
    : plait::impl::PackParametersPassBase<PackParametersPass> {
  /// The parameters of a stage, those to which the same is done together, in
  /// the order of the module.
  SmallVector<SmallVector<ParameterEnd>>
  findGroups(ArrayRef<func::FuncOp> stage, func::FuncOp reduce,
             func::FuncOp optimizer) {
    StepEndAnalysis analysis(stage, reduce, optimizer);
    llvm::MapVector<StringRef, SmallVector<ParameterEnd>,
                    llvm::StringMap<unsigned>>
        groups;
    for (auto parameter : getOperation().getOps<nn::ParameterOp>())
      if (auto end = analysis.analyze(parameter))
        groups[end->key].push_back(*end);
    return llvm::to_vector(llvm::make_second_range(groups));
  }

  void packStage(int64_t number, ArrayRef<func::FuncOp> stage) {
    auto find = [&](StringRef phase) {
      auto *found = llvm::find_if(stage, [&](func::FuncOp function) {
        auto name = function->getAttrOfType<StringAttr>(pipe::kPhaseAttr);
        return name && name.getValue() == phase;
      });
      return found == stage.end() ? func::FuncOp() : *found;
    };
    func::FuncOp reduce = find("reduce"), optimizer = find("optimizer");
    if (!reduce || !optimizer)
      return;
    SymbolTable symbols(getOperation());
    unsigned index = 0;
    for (ArrayRef<ParameterEnd> group : findGroups(stage, reduce, optimizer))
      Packer(group, number, symbols).run(index++);
    eraseDead(reduce);
    eraseDead(optimizer);
  }

  void runOnOperation() override {
    std::map<int64_t, SmallVector<func::FuncOp>> stages;
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (auto stage = function->getAttrOfType<IntegerAttr>(pipe::kStageAttr))
        stages[stage.getInt()].push_back(function);
    for (auto &[number, functions] : stages)
      packStage(number, functions);
  }
};
} // namespace
