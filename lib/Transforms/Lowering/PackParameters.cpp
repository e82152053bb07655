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
// The gaps between them hold zeros from the start of a run, and nothing writes
// to those of gradients; AdamW leaves zeros of zeros. (Where its epsilon is 0,
// the gaps of values become 0 / 0, which no kernel but the update reads.) So do
// the paddings of the parameters themselves: see PaddingAnalysis.h.
//
// A divided pack (Rajbhandari et al. 2020, ZeRO 1) has a rank reduce, count and
// update only its own rows, which is as much communication: a ring sums up as
// a reduce-scatter and an all-gather anyway.
//
//===----------------------------------------------------------------------===//

#include "StepEnd.h"
#include "plait/Dialect/NN/IR/NNBuilder.h"
#include "plait/Transforms/Names.h"
#include "plait/Transforms/Passes.h"
#include "plait/Transforms/StageFunctions.h"
#include "plait/Transforms/Steps.h"

#include "mlir/IR/IRMapping.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/Support/MathExtras.h"

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

/// The axis that packs are divided over; `parts` is 1 where they are not.
struct Division {
  FlatSymbolRefAttr mesh;
  StringAttr axis;
  int64_t parts = 1;

  bool isOver(dist::AllReduceOp reduction) const {
    return reduction.getAxisAttr() == axis && !reduction.getMembers() &&
           !reduction.getOrdered() &&
           reduction.getReduction() == dist::Reduction::Sum;
  }
  bool canDivide(const ParameterEnd &end) const {
    auto isSummed = [&](dist::AllReduceOp op) { return isOver(op); };
    return parts > 1 && !end.updates.empty() && !end.valueIsRead &&
           llvm::count_if(end.reductions, isSummed) == 1;
  }
};

/// The end of a step on one rank of the pipeline; the functions are null where
/// there is none.
struct RankEnd {
  int64_t rank;
  func::FuncOp reduce, optimizer;
  SmallVector<ParameterEnd> parameters;
};

/// Packs parameters of one rank of the pipeline.
class Packer {
public:
  /// The pack is divided where `division` has parts.
  Packer(ArrayRef<ParameterEnd> members, int64_t rank, Division division,
         SymbolTable &symbols)
      : members(members), rank(rank), division(division), symbols(symbols),
        builder(symbols.getOp()->getContext()) {}

  /// `index` tells the packs of the rank apart.
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
  bool isDivided() { return division.parts > 1; }
  Value readOwn(nn::Slot slot);
  void writeOwn(Value value, nn::Slot slot);
  Value repeat(Value value, IRMapping &done);

