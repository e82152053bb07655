//===- PackParameters.cpp - One update for many parameters ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A parameter's reduction, norm and update are small beside what it takes to
// start them. Parameters to which the same is to be done are laid side by side,
// so that it is written once, for all of them.
//
// The gaps between them hold zeros from the start of a run, and nothing writes
// to those of gradients; updates leave zeros of zeros (Updates.h). So do the
// paddings of the parameters themselves: see PaddingAnalysis.h.
//
// A divided pack (Rajbhandari et al. 2020, ZeRO 1) has a rank reduce, count and
// update only its own rows, which is as much communication: a ring sums up as
// a reduce-scatter and an all-gather anyway.
//
//===----------------------------------------------------------------------===//

#include "ParameterUses.h"
#include "plait/Configuration/CompressionFacts.h"
#include "plait/Dialect/NN/IR/Names.h"
#include "plait/Dialect/NN/IR/Parameters.h"
#include "plait/Support/Buckets.h"
#include "plait/Transforms/Chunks.h"
#include "plait/Transforms/Passes.h"
#include "plait/Transforms/StageFunctions.h"
#include "plait/Transforms/Steps.h"

namespace plait {
#define GEN_PASS_DEF_PACKPARAMETERSPASS
#include "plait/Transforms/Passes.h.inc"
} // namespace plait

using namespace mlir;
using namespace plait;

static_assert(nn::PackOp::kAlignment == kPackAlignment);

using Members = ArrayRef<ParameterUse *>;

