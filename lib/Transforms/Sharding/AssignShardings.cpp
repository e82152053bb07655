//===- AssignShardings.cpp - Give every value of the loss a sharding ------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// 1. Group the dimensions of all values into classes that move together.
// 2. Split the class of the batch over "dp" and "ep", that of the sequence over
//    "cp"; for rows of experts "ep" splits these instead (ExpertRows.h).
// 3. Choose on "tp", exactly, what each op splits (ShardingProblem.h), and in
//    how many rounds it deals out the sequence where it splits that.
// 4. With `context_parallel = heads`, split by "cp" another factor of the ops
//    whose work is not even along the sequence.
// 5. Write the shardings into the types and reshards between them.
//
// The pass relies on factor rules alone (FactorRule.h): it knows no op by name,
// and of axes only what their names mean for the tokens. What an op computes on
// its block is left to dist-partition, what a reshard costs in collectives to
// LowerReshard.h, and gradients to nn-differentiate, which gives each the
// sharding of its primal.
//
//===----------------------------------------------------------------------===//

#include "../WriteProblem.h"
#include "ExpertRows.h"
#include "ShardingProblem.h"
#include "plait/Dialect/NN/IR/Inputs.h"
#include "plait/Dialect/NN/IR/Layers.h"
#include "plait/Dialect/NN/IR/Names.h"
#include "plait/Dialect/NN/IR/Parameters.h"
#include "plait/Transforms/FoldedModel.h"
#include "plait/Transforms/Passes.h"

#include "mlir/IR/Builders.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/Sequence.h"

namespace plait {
#define GEN_PASS_DEF_ASSIGNSHARDINGSPASS
#include "plait/Transforms/Passes.h.inc"
} // namespace plait

using namespace mlir;
using namespace plait;
using namespace plait::dist;

namespace {

/// Steps 1 to 5 for one function.
class Assigner {
public:
  Assigner(func::FuncOp function, MeshOp mesh,
           const TrainingConfiguration &configuration)
      : function(function), mesh(mesh),
        splitSequence(configuration.sequenceParallel),
        pieces(configuration.tensorOverlap), zero(configuration.zero),
        compression(configuration.compress),
        byHeads(configuration.contextParallel == ContextParallel::Heads &&
                mesh.getAxisSize(Axis::CP) > 1),
        meshRef(FlatSymbolRefAttr::get(mesh.getSymNameAttr())),
        builder(function.getContext()),
        tensor(builder.getStringAttr(kTensorAxis)),
        context(builder.getStringAttr(kContextAxis)) {}

  /// Writes what is solved to `problemFile`, if that is not empty.
  LogicalResult run(StringRef problemFile);

private:
  LogicalResult checkReads();
  void joinInputs();
  LogicalResult seedTokens();
  LogicalResult checkTokens(const AxisFacts &facts, unsigned dim);
  LogicalResult seedTokens(const AxisFacts &facts, unsigned dim);
  SmallVector<Attribute> tokenAxes(ArrayRef<int> classesOfDims, unsigned dim);
  ShardingAttr publishedSharding(Value value);
  void storeParameter(SlotOpInterface read);
  FailureOr<FactorAxes> factorAxes(ShardableOpInterface op);
  llvm::SmallDenseMap<int, ShardingProblem::Part> findParts();
  LogicalResult solve();
  LogicalResult tell(StringRef problemFile) const;
  void chooseRounds();
  ArrayAttr addTensor(ArrayAttr axes, int classOfDim) {
    return addAxis(axes, tensor, classOfDim == sequence ? rounds : 1);
  }
  LogicalResult splitHeads(ShardableOpInterface op, const FactorRule &rule,
                           FactorAxes &axes);
  void shardOp(Operation *op, FactorAxes axes);
  void publish(Value result);
  void pinParameters();

