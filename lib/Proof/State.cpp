//===- State.cpp - State of a rank of the pipeline ------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Slots are found by parameter and slot, whether an op names the parameter or a
// pack of it: an access of a pack is one of each of its members. A slot that
// outlives the step begins as a leaf that is called after it; one of gradients
// begins empty.
// Layouts are read from the declarations (shardings, packs), never from the ops
// that access a slot, so an op that takes another slice than is declared is an
// error.
//
//===----------------------------------------------------------------------===//

#include "State.h"

#include "plait/Configuration/CompressionFacts.h"
#include "plait/Dialect/NN/IR/Names.h"
#include "plait/Dialect/NN/IR/Parameters.h"
#include "plait/Dialect/Plait/IR/Plait.h"

using namespace mlir;
using namespace plait;
using namespace plait::proof;
using nn::Slot;
using nn::SlotAccess;

//===----------------------------------------------------------------------===//
// Symbols
//===----------------------------------------------------------------------===//

Symbols::Symbols(ModuleOp module)
    : placement(
          module->getAttrOfType<pipe::PlacementAttr>(pipe::kPlacementAttr)),
      sendsMomentum(plait::sendsMomentum(getConfiguration(module).compress)) {
  for (auto parameter : module.getOps<nn::ParameterOp>())
    parameters[parameter.getSymName()] = parameter;
  for (auto pack : module.getOps<nn::PackOp>()) {
    packs[pack.getSymName()] = pack;
    for (auto [index, member] :
         llvm::enumerate(pack.getMembers().getAsRange<FlatSymbolRefAttr>()))
      members[{member.getValue(), pack.getRank()}] = {pack, index};
  }
  // A parameter is computed with its copy if any op reads or writes that, by
  // itself or in a pack.
  auto note = [&](StringRef symbol, Slot slot) {
    if (slot != Slot::Compute)
      return;
    computed.insert(symbol);
    if (nn::PackOp pack = findPack(symbol))
      for (auto member : pack.getMembers().getAsRange<FlatSymbolRefAttr>())
        computed.insert(member.getValue());
  };
  module.walk([&](Operation *op) {
    auto access = dyn_cast<SlotOpInterface>(op);
    if (access && access.getAccess() != nn::SlotAccess::Add)
      note(access.getSymbol(), access.getSlot());
  });
}

/// A list for each dimension, empty where it is not split.
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

/// Also the name in messages: "@embed moment1".
static std::string getLeafName(StringRef name, Slot slot) {
  return ("@" + name + " " + slot.getName()).str();
}

/// The copy to compute with is the only slot in bf16. Kept, since it is asked
/// for by each op that reads the slot and by the comparison.
const RankState::Stored &
RankState::getInitiallyStored(nn::ParameterOp parameter, Slot slot) {
  const Stored *&own = initial[{parameter.getSymName(), slot}];
  if (own)
    return *own;
  own = &kept.emplace_back();
  auto type = cast<RankedTensorType>(parameter.getType());
  if (slot == Slot::Compute)
    type = type.clone(BFloat16Type::get(type.getContext()));
  Content &content = kept.back().content;
  content = rules.makeLeaf(getLeafName(parameter.getSymName(), slot), type,
                           symbols.getAxes(parameter, slot));
  // Each replica has its own: the leaf is their sum.
  if (isOwnState(slot.getName()) && rules.mesh.getSize(kDataAxis) > 1)
    content.form.partial.push_back(
        StringAttr::get(parameter.getContext(), kDataAxis));
  return *own;
}

/// It counts in the norm, or in a chunk that is compressed.
bool Symbols::hasZeroGaps(Slot slot) const {
  return slot == Slot::Gradient || slot == Slot::Reduced ||
         isCompressionState(slot.getName()) ||
         (sendsMomentum && slot == Slot::getState("moment1"));
}

