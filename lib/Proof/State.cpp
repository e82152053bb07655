//===- State.cpp - What a rank of the pipeline holds ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "State.h"

#include "plait/Dialect/NN/IR/Parameters.h"

using namespace mlir;
using namespace plait;
using namespace plait::proof;
using nn::Slot;

//===----------------------------------------------------------------------===//
// Symbols
//===----------------------------------------------------------------------===//

Symbols::Symbols(ModuleOp module)
    : placement(
          module->getAttrOfType<pipe::PlacementAttr>(pipe::kPlacementAttr)) {
  for (auto parameter : module.getOps<nn::ParameterOp>())
    parameters[parameter.getSymName()] = parameter;
  for (auto pack : module.getOps<nn::PackOp>()) {
    packs[pack.getSymName()] = pack;
    for (auto [index, member] :
         llvm::enumerate(pack.getMembers().getAsRange<FlatSymbolRefAttr>()))
      members[{member.getValue(), pack.getRank()}] = {pack, index};
  }
  auto note = [&](StringRef symbol, Slot slot) {
    if (slot != Slot::Compute)
      return;
    computed.insert(symbol);
    if (nn::PackOp pack = findPack(symbol))
      for (auto member : pack.getMembers().getAsRange<FlatSymbolRefAttr>())
        computed.insert(member.getValue());
  };
  module.walk([&](Operation *op) {
    auto access = dyn_cast<nn::SlotOpInterface>(op);
    if (access && access.getAccess() != nn::SlotAccess::Add)
      note(access.getSymbol(), access.getSlot());
  });
}

SmallVector<SmallVector<StringAttr>> Symbols::getAxes(nn::ParameterOp parameter,
                                                      Slot slot) const {
  // The value is state where something else is computed with.
  bool isState =
      slot == Slot::Value && computed.contains(parameter.getSymName());
  dist::ShardingAttr sharding =
      nn::getSharding(parameter, isState ? Slot::Gradient : slot);
  SmallVector<SmallVector<StringAttr>> axes(
      cast<RankedTensorType>(parameter.getType()).getRank());
  if (sharding)
    for (auto [own, given] : llvm::zip_equal(axes, sharding.getDims()))
      llvm::append_range(own, given.getAsRange<StringAttr>());
  return axes;
}

//===----------------------------------------------------------------------===//
// One slot
//===----------------------------------------------------------------------===//

static std::string getLeafName(StringRef name, Slot slot) {
  return ("@" + name + " " + nn::stringifySlot(slot)).str();
}

Content RankState::getInitial(nn::ParameterOp parameter, Slot slot) {
  auto type = cast<RankedTensorType>(parameter.getType());
  if (slot == Slot::Compute)
    type = type.clone(BFloat16Type::get(type.getContext()));
  return rules.makeLeaf(getLeafName(parameter.getSymName(), slot), type,
                        symbols.getAxes(parameter, slot));
}

FailureOr<RankState::Stored> RankState::find(Operation *op, StringRef name,
                                             Slot slot) {
  nn::ParameterOp parameter = symbols.findParameter(name);
  if (parameter)
    touched.insert(parameter.getSymName());
  if (Stored *own = known.lookup({name, slot}))
    return *own;
  if (parameter && slot != Slot::Gradient && slot != Slot::Reduced)
    return Stored{getInitial(parameter, slot), {}, nullptr};
  rules.report.wrong(op) << "reads " << getLeafName(name, slot)
                         << ", which nothing was added or written to before";
  return failure();
}

RankState::Stored &RankState::getStored(StringRef name, Slot slot) {
  Stored *&own = known[{name, slot}];
  if (!own)
    own = &stored[{name, slot}];
  return *own;
}

FailureOr<Content> RankState::read(nn::SlotOpInterface op) {
  if (nn::PackOp pack = symbols.findPack(op.getSymbol()))
    return readPack(op, pack);
  FailureOr<Stored> slot = find(op, op.getSymbol(), op.getSlot());
  if (failed(slot))
    return failure();
  auto type = op.getTensor().getType();
  if (!slot->rows.empty() || slot->content.type != type) {
    rules.report.wrong(op) << "reads " << type << " of "
                           << getLeafName(op.getSymbol(), op.getSlot())
                           << ", of which a rank has " << slot->content.type;
    return failure();
  }
  slot->content.writer = slot->writer;
  return slot->content;
}

LogicalResult RankState::store(nn::SlotOpInterface op,
                               nn::ParameterOp parameter, Stored value) {
  touched.insert(parameter.getSymName());
  Stored &slot = getStored(parameter.getSymName(), op.getSlot());
  if (outlivesStep(op.getSlot()) && slot.writer) {
    InFlightDiagnostic diag = rules.report.wrong(op);
    diag << "writes " << getLeafName(op.getSymbol(), op.getSlot())
         << " a second time";
    diag.attachNote(slot.writer->getLoc()) << "here is the first one";
    return diag;
  }
  slot = std::move(value);
  return success();
}