  func::FuncOp function;
  MeshOp mesh;
  bool splitSequence; // by tp, too, inside of what cp leaves of it
  int64_t pieces;     // of what tp's ranks exchange beside matmuls
  unsigned zero;      // what ranks of dp divide: 2 gradients, 3 parameters, too
  Compression compression;
  bool byHeads; // ranks of cp exchange positions for heads
  FlatSymbolRefAttr meshRef;
  OpBuilder builder;
  StringAttr tensor, context;
  FactorClasses classes;
  ExpertRows rows;
  /// The axes that split a class of the tokens' dimensions.
  struct TokenAxes {
    unsigned dim;                 // of the tokens
    SmallVector<Attribute> names; // outermost first
  };
  llvm::SmallMapVector<int, TokenAxes, 2> axesOfClass;
  // Where tp has one rank there is nothing to choose, and no problem: ops then
  // have the axes of their classes.
  std::optional<ShardingProblem> problem;
  /// In which tp deals out the class of the sequence, where it splits it.
  int64_t rounds = 1;
  int sequence = -1;
  SymbolTableCollection tables;
};

} // namespace

/// The loss reads nothing but parameters. A sharding that is given is kept or
/// refused, never dropped.
LogicalResult Assigner::checkReads() {
  for (auto read : nn::findAccesses(function, nn::SlotAccess::Read)) {
    nn::ParameterOp parameter = nn::findParameter(read, tables);
    if (!parameter)
      return read->emitOpError("reads ")
             << read.getSymbolAttr() << ", which is no parameter";
    ShardingAttr pinned = nn::getSharding(parameter);
    if (!pinned)
      continue;
    // Over every other axis a parameter may be split at will: it is gathered
    // where its users want it whole.
    for (ArrayAttr axes : pinned.getDims())
      for (StringAttr axis : dist::getAxes(axes))
        if (axis.getValue() == kPipelineAxis)
          return parameter.emitOpError("has a sharding over axis ")
                 << axis << ", along which ranks hold other layers";
  }
  return success();
}

static int64_t rankOf(Value value) {
  return cast<RankedTensorType>(value.getType()).getRank();
}

/// What is split along dimension `dim` of an argument: it, or what it is once
/// it is in another order, which it has to be whole for.
static SmallVector<Value> findTokens(BlockArgument argument, int64_t dim) {
  SmallVector<Value> reordered;
  for (Operation *user : argument.getUsers())
    if (movesElements(user) &&
        cast<FusableOpInterface>(user).getIndexMap().dim == dim)
      reordered.push_back(user->getResult(0));
  return reordered.empty() ? SmallVector<Value>{argument} : reordered;
}

/// Tokens and targets share batch and sequence even where no op says so.
void Assigner::joinInputs() {
  // Each is joined with the one before it, which joins all. Scalars have no
  // tokens and are passed over.
  for (int64_t dim = 0; dim < kTokenDims; ++dim) {
    Value first;
    for (BlockArgument argument : function.getArguments()) {
      if (dim >= nn::countTokenDims(argument))
        continue;
      for (Value tokens : findTokens(argument, dim)) {
        if (first)
          classes.join(first, tokens, dim);
        first = tokens;
      }
    }
  }
}

/// Ranks along the axis get equal parts of dimension `dim` of the tokens,
/// inside of what axes further out leave of it.
LogicalResult Assigner::checkTokens(const AxisFacts &facts, unsigned dim) {
  Mesh sizes = mesh.getKnownAxes();
  int64_t outer = sizes.product([&](const AxisFacts &other) {
    return other.tokenDim() == dim && other.axis < facts.axis;
  });
  int64_t blocks = sizes[facts.axis];
  for (BlockArgument argument : function.getArguments()) {
    if (dim >= nn::countTokenDims(argument))
      continue;
    auto type = cast<RankedTensorType>(argument.getType());
    int64_t extent = type.getDimSize(dim) / outer;
    if (extent % blocks == 0)
      continue;
    InFlightDiagnostic diag = function.emitError()
                              << StringRef(facts.name) << "=" << blocks
                              << " does not divide the ";
    return diag << (dim ? "sequence" : "batch") << " of " << extent
                << (dim ? " positions" : " sequences") << "; nearest are "
                << listNearest(extent, blocks);
  }
  return success();
}