/// Callers copy it: a read does not change with a later write.
/// Notes that the rank has the parameter (getTouched).
FailureOr<const RankState::Stored *>
RankState::find(Operation *op, StringRef name, Slot slot) {
  nn::ParameterOp parameter = symbols.findParameter(name);
  if (parameter)
    touched.insert(parameter.getSymName());
  if (const Stored *own = findWritten({name, slot})) {
    if (sumsAreComplete || nn::getSlotAccess(own->writer) != SlotAccess::Add)
      return own;
    rules.report.wrong(op) << "reads " << getLeafName(name, slot)
                           << " while microbatches still add to it";
    return failure();
  }
  if (parameter && slot != Slot::Gradient && slot != Slot::Reduced)
    return &getInitiallyStored(parameter, slot);
  rules.report.wrong(op) << "reads " << getLeafName(name, slot)
                         << ", which nothing was added or written to before";
  return failure();
}

/// The map is sorted, so that messages come in one order; the table beside it
/// makes the access fast. Nodes of a map do not move.
RankState::Stored &RankState::getStored(StringRef name, Slot slot) {
  Stored *&own = known[{name, slot}];
  if (!own)
    own = &stored[{name, slot}];
  return *own;
}

/// A parameter of a divided pack cannot be read by itself while only the rank's
/// rows of it are there.
FailureOr<Content> RankState::read(SlotOpInterface op) {
  if (nn::PackOp pack = symbols.findPack(op.getSymbol()))
    return readPack(op, pack);
  FailureOr<const Stored *> found = find(op, op.getSymbol(), op.getSlot());
  if (failed(found))
    return failure();
  const Stored *slot = *found;
  auto type = op.getTensor().getType();
  if (!slot->rows.empty() || slot->content.type != type) {
    rules.report.wrong(op) << "reads " << type << " of "
                           << getLeafName(op.getSymbol(), op.getSlot())
                           << ", of which a rank has " << slot->content.type;
    return failure();
  }
  FailureOr<Content> content = slot->content;
  content->writer = slot->writer;
  return content;
}

/// What outlives the step is written once: a second write would hide the first
/// from the comparison. What microbatches have added up is there to be
/// replaced.
LogicalResult RankState::store(SlotOpInterface op, nn::ParameterOp parameter,
                               Stored value) {
  touched.insert(parameter.getSymName());
  Stored &slot = getStored(parameter.getSymName(), op.getSlot());
  Operation *first = slot.writer;
  auto copy = gathered.find(parameter.getSymName());
  if (op.getSlot() == Slot::Compute && copy != gathered.end())
    first = copy->second.writer;
  if (outlivesStep(op.getSlot()) && first &&
      nn::getSlotAccess(first) != SlotAccess::Add) {
    InFlightDiagnostic diag = rules.report.wrong(op);
    diag << "writes " << getLeafName(op.getSymbol(), op.getSlot())
         << " a second time";
    diag.attachNote(first->getLoc()) << "here is the first one";
    return diag;
  }
  slot = std::move(value);
  return success();
}

LogicalResult RankState::endGather() {
  for (auto &[key, own] : stored) {
    if (key.second != Slot::Compute)
      return rules.report.wrong(own.writer)
             << "writes " << getLeafName(key.first, key.second)
             << " where the step begins";
    gathered[key.first] = std::move(own);
  }
  known.clear();
  stored.clear();
  return success();
}

/// The content is taken as it is; whether it lies as declared is shown at the
/// end (Compare.cpp), where it can be said what was expected.
LogicalResult RankState::write(SlotOpInterface op, const Content &content) {
  if (nn::PackOp pack = symbols.findPack(op.getSymbol()))
    return writePack(op, pack, content);
  nn::ParameterOp parameter = symbols.findParameter(op.getSymbol());
  if (!parameter || content.pack)
    return rules.report.wrong(op)
           << "writes " << print(content) << " to @" << op.getSymbol();
  return store(op, parameter, {content, {}, op});
}