/// Cuts a group into packs of at least `elements`; `count` says how many a
/// parameter has.
static void cut(Members group, int64_t elements,
                llvm::function_ref<int64_t(ParameterUse &)> count,
                SmallVectorImpl<Members> &packs) {
  int64_t rest = 0;
  for (ParameterUse *member : group)
    rest += count(*member);
  // As few parameters as reach the size; the remainder joins the last pack if
  // it is too small for one of its own. So packs have at least `elements`, and
  // a group with less is one pack.
  // Subtracted, not doubled: `elements` may be any number that an option has.
  while (rest - elements >= elements) {
    size_t length = 1;
    int64_t sum = count(*group.front());
    for (; sum < elements; ++length)
      sum += count(*group[length]);
    packs.push_back(group.take_front(length));
    rest -= sum;
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

/// Ranks that have equal parts of a matrix gather it. A factor has no more
/// vectors than the matrix.
static LogicalResult checkMatrix(nn::ParameterOp parameter, bool isUneven,
                                 const Compression &compression) {
  ArrayRef<int64_t> shape = cast<ShapedType>(parameter.getType()).getShape();
  if (!compresses(compression, nn::countDims(parameter)))
    return success();
  MatrixSides sides = getMatrixSides({shape.data(), shape.size()});
  if (isUneven)
    return parameter.emitOpError(
               "is split into uneven parts, which `compress` ")
           << print(compression) << " does not take";
  if (int64_t most = std::min(sides.rows, sides.columns);
      compression.keep > most)
    return parameter.emitOpError("is a matrix of ")
           << sides.rows << " by " << sides.columns << ", and `compress` "
           << print(compression) << " has a rank of " << compression.keep
           << ", expected at most " << most;
  return success();
}

namespace {
/// A rank has runs of a parameter, from the innermost dimension on that is
/// split: they begin at multiples of their length.
struct Runs {
  bool areSplit = false, areUneven = false;
  int64_t length = 1;
};
} // namespace

static Runs findRuns(RankedTensorType whole, dist::ShardingAttr sharding,
                     dist::MeshOp mesh) {
  RankedTensorType block =
      mesh.getLocalType(dist::withSharding(whole, sharding));
  Runs runs;
  for (int64_t dim = whole.getRank(); dim-- > 0;) {
    int64_t blocks = mesh.getBlocks(sharding.getDims()[dim]);
    runs.areUneven |= block.getDimSize(dim) * blocks != whole.getDimSize(dim);
    runs.length *= runs.areSplit ? 1 : block.getDimSize(dim);
    runs.areSplit |= blocks > 1;
  }
  return runs;
}

dist::ShardingAttr plait::divideRows(RankedTensorType whole,
                                     dist::ShardingAttr sharding,
                                     dist::MeshOp mesh, int64_t block) {
  auto replicas = StringAttr::get(whole.getContext(), kDataAxis);
  int64_t ranks = mesh.getAxisSize(replicas);
  if (ranks <= 1 || sharding.findDim(replicas) >= 0)
    return sharding;
  for (auto [dim, axes] : llvm::enumerate(sharding.getDims())) {
    int64_t extent = whole.getDimSize(dim) / mesh.getBlocks(axes);
    if (extent <= 1)
      continue;
    dist::ShardingAttr divided =
        sharding.withDim(dim, dist::addAxis(axes, replicas));
    Runs runs = findRuns(whole, divided, mesh);
    bool isWhole = !runs.areUneven && runs.length % block == 0;
    return isWhole ? divided : sharding;
  }
  return sharding;
}

LogicalResult plait::checkChunks(nn::ParameterOp parameter,
                                 dist::ShardingAttr sharding, dist::MeshOp mesh,
                                 const Compression &compression) {
  auto whole = cast<RankedTensorType>(parameter.getType());
  auto [isSplit, isUneven, run] = findRuns(whole, sharding, mesh);
  if (sendsFactors(compression))
    return checkMatrix(parameter, isUneven, compression);
  if (!isSplit || (!isUneven && run % compression.block == 0))
    return success();
  InFlightDiagnostic diag = parameter.emitOpError("is split ");
  if (isUneven)
    return diag << "into uneven parts, which `compress` " << print(compression)
                << " does not take";
  diag << "into runs of " << run << " elements, which cuts the blocks of "
       << compression.block << " that `compress` is given";
  Compression other = compression;
  other.block = run & -run; // the largest power of two that divides it
  if (other.keep)           // the same share
    other.keep =
        std::max<int64_t>(1, other.keep * other.block / compression.block);
  if (other.block >= kLeastBlock)
    diag << ", expected " << print(other);
  return diag;
}

namespace {
struct PackParametersPass
    : plait::impl::PackParametersPassBase<PackParametersPass> {
  using PackParametersPassBase::PackParametersPassBase;

  /// On a rank: a pack holds blocks.
  int64_t countElements(ParameterUse &use) {
    return use.getBlock(mesh, use.getPacked(mesh)).getNumElements();
  }

  /// The axes that divide members' updates, major to minor.
  SmallVector<StringAttr> getDividingAxes(Members members) {
    SmallVector<StringAttr> axes;
    if (divides)
      axes = mesh.getStateAxes();
    llvm::erase_if(axes, [&](StringAttr axis) {
      return !members.front()->canDivide(axis, mesh);
    });
    return axes;
  }
  bool isDivided(Members members) { return !getDividingAxes(members).empty(); }

  /// The parameters of `rank` to which the same is done, together.
  SmallVector<SmallVector<ParameterUse *>> findGroups(Members uses,
                                                      int64_t rank) {
    SmallVector<SmallVector<ParameterUse *>> groups;
    for (ParameterUse *use : uses) {
      // A number is too little to have rows.
      bool isInBlocks = use->isInBlocks(mesh) && isCompressed(*use);
      if ((!isInBlocks && !use->isSplitOnce(mesh)) ||
          use->getType().getRank() == 0)
        continue;
      // endAlike() is transitive, so that the first member stands for all.
      // There are few groups, so that searching them takes no time.
      auto group = llvm::find_if(groups, [&](const auto &group) {
        return !isInBlocks && !group.front()->isInBlocks(mesh) &&
               isCompressed(*group.front()) == isCompressed(*use) &&
               endAlike(*group.front(), *use, rank, mesh);
      });
      if (group == groups.end())
        groups.push_back({use});
      else
        group->push_back(use);
    }
    return groups;
  }

  bool isCompressed(ParameterUse &use) {
    return use.isTrained() &&
           compresses(compression, nn::countDims(use.parameter));
  }
  bool isCompressed(Members members) { return isCompressed(*members.front()); }

  /// A term of the loss that is of no samples, such as the squares of weights,
  /// has the same gradient on all replicas.
  LogicalResult checkCompressed(ParameterUse &use, int64_t rank) {
    auto axis = StringAttr::get(&getContext(), kDataAxis);
    if (mesh.getAxisSize(kDataAxis) > 1 &&
        !use.gradients.at(rank).isPartialOver(axis))
      return use.parameter.emitOpError(
                 "has a gradient that is whole on each replica, of which "
                 "`compress` ")
             << print(compression) << " has no parts to send";
    dist::ShardingAttr packed = use.getPacked(mesh);
    if (failed(checkChunks(use.parameter, packed, mesh, compression)))
      return failure();
    if (use.isInBlocks(mesh) &&
        use.getState() !=
            divideRows(use.getType(), packed, mesh, compression.block))
      return use.parameter.emitOpError(
          "is split in one way and its gradient in "
          "another, which cannot be compressed");
    auto isSplit = [&](ArrayAttr axes) { return mesh.getBlocks(axes) > 1; };
    if (drawsNumbers(compression) &&
        llvm::count_if(packed.getDims(), isSplit) > 1)
      return use.parameter.emitOpError(
                 "is split along more than one dimension, and `compress` ")
             << print(compression) << " draws by a number of each block";
    return success();
  }

  /// Lays members at aligned offsets, in a table of which the ranks that divide
  /// it, or add its rows up, have equal shares; no member begins within a chunk
  /// that is compressed.
  void createPack(Members members, int64_t rank, unsigned index,
                  SymbolTable &symbols, Operation *before) {
    SmallVector<StringAttr> axes = getDividingAxes(members);
    bool sums = isCompressed(members) && compression.both &&
                mesh.getAxisSize(kDataAxis) > 1;
    if (sums)
      axes = {StringAttr::get(&getContext(), kDataAxis)};
    // Nothing is kept of sums that are not fed back.
    bool isDivided = sums ? compression.feedback : !axes.empty();
    SmallVector<Attribute> names;
    SmallVector<int64_t> offsets;
    int64_t total = 0;
    int64_t chunk = isCompressed(members) ? compression.block : 0;
    for (ParameterUse *member : members) {
      names.push_back(
          FlatSymbolRefAttr::get(member->parameter.getSymNameAttr()));
      offsets.push_back(total);
      total = alignInPack(total + countElements(*member), chunk);
    }
    OpBuilder builder(before);
    ArrayAttr dividing =
        builder.getArrayAttr(SmallVector<Attribute>(axes.begin(), axes.end()));
    PackShape shape = getPackShape(total, mesh.getBlocks(dividing), chunk);
    auto type = RankedTensorType::get({shape.rows, shape.columns},
                                      builder.getF32Type());
    std::string name = ("pack" + Twine(rank) + "." + Twine(index)).str();
    auto loc = NameLoc::get(builder.getStringAttr(name));
    auto pack = nn::PackOp::create(
        builder, loc, name, rank, builder.getArrayAttr(names), offsets, type,
        isDivided ? FlatSymbolRefAttr::get(mesh.getSymNameAttr())
                  : FlatSymbolRefAttr(),
        isDivided ? dividing : ArrayAttr(),
        isDivided && !sums && members.front()->hasCopy, isDivided && sums,
        members.front()->isInBlocks(mesh));
    symbols.insert(pack);
  }

  /// Whether a group becomes several packs, each reduced as soon as it may be.
  /// Undivided ones are one pack: their all-reduce can be cut into buckets
  /// later, where that pays (plan-bucket-reductions). Pieces of a
  /// reduce-scatter would be other ranks' rows, and what rounds before a sum
  /// would wait for all that it rounds, so that those are cut here.
  bool isCut(Members members) {
    return isDivided(members) || isCompressed(members) ||
           (rounds && members.front()->isTrained());
  }

  LogicalResult packRank(Members uses, int64_t rank, SymbolTable &symbols,
                         Operation *before) {
    auto groups = findGroups(uses, rank);
    auto count = [&](ParameterUse &use) { return countElements(use); };
    int64_t replicas = mesh.getAxisSize(kDataAxis);
    int64_t elements =
        bucket ? bucket : getBucketElements(getOperation(), replicas);
    SmallVector<Members> packs;
    for (Members group : groups)
      if (isCut(group))
        cut(group, elements, count, packs);
      else
        packs.push_back(group);
    for (Members members : packs)
      for (ParameterUse *use : members)
        if (isCompressed(members) && failed(checkCompressed(*use, rank)))
          return failure();
    // In the order of their first members.
    // Members point into one vector, in the order of the module.
    llvm::sort(packs, [](Members left, Members right) {
      return left.front() < right.front();
    });
    for (auto [index, members] : llvm::enumerate(packs))
      createPack(members, rank, index, symbols, before);
    return success();
  }

  void runOnOperation() override {
    ModuleOp module = getOperation();
    TrainingConfiguration configuration = getConfiguration(module);
    mesh = dist::MeshOp::find(module);
    if (bucket < 0) {
      module.emitError("bucket is ")
          << int64_t(bucket) << ", expected 0 or more elements";
      return signalPassFailure();
    }
    if (Status status = checkExecutable(configuration); !status.ok()) {
      module.emitError(status.message());
      return signalPassFailure();
    }
    if (!mesh) {
      module.emitOpError("has no mesh");
      return signalPassFailure();
    }
    compression = configuration.compress;
    int64_t replicas = std::max<int64_t>(1, mesh.getAxisSize(kDataAxis));
    if (compression.replicas && compression.replicas != replicas) {
      module.emitError("compress is ")
          << print(compression) << ", but " << kDataAxis << " is " << replicas;
      return signalPassFailure();
    }
    for (const AxisFacts &facts : kAxes)
      if (int64_t groups = mesh.getAxisSize(facts.axis);
          compression.isOn() && facts.copiesState() && groups > 1) {
        module.emitError("compress is ")
            << print(compression) << ", which takes no groups of replicas, but "
            << StringRef(facts.name) << " is " << groups;
        return signalPassFailure();
      }
    FailureOr<ParameterUses> uses = ParameterUses::find(module);
    if (failed(uses))
      return signalPassFailure();
    divides = configuration.zero > 0;
    rounds = !getReducedType(module).isF32();
    std::map<int64_t, SmallVector<ParameterUse *>> usesOf; // by rank
    for (ParameterUse &use : uses->parameters)
      for (int64_t rank : use.ranks)
        usesOf[rank].push_back(&use);
    SymbolTable symbols(module);
    auto functions = module.getOps<func::FuncOp>();
    if (functions.empty())
      return;
    Operation *first = *functions.begin();
    for (auto &[rank, own] : usesOf)
      if (failed(packRank(own, rank, symbols, first)))
        return signalPassFailure();
  }

  dist::MeshOp mesh;
  bool divides; // packs, where ranks can
  bool rounds;  // before gradients are summed
  Compression compression;
};
} // namespace