/// Has the axis split dimension `dim` of the tokens, and all that moves with
/// it. All arguments have been joined, so that one entry for each dimension is
/// left, unless an op ties batch and sequence together: then axes of two
/// dimensions would claim one class.
LogicalResult Assigner::seedTokens(const AxisFacts &facts, unsigned dim) {
  StringAttr axis = builder.getStringAttr(facts.name);
  for (BlockArgument argument : function.getArguments()) {
    if (dim >= nn::countTokenDims(argument))
      continue;
    // One of them stands for all: they are joined.
    Value tokens = findTokens(argument, dim).front();
    auto [it, isNew] =
        axesOfClass.insert({classes.find(tokens, dim), {dim, {}}});
    TokenAxes &claimed = it->second;
    if (claimed.dim == dim && !llvm::is_contained(claimed.names, axis))
      claimed.names.push_back(axis);
    if (claimed.dim != dim)
      return function.emitError()
             << axis << " cannot split dimension " << dim
             << " of the tokens: the model's ops move it together with "
             << "dimension 0, which " << claimed.names.front() << " splits";
  }
  return success();
}

/// Axes of tokens are not solved for: that they split them is what they mean.
LogicalResult Assigner::seedTokens() {
  for (const AxisFacts &facts : kAxes) {
    std::optional<unsigned> dim = facts.tokenDim();
    // One rank has all there is: nothing is to be followed from op to op.
    if (!dim || mesh.getAxisSize(StringRef(facts.name)) == 1)
      continue;
    if (failed(checkTokens(facts, *dim)) || failed(seedTokens(facts, *dim)))
      return failure();
  }
  return success();
}

/// What splits dimension `dim` of a tensor, or a factor of an op, of which the
/// classes are given: axes split the first one of their class alone.
SmallVector<Attribute> Assigner::tokenAxes(ArrayRef<int> classesOfDims,
                                           unsigned dim) {
  auto axes = axesOfClass.find(classesOfDims[dim]);
  if (axes == axesOfClass.end() ||
      llvm::is_contained(classesOfDims.take_front(dim), axes->first))
    return {};
  return axes->second.names;
}

/// What the users of `value` find: never partial.
ShardingAttr Assigner::publishedSharding(Value value) {
  // The axis of the tokens comes first, tp inside of it: so the blocks of a
  // dimension that both split are those of dp or cp, cut once more.
  auto type = cast<RankedTensorType>(value.getType());
  int chosen = problem ? problem->getDim(value) : ShardingProblem::kNone;
  SmallVector<ArrayAttr> dims;
  SmallVector<int> roots;
  for (int64_t dim = 0; dim < type.getRank(); ++dim) {
    roots.push_back(classes.find(value, dim));
    ArrayAttr axes = builder.getArrayAttr(tokenAxes(roots, dim));
    if (rows.findExperts(value) == dim)
      axes = rows.place(axes, /*hasExperts=*/true);
    dims.push_back(dim == chosen ? addTensor(axes, roots.back()) : axes);
  }
  return ShardingAttr::get(builder.getContext(), meshRef, dims, {},
                           Reduction::Sum);
}

/// The axes that split each factor of `op`: dp and cp by its class, tp as the
/// problem was solved. A factor that must stay whole has the class -1, which no
/// axis splits.
FailureOr<FactorAxes> Assigner::factorAxes(ShardableOpInterface op) {
  FactorRule rule = op.getFactorRule();
  int chosen = problem ? problem->getFactor(op) : ShardingProblem::kNone;
  FactorAxes axes;
  SmallVector<int> roots;
  // A factor's classes of the tokens count in the order of the rule, as
  // dimensions do in a tensor: of two factors of one class only the first is
  // split.
  for (auto [index, factor] : llvm::enumerate(rule.factors)) {
    bool isWhole = factor.kind == FactorKind::Whole;
    roots.push_back(isWhole ? -1 : classes.findFactor(op, rule, index));
    ArrayAttr along = builder.getArrayAttr(tokenAxes(roots, index));
    if (rows.contains(op))
      along = rows.place(along, factor.ownsRows);
    axes.push_back(static_cast<int>(index) == chosen
                       ? addTensor(along, roots.back())
                       : along);
  }
  if (byHeads && failed(splitHeads(op, rule, axes)))
    return failure();
  return axes;
}