/// Called once for each op that contributes, whose tensor of one microbatch
/// becomes the sum over all of them. Several ops may add to one slot, where
/// layers or stages of the rank share a parameter. Accumulators without a
/// parameter, as the number of tokens, go by their own name. A state is added
/// to from what it is when the step begins, which is nothing that a function
/// could read before: it is so in the first microbatch alone.
LogicalResult RankState::accumulate(const Contribution &contribution) {
  SlotOpInterface op = contribution.op;
  rules.terms.setOrigin(op);
  nn::ParameterOp parameter = symbols.findParameter(op.getSymbol());
  StringRef name = op.getSymbol();
  if (parameter)
    touched.insert(name = parameter.getSymName());
  Content total = contribution.content;
  total.form.term = rules.terms.overMicrobatches(total.form.term);
  if (parameter && op.getSlot().isState() &&
      !findWritten({name, op.getSlot()})) {
    if (initial.count({name, op.getSlot()}))
      return rules.report.wrong(op)
             << "adds to " << getLeafName(name, op.getSlot())
             << ", which a microbatch has read";
    getStored(name, op.getSlot()) = getInitiallyStored(parameter, op.getSlot());
  }
  Stored &slot = getStored(name, op.getSlot());
  if (slot.writer || op.getSlot().isState()) {
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

/// None: each rank has all rows of the slot.
SmallVector<RankTerm, 2> RankState::getRows(nn::PackOp pack, Slot slot) {
  if (!pack.isDivided(slot))
    return {};
  return rules.mesh.split(pack.getDividingAxes(),
                          pack.getSlotType(slot).getDimSize(0));
}

/// Whether the rows that a rank has of a slot are its block of the parameter:
/// what is reduced no function reads as such.
static bool hasBlocks(nn::PackOp pack, Slot slot) {
  return pack.getBlocks() && pack.isDivided(slot) && slot != Slot::Reduced;
}

/// Equal numbers of rows are blocks of the first dimension that has several
/// elements, if nothing but the parameter is in the pack. `content` becomes
/// what a rank has of all rows, or, if it is that, of its own ones.
LogicalResult RankState::convertBlock(SlotOpInterface op, nn::PackOp pack,
                                      Content &content, bool isWhole) {
  auto member = cast<FlatSymbolRefAttr>(pack.getMembers()[0]).getValue();
  nn::ParameterOp parameter = symbols.findParameter(member);
  auto wrong = [&] {
    return rules.report.wrong(op)
           << "takes rows of @" << pack.getSymName() << " for a block of @"
           << member << ", which they are not";
  };
  SmallVector<int64_t> shape(
      cast<RankedTensorType>(parameter.getType()).getShape());
  auto error = Slot::getState(kErrorState.data());
  for (auto [extent, own] :
       llvm::zip_equal(shape, symbols.getAxes(parameter, error)))
    for (StringAttr axis : own)
      extent = llvm::divideCeil(extent, rules.mesh.getSize(axis));
  auto first = llvm::find_if(shape, [](int64_t extent) { return extent > 1; });
  auto axes = pack.getDividingAxes();
  int64_t elements = ShapedType::getNumElements(shape);
  if (pack.getMembers().size() != 1 || pack.getOffsets()[0] != 0 ||
      cast<ShapedType>(pack.getType()).getNumElements() != elements ||
      first == shape.end() || axes.size() != 1 || content.pack)
    return wrong();
  int64_t ranks = rules.mesh.getSize(axes[0]), dim = first - shape.begin();
  if (ranks <= 1)
    return success();
  SmallVector<int64_t> block = shape;
  block[dim] /= ranks;
  if (block[dim] * ranks != shape[dim] ||
      content.type.getShape() != ArrayRef(isWhole ? shape : block))
    return wrong();
  Dimension &own = content.form.dims[dim];
  RankTerm rows{axes[0], block[dim]};
  if (own.chunks != 0 || own.rounds != 1)
    return wrong();
  content.type = content.type.clone(isWhole ? block : shape);
  if (own.fitsAll())
    return success();
  if (isWhole)
    own.begin.push_back(rows);
  else if (own.begin.empty() || own.begin.back() != rows)
    return wrong();
  else
    own.begin.pop_back();
  return success();
}

/// A pack lies in the memory of one rank, also where another rank has a pack of
/// the same members, which are tied.
LogicalResult RankState::checkRank(SlotOpInterface op, nn::PackOp pack) {
  if (int64_t(pack.getRank()) == rank)
    return success();
  return rules.report.wrong(op)
         << "uses @" << op.getSymbol() << " on rank " << rank
         << " of the pipeline, but rank " << pack.getRank() << " has it";
}

/// 1. The pack is this rank's.
/// 2. What lies between its members depends on the slot.
/// 3. Each member is what its own slot holds. If it was written, then with the
///    same rows: else the memory holds another part of it.
/// 4. The type of the op is the declared one of the slot.
FailureOr<Content> RankState::readPack(SlotOpInterface op, nn::PackOp pack) {
  // 1. The rank.
  if (failed(checkRank(op, pack)))
    return failure();
  auto whole = std::make_shared<Pack>();
  Operation *writer = nullptr;
  whole->elements = cast<ShapedType>(pack.getType()).getNumElements();
  whole->rows = getRows(pack, op.getSlot());
  // 2. Gaps.
  // Memory starts with zeros; what is between members matters nowhere else.
  whole->gap = symbols.hasZeroGaps(op.getSlot()) ? NumberRange::exactly(0)
                                                 : NumberRange::any();
  // 3. Members.
  for (auto [member, offset] :
       llvm::zip_equal(pack.getMembers().getAsRange<FlatSymbolRefAttr>(),
                       pack.getOffsets())) {
    FailureOr<const Stored *> found = find(op, member.getValue(), op.getSlot());
    if (failed(found))
      return failure();
    const Stored *slot = *found;
    writer = slot->writer;
    if (hasBlocks(pack, op.getSlot())) {
      Content own = slot->content;
      if (failed(convertBlock(op, pack, own, /*isWhole=*/false)))
        return failure();
      whole->members.push_back({offset, member.getValue(), own.type, own.form});
      continue;
    }
    if (slot->rows != whole->rows && slot->writer) {
      rules.report.wrong(op) << "reads @" << member.getValue()
                             << " where another part of it was written";
      return failure();
    }
    whole->members.push_back(
        {offset, member.getValue(), slot->content.type, slot->content.form});
  }
  // 4. The type.
  if (op.getTensor().getType().getShape() !=
      pack.getSlotType(op.getSlot()).getShape()) {
    rules.report.wrong(op) << "reads " << op.getTensor().getType()
                           << " of a slot of "
                           << pack.getSlotType(op.getSlot());
    return failure();
  }
  return Content{op.getTensor().getType(), {}, std::move(whole), writer};
}

/// The pack has to have the declared layout; its members become the contents of
/// their slots. One that was reduced along its columns has none. Gaps of
/// gradients have to be zero, because the norm adds up whole
/// packs.
LogicalResult RankState::writePack(SlotOpInterface op, nn::PackOp pack,
                                   const Content &content) {
  if (failed(checkRank(op, pack)))
    return failure();
  if (!content.pack || content.pack->rows != getRows(pack, op.getSlot()) ||
      content.pack->reducedColumns || !content.pack->view.isPlain())
    return rules.report.wrong(op)
           << "writes " << print(content) << " to @" << op.getSymbol();
  const Pack &given = *content.pack;
  if (symbols.hasZeroGaps(op.getSlot()) && !given.gap.is(0))
    return rules.report.wrong(op)
           << "writes what counts in the norm between the members of @"
           << op.getSymbol();
  for (auto [index, member] :
       llvm::enumerate(pack.getMembers().getAsRange<FlatSymbolRefAttr>())) {
    // Offsets are those of the pack that was read; another pack's would put
    // members elsewhere.
    if (index >= given.members.size() ||
        given.members[index].offset != pack.getOffsets()[index])
      return rules.report.wrong(op)
             << "writes " << print(content) << " to @" << op.getSymbol();
    nn::ParameterOp parameter = symbols.findParameter(member.getValue());
    const Pack::Member &own = given.members[index];
    Stored value{Content{own.type, own.form, nullptr}, given.rows, op};
    if (hasBlocks(pack, op.getSlot())) {
      if (failed(convertBlock(op, pack, value.content, /*isWhole=*/true)))
        return failure();
      value.rows.clear();
    }
    if (failed(store(op, parameter, std::move(value))))
      return failure();
  }
  return success();
}