LogicalResult RankState::write(nn::SlotOpInterface op, const Content &content) {
  if (nn::PackOp pack = symbols.findPack(op.getSymbol()))
    return writePack(op, pack, content);
  nn::ParameterOp parameter = symbols.findParameter(op.getSymbol());
  if (!parameter || content.pack)
    return rules.report.wrong(op)
           << "writes " << print(content) << " to @" << op.getSymbol();
  return store(op, parameter, {content, {}, op});
}

LogicalResult RankState::accumulate(const Contribution &contribution) {
  nn::SlotOpInterface op = contribution.op;
  rules.terms.setOrigin(op);
  nn::ParameterOp parameter = symbols.findParameter(op.getSymbol());
  StringRef name = op.getSymbol();
  if (parameter)
    touched.insert(name = parameter.getSymName());
  Content total = contribution.content;
  total.form.term = rules.terms.overMicrobatches(total.form.term);
  Stored &slot = getStored(name, op.getSlot());
  if (slot.writer) {
    FailureOr<Content> sum = rules.add(op, slot.content, total);
    if (failed(sum))
      return failure();
    total = std::move(*sum);
  }
  slot = {std::move(total), {}, op};
  return success();
}

//===----------------------------------------------------------------------===//
// Packs
//===----------------------------------------------------------------------===//

SmallVector<RankTerm, 2> RankState::getRows(nn::PackOp pack, Slot slot) {
  if (!pack.isDivided(slot))
    return {};
  return rules.mesh.split(pack.getAxisAttr(),
                          pack.getSlotType(slot).getDimSize(0));
}

/// A pack lies in the memory of one rank, also where another rank has a pack of
/// the same members, which are tied.
LogicalResult RankState::checkRank(nn::SlotOpInterface op, nn::PackOp pack) {
  if (int64_t(pack.getRank()) == rank)
    return success();
  return rules.report.wrong(op)
         << "uses @" << op.getSymbol() << " on rank " << rank
         << " of the pipeline, but rank " << pack.getRank() << " has it";
}

FailureOr<Content> RankState::readPack(nn::SlotOpInterface op,
                                       nn::PackOp pack) {
  if (failed(checkRank(op, pack)))
    return failure();
  auto whole = std::make_shared<Pack>();
  Operation *writer = nullptr;
  whole->elements = cast<ShapedType>(pack.getType()).getNumElements();
  whole->rows = getRows(pack, op.getSlot());
  // Memory starts with zeros; what is between members matters nowhere else.
  bool isGradient =
      op.getSlot() == Slot::Gradient || op.getSlot() == Slot::Reduced;
  whole->gap = isGradient ? NumberRange::exactly(0) : NumberRange::any();
  for (auto [member, offset] :
       llvm::zip_equal(pack.getMembers().getAsRange<FlatSymbolRefAttr>(),
                       pack.getOffsets())) {
    FailureOr<Stored> slot = find(op, member.getValue(), op.getSlot());
    if (failed(slot))
      return failure();
    if (slot->rows != whole->rows && slot->writer) {
      rules.report.wrong(op) << "reads @" << member.getValue()
                             << " where another part of it was written";
      return failure();
    }
    writer = slot->writer;
    whole->members.push_back(
        {offset, member.getValue(), slot->content.type, slot->content.form});
  }
  if (op.getTensor().getType().getShape() !=
      pack.getSlotType(op.getSlot()).getShape()) {
    rules.report.wrong(op) << "reads " << op.getTensor().getType()
                           << " of a slot of "
                           << pack.getSlotType(op.getSlot());
    return failure();
  }
  return Content{op.getTensor().getType(), {}, std::move(whole), writer};
}

LogicalResult RankState::writePack(nn::SlotOpInterface op, nn::PackOp pack,
                                   const Content &content) {
  if (failed(checkRank(op, pack)))
    return failure();
  if (!content.pack || content.pack->rows != getRows(pack, op.getSlot()) ||
      content.pack->reducedColumns)
    return rules.report.wrong(op)
           << "writes " << print(content) << " to @" << op.getSymbol();
  const Pack &given = *content.pack;
  bool isGradient =
      op.getSlot() == Slot::Gradient || op.getSlot() == Slot::Reduced;
  if (isGradient && !given.gap.is(0))
    return rules.report.wrong(op)
           << "writes what counts in the norm between the members of @"
           << op.getSymbol();
  for (auto [index, member] :
       llvm::enumerate(pack.getMembers().getAsRange<FlatSymbolRefAttr>())) {
    if (index >= given.members.size() ||
        given.members[index].offset != pack.getOffsets()[index])
      return rules.report.wrong(op)
             << "writes " << print(content) << " to @" << op.getSymbol();
    nn::ParameterOp parameter = symbols.findParameter(member.getValue());
    const Pack::Member &own = given.members[index];
    if (failed(store(op, parameter,
                     {Content{own.type, own.form, nullptr}, given.rows, op})))
      return failure();
  }
  return success();
}