/// Where cp would split a factor along which work is uneven, as the queries of
/// attention, has it split the first of the factors that must be split evenly,
/// the heads, that it divides inside of what tp leaves of them. That what lies
/// along the sequence is exchanged for it follows from the shardings, and so
/// does that keys and values of which every rank has heads are gathered.
LogicalResult Assigner::splitHeads(ShardableOpInterface op,
                                   const FactorRule &rule, FactorAxes &axes) {
  auto isUneven = [&](size_t index) {
    return !rule.factors[index].isBalanced &&
           llvm::is_contained(axes[index], context);
  };
  auto indices = llvm::seq<size_t>(0, rule.factors.size());
  auto uneven = llvm::find_if(indices, isUneven);
  if (uneven == indices.end())
    return success();
  int64_t ranks = mesh.getAxisSize(context);
  // The first factor that fits wins. Rules list key/value heads before the
  // query heads of a group, so that keys and values need not be gathered where
  // there are enough of them.
  SmallVector<Factor> heads; // what tp leaves of them
  for (size_t index : indices) {
    Factor factor = rule.factors[index];
    if (!factor.mustDivide || factor.kind == FactorKind::Whole)
      continue;
    factor.size /= mesh.getBlocks(axes[index]);
    if (factor.size % ranks == 0) {
      SmallVector<Attribute> inner(axes[index].getValue());
      inner.push_back(context);
      axes[index] = builder.getArrayAttr(inner);
      axes[*uneven] = builder.getArrayAttr({});
      return success();
    }
    // Along one there is nothing to divide.
    if (heads.empty() || factor.size > 1)
      heads.push_back(factor);
  }
  return reportIndivisible(op, kContextAxis, ranks, heads)
         << ", or `context-parallel` gather";
}

/// Brings a result to where its users find it. A partial value that only
/// leaves the function stays partial: it is summed up once, after all
/// microbatches.
void Assigner::publish(Value result) {
  // Where only the classes of the tokens are split, an op leaves its results as
  // their users want them, unless they are partial sums.
  bool onlyReturned = llvm::all_of(result.getUsers(), [](Operation *user) {
    return isa<func::ReturnOp>(user);
  });
  bool maySplitElse = problem || byHeads || rows.axis;
  ShardingAttr wanted = maySplitElse || ShardingAttr::of(result).isPartial()
                            ? publishedSharding(result)
                            : ShardingAttr::of(result);
  if (onlyReturned || ShardingAttr::of(result) == wanted)
    return;
  builder.setInsertionPointAfterValue(result);
  Value moved = reshard(builder, result, wanted);
  // The reshard belongs to the layer of its source, for recomputation.
  result.replaceAllUsesExcept(moved, moved.getDefiningOp());
  nn::inheritLayer(moved.getDefiningOp(), result.getDefiningOp());
}

/// A parameter lies as its sharding says, which may be over more axes than its
/// users want it: then it is gathered for them.
void Assigner::storeParameter(SlotOpInterface read) {
  nn::ParameterOp parameter = nn::findParameter(read, tables);
  Value value = read.getTensor();
  ShardingAttr found = publishedSharding(value);
  ShardingAttr stored = nn::getSharding(parameter);
  if (!stored)
    stored = found;
  // ZeRO 3 stores all of a parameter in parts, ZeRO 2 only what the optimizer
  // keeps of it; ZeRO 1 divides packs, which do not exist yet, and matrices,
  // which rows of packs are no part of, as ZeRO 2. Packs are also what is
  // compressed (StepUnit::addsToError).
  ShardingAttr divided =
      divideState(mesh, cast<RankedTensorType>(parameter.getType()), stored);
  if (zero >= 3 && compresses(compression, nn::countDims(parameter)))
    divided = splitSequence && mesh.getAxisSize(tensor) > 1
                  ? stored
                  : divideChunks(mesh, value, stored, compression);
  if (zero >= 3)
    stored = divided;
  else if (((zero == 2 && !compression.isOn()) ||
            (zero > 0 && parameter.getMatrix())) &&
           divided != stored)
    parameter.setStateAttr(divided);
  value.setType(withSharding(value.getType(), stored));
  if (stored != found)
    reshardForLayers(builder, value, found);
}