  ArrayRef<ParameterEnd> members;
  int64_t rank;
  Division division;
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
  // Every rank has as many rows.
  int64_t part = llvm::divideCeil(total, division.parts);
  int64_t columns = std::clamp<int64_t>(llvm::PowerOf2Ceil(part),
                                        nn::PackOp::kAlignment, kColumns);
  int64_t rows =
      llvm::alignTo(llvm::divideCeil(total, columns), division.parts);
  auto type = RankedTensorType::get({rows, columns}, builder.getF32Type());
  std::string name = ("pack" + Twine(rank) + "." + Twine(index)).str();
  loc = NameLoc::get(builder.getStringAttr(name));
  auto module = cast<ModuleOp>(symbols.getOp());
  builder.setInsertionPoint(*module.getOps<func::FuncOp>().begin());
  pack = nn::PackOp::create(builder, loc, name, rank,
                            builder.getArrayAttr(names), offsets, type,
                            isDivided() ? division.mesh : FlatSymbolRefAttr(),
                            isDivided() ? division.axis : StringAttr(),
                            isDivided() && members.front().hasCopy);
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
  // Packs come in the order of their first layers, and each before those that
  // came: the last layers' gradients are there first.
  if (isDivided())
    builder.setInsertionPointToStart(first.reduced->getBlock());
  // Stored after each one, so that all-reduces work in place.
  nn::Slot slot = nn::Slot::Gradient;
  for (dist::AllReduceOp reduction : first.reductions) {
    Value input = read(slot);
    if (isDivided() && division.isOver(reduction)) {
      slot = nn::Slot::Reduced;
      write(dist::ReduceScatterOp::create(builder, loc, pack.getSlotType(slot),
                                          input, division.mesh, division.axis,
                                          reduction.getReductionAttr(),
                                          builder.getI64IntegerAttr(0)),
            slot);
      continue;
    }
    IRMapping operand;
    operand.map(reduction.getInput(), input);
    auto *merged = builder.clone(*reduction, operand);
    merged->getResult(0).setType(input.getType());
    merged->setLoc(loc);
    write(merged->getResult(0), slot);
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
  Value gradient = readOwn(nn::Slot::Gradient);
  Value rows = nn.sumRows(nn.mul(gradient, gradient));
  Value sum = nn.sumRows(rows);
  if (isDivided())
    sum = dist::AllReduceOp::create(
        builder, loc, sum.getType(), sum, division.mesh, division.axis,
        dist::ReductionAttr::get(builder.getContext(), dist::Reduction::Sum),
        DenseI64ArrayAttr(), UnitAttr());
  first.replaceAllUsesWith(sum);
  for (const ParameterEnd &member : members.drop_front()) {
    auto sum = cast<nn::AddOp>(*member.norm.user_begin());
    Value others = sum.getLhs() == member.norm ? sum.getRhs() : sum.getLhs();
    sum.replaceAllUsesWith(others);
    sum.erase();
  }
}

/// The rows of `slot` that the rank updates.
Value Packer::readOwn(nn::Slot slot) {
  if (!isDivided())
    return read(slot);
  if (slot == nn::Slot::Gradient)
    return read(nn::Slot::Reduced);
  if (pack.isDivided(slot))
    return read(slot);
  Value whole = read(slot);
  return dist::SliceOp::create(
      builder, loc, pack.getSlotType(nn::Slot::Reduced), whole, division.mesh,
      builder.getArrayAttr(division.axis), builder.getI64IntegerAttr(0));
}

/// Stores the rows that the rank has updated.
void Packer::writeOwn(Value value, nn::Slot slot) {
  if (isDivided() && !pack.isDivided(slot))
    value = dist::AllGatherOp::create(builder, loc, pack.getSlotType(slot),
                                      value, division.mesh, division.axis,
                                      builder.getI64IntegerAttr(0));
  write(value, slot);
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
    copy = readOwn(own.getSlot());
  } else {
    copy = builder.clone(*op, done)->getResult(0);
    nn::Slot like = isDivided() ? nn::Slot::Reduced : nn::Slot::Gradient;
    copy.setType(pack.getSlotType(like).clone(type.getElementType()));
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
    writeOwn(merged, store.getSlot());
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

/// Numbers that are added up after each was summed over ranks are summed over
/// ranks once.
static void joinReductions(func::FuncOp function, const Division &division) {
  auto isJoined = [&](dist::AllReduceOp reduction) {
    return reduction && division.isOver(reduction) && reduction->hasOneUse();
  };
  for (auto sum :
       llvm::make_early_inc_range(function.getBody().getOps<nn::AddOp>())) {
    auto left = sum.getLhs().getDefiningOp<dist::AllReduceOp>();
    auto right = sum.getRhs().getDefiningOp<dist::AllReduceOp>();
    if (!isJoined(left) || !isJoined(right))
      continue;
    OpBuilder builder(sum->getContext());
    builder.setInsertionPointAfter(sum);
    IRMapping operand;
    operand.map(left.getInput(), sum);
    Operation *joined = builder.clone(*left, operand);
    sum.getResult().replaceAllUsesExcept(joined->getResult(0), joined);
    sum->setOperands({left.getInput(), right.getInput()});
    left.erase();
    right.erase();
  }
}

/// Cuts a group into packs of at least `elements`.
static void cut(ArrayRef<ParameterEnd> group, int64_t elements,
                SmallVectorImpl<ArrayRef<ParameterEnd>> &packs) {
  auto count = [](ArrayRef<ParameterEnd> members) {
    int64_t sum = 0;
    for (const ParameterEnd &member : members)
      sum += member.type.getNumElements();
    return sum;
  };
  int64_t rest = count(group);
  while (rest >= 2 * elements) {
    size_t length = 1;
    while (count(group.take_front(length)) < elements)
      ++length;
    packs.push_back(group.take_front(length));
    rest -= count(packs.back());
    group = group.drop_front(length);
    if (rest >= elements)
      continue;
    // What is left would be too little.
    packs.back() = {packs.back().data(), length + group.size()};
    return;
  }
  if (!group.empty())
    packs.push_back(group);
}

namespace {
struct PackParametersPass
    : plait::impl::PackParametersPassBase<PackParametersPass> {
  using PackParametersPassBase::PackParametersPassBase;

  /// Notes the parameters whose values something else than the update reads.
  void findReadValues() {
    readValues.clear();
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (!doesAction(function, pipe::ActionKind::Optimizer))
        function.walk([&](nn::ReadOp read) {
          if (read.getSlot() == nn::Slot::Value)
            readValues.insert(read.getSymbolAttr());
        });
  }

  /// What the end of a step does to the parameters that a rank has, in the
  /// order of the module, by what the rank alone can do.
  RankEnd analyze(int64_t rank, ArrayRef<func::FuncOp> functions,
                  const Division &division) {
    RankEnd end{rank, {}, {}, {}};
    for (func::FuncOp function : functions) {
      if (doesAction(function, pipe::ActionKind::Reduce))
        end.reduce = function;
      if (doesAction(function, pipe::ActionKind::Optimizer))
        end.optimizer = function;
    }
    if (!end.reduce || !end.optimizer)
      return end;
    StepEndAnalysis analysis(functions, end.reduce, end.optimizer);
    for (auto parameter : getOperation().getOps<nn::ParameterOp>()) {
      auto symbol = FlatSymbolRefAttr::get(parameter.getSymNameAttr());
      std::optional<ParameterEnd> found = analysis.analyze(parameter);
      if (!found) {
        if (analysis.holds(parameter))
          alone.insert(symbol);
        continue;
      }
      found->valueIsRead = found->hasCopy && readValues.contains(symbol);
      if (found->valueIsRead)
        found->key += " read";
      if (!division.canDivide(*found))
        whole.insert(symbol);
      end.parameters.push_back(*found);
    }
    return end;
  }

  /// Those to which the same is done together. Ranks that share a parameter
  /// reduce it in one shape and in one order: what one of them cannot do with
  /// it, none does.
  SmallVector<SmallVector<ParameterEnd>> findGroups(RankEnd &end) {
    llvm::MapVector<StringRef, SmallVector<ParameterEnd>,
                    llvm::StringMap<unsigned>>
        groups;
    for (ParameterEnd &parameter : end.parameters) {
      auto symbol =
          FlatSymbolRefAttr::get(parameter.parameter.getSymNameAttr());
      if (alone.contains(symbol))
        continue;
      parameter.isDivided = !whole.contains(symbol);
      groups[parameter.key].push_back(parameter);
    }
    return llvm::to_vector(llvm::make_second_range(groups));
  }

  /// How packs can be divided, if at all.
  Division findDivision() {
    dist::MeshOp mesh = dist::MeshOp::find(getOperation());
    if (getConfiguration(getOperation()).zero == 0 || !mesh)
      return {};
    return {FlatSymbolRefAttr::get(mesh.getSymNameAttr()),
            StringAttr::get(&getContext(), kDataAxis),
            std::max<int64_t>(1, mesh.getAxisSize(kDataAxis))};
  }

  void packRank(RankEnd &end, const Division &division) {
    auto groups = findGroups(end);
    SmallVector<ArrayRef<ParameterEnd>> packs;
    for (ArrayRef<ParameterEnd> group : groups) {
      if (group.front().isDivided)
        cut(group, bucket ? bucket : getBucketElements(division.parts), packs);
      else
        packs.push_back(group);
    }
    llvm::stable_sort(packs, [](const auto &left, const auto &right) {
      Operation *first = left.front().parameter;
      return first->isBeforeInBlock(right.front().parameter);
    });
    SymbolTable symbols(getOperation());
    for (auto [index, members] : llvm::enumerate(packs))
      Packer(members, end.rank,
             members.front().isDivided ? division : Division(), symbols)
          .run(index);
    if (division.parts > 1)
      joinReductions(end.optimizer, division);
    eraseDead(end.reduce);
    eraseDead(end.optimizer);
  }

  void runOnOperation() override {
    if (Status status = checkExecutable(getConfiguration(getOperation()));
        !status.ok()) {
      getOperation().emitError(status.message());
      return signalPassFailure();
    }
    findReadValues();
    std::map<int64_t, SmallVector<func::FuncOp>> ranks;
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (std::optional<int64_t> rank = getRank(function))
        ranks[*rank].push_back(function);
    alone.clear();
    whole.clear();
    Division division = findDivision();
    SmallVector<RankEnd> ends;
    for (auto &[rank, functions] : ranks)
      if (RankEnd end = analyze(rank, functions, division); end.optimizer)
        ends.push_back(std::move(end));
    for (RankEnd &end : ends)
      packRank(end, division);
  }

  /// On all ranks, so that those that share a parameter pack it alike: those
  /// that are read, that cannot be packed, and whose pack cannot be divided.
  llvm::DenseSet<Attribute> readValues, alone, whole;
};
} // namespace