/// Types and reshards of one op. What is inserted in front of it belongs to its
/// layer: checkpointing copies a layer with its reshards or not at all.
void Assigner::shardOp(Operation *op, FactorAxes axes) {
  if (auto read = dyn_cast<SlotOpInterface>(op))
    return storeParameter(read);
  auto shardable = dyn_cast<ShardableOpInterface>(op);
  if (!shardable)
    return;
  readPartialSums(shardable, axes);
  Operation *before = op->getPrevNode();
  if (rows.contains(op))
    rows.bring(shardable, meshRef, axes);
  applyFactorAxes(shardable, shardable.getFactorRule(), meshRef, axes);
  for (Operation *added = op->getPrevNode(); added != before;
       added = added->getPrevNode())
    nn::inheritLayer(added, op);
  for (Value result : op->getResults())
    if (!rows.keeps(result))
      publish(result);
}

/// Records where the parameters lie, for whoever needs them next.
void Assigner::pinParameters() {
  for (auto read : nn::findAccesses(function, nn::SlotAccess::Read))
    nn::findParameter(read, tables)
        .setShardingAttr(ShardingAttr::of(read.getTensor()));
  // What nobody reads is saved as it was.
  for (auto parameter :
       function->getParentOfType<ModuleOp>().getOps<nn::ParameterOp>())
    if (!parameter.getShardingAttr())
      parameter.setShardingAttr(ShardingAttr::getReplicated(
          meshRef, cast<RankedTensorType>(parameter.getType()).getRank()));
}

/// The problem sees one rank's share of the tokens, or it would weigh
/// activations and work dp times too heavily against parameters; or the share
/// of other sequences than those of the module.
llvm::SmallDenseMap<int, ShardingProblem::Part> Assigner::findParts() {
  llvm::SmallDenseMap<int, ShardingProblem::Part> parts;
  for (auto &[root, axes] : axesOfClass) {
    int64_t blocks = mesh.getBlocks(builder.getArrayAttr(axes.names));
    parts[root] = {blocks, 1.0 / blocks};
  }
  auto sequences = function->getAttrOfType<FloatAttr>(kSequencesAttr);
  auto tokens = llvm::find_if(function.getArguments(), rankOf);
  if (sequences && tokens != function.getArguments().end())
    parts[classes.find(findTokens(*tokens, 0).front(), 0)].share =
        sequences.getValueAsDouble() /
        double(cast<RankedTensorType>(tokens->getType()).getDimSize(0));
  return parts;
}

/// Chooses what tp splits.
LogicalResult Assigner::solve() {
  int64_t blocks = mesh.getAxisSize(tensor);
  if (blocks <= 1)
    return success();
  // Which classes tp leaves alone: the batch, and with it all that moves with
  // the tokens unless sequences may be split.
  llvm::DenseSet<int> dataClasses;
  for (BlockArgument argument : function.getArguments())
    for (int64_t dim = 0, e = nn::countTokenDims(argument); dim < e; ++dim)
      if (dim == 0 || !splitSequence)
        dataClasses.insert(
            classes.find(findTokens(argument, dim).front(), dim));
  auto module = function->getParentOfType<ModuleOp>();
  FailureOr<LinkAttr> link = getLink(module, kTensorAxis);
  if (failed(link))
    return failure();
  auto counts = function->getAttrOfType<DenseI64ArrayAttr>(kLayerCountsAttr);
  problem.emplace(function, tensor, blocks, classes, dataClasses, findParts(),
                  counts ? counts.asArrayRef() : ArrayRef<int64_t>(),
                  splitSequence, getRates(module), *link);
  return problem->solve();
}

/// Writes what was solved, before the types change that it is about.
LogicalResult Assigner::tell(StringRef problemFile) const {
  if (problemFile.empty())
    return success();
  if (!problem)
    return function->emitError("has no sharding problem to write: ")
           << kTensorAxis << " has one rank";
  return writeProblem(function, problemFile, problem->toJson());
}

/// Rows of a tensor that ranks of tp exchange in pieces, each beside the matmul
/// of another, have to lie side by side in each piece: those of one sequence
/// are dealt out, so that with the sequences there are as many pieces as asked
/// for. Nothing is dealt out where that is not even, where an op counts along
/// what tp splits, or where that is a parameter's.
void Assigner::chooseRounds() {
  int64_t ranks = mesh.getAxisSize(tensor);
  if (pieces == 1 || ranks <= 1 || !splitSequence)
    return;
  // All arguments with positions share them.
  auto tokens = llvm::find_if(function.getArguments(), [](Value argument) {
    return rankOf(argument) > 1;
  });
  if (tokens == function.getArguments().end())
    return;
  auto type = cast<RankedTensorType>(tokens->getType());
  auto getOwn = [&](int64_t dim) {
    return type.getDimSize(dim) /
           mesh.getKnownAxes().product(
               [&](const AxisFacts &facts) { return facts.tokenDim() == dim; });
  };
  int64_t wanted = llvm::divideCeil(pieces, getOwn(0));
  sequence = classes.find(*tokens, 1);
  bool mayBeDealt = getOwn(1) % (ranks * wanted) == 0 &&
                    findTokens(*tokens, 1).front() == *tokens;
  function.walk([&](ShardableOpInterface op) {
    FactorRule rule = op.getFactorRule();
    int chosen = problem->getFactor(op);
    mayBeDealt &= chosen == ShardingProblem::kNone ||
                  !rule.factors[chosen].isCounted ||
                  classes.findFactor(op, rule, chosen) != sequence;
  });
  for (auto read : nn::findAccesses(function, nn::SlotAccess::Read)) {
    int dim = problem->getDim(read.getTensor());
    mayBeDealt &= dim == ShardingProblem::kNone ||
                  classes.find(read.getTensor(), dim) != sequence;
  }
  rounds = mayBeDealt ? wanted : 1;
}

/// The steps of the banner. All choices are computed before the first type is
/// changed, and all types before the function's own, which repeats those of its
/// arguments and results.
LogicalResult Assigner::run(StringRef problemFile) {
  // 1. and 2.
  function.walk(
      [&](ShardableOpInterface op) { classes.add(op, op.getFactorRule()); });
  joinInputs();
  if (failed(checkReads()) || failed(seedTokens()) ||
      failed(rows.find(function, mesh)))
    return failure();
  // 3.
  if (failed(solve()) || failed(tell(problemFile)))
    return failure();
  chooseRounds();
  // 5. Arguments first: an op reshards its operands from the types they have.
  for (BlockArgument argument : function.getArguments())
    argument.setType(
        withSharding(argument.getType(), publishedSharding(argument)));
  // Decided for all ops before the first reshard hides a value from its class.
  SmallVector<std::pair<Operation *, FactorAxes>> ops;
  for (Operation &op : function.getBody().front()) {
    ops.push_back({&op, FactorAxes()});
    auto shardable = dyn_cast<ShardableOpInterface>(op);
    if (!shardable)
      continue;
    FailureOr<FactorAxes> axes = factorAxes(shardable);
    if (failed(axes))
      return failure();
    ops.back().second = std::move(*axes);
  }
  for (auto &[op, axes] : ops)
    shardOp(op, axes);
  Operation *terminator = function.getBody().front().getTerminator();
  // Results of the function that only leave it may be partial (publish()), so
  // their types are known last.
  function.setFunctionType(FunctionType::get(
      function.getContext(), function.getBody().front().getArgumentTypes(),
      terminator->getOperandTypes()));
  pinParameters();
  return success();
}

namespace {
struct AssignShardingsPass
    : plait::impl::AssignShardingsPassBase<AssignShardingsPass> {
  using AssignShardingsPassBase::AssignShardingsPassBase;

  void getDependentDialects(DialectRegistry &registry) const override {
    AssignShardingsPassBase::getDependentDialects(registry);
    registry.insert<PlaitDialect>(); // of getRates()
  }

  void runOnOperation() override {
    MeshOp mesh = MeshOp::find(getOperation());
    auto function =
        getOperation().lookupSymbol<func::FuncOp>(nn::kLossFunction);
    if (!mesh || !function) {
      getOperation().emitOpError("has no mesh or no function @loss to shard");
      return signalPassFailure();
    }
    TrainingConfiguration configuration = getConfiguration(getOperation());
    if (failed(Assigner(function, mesh, configuration).run(problemFile)))
      signalPassFailure();
  }
};
} // namespace
