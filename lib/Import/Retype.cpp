//===- Retype.cpp - A model in the types of another size ------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Which dimensions are the batch and which the sequence is not told by their
// extents: a width may well have the same one. It follows from the ops. Each
// says along which of its factors the dimensions of operands and results run
// (FactorRule.h), and what runs along one factor has one extent. So taken over
// the function, the dimensions that belong to the first or to the second one of
// the tokens are those that change, and no others.
//
// What has an extent and is no type is refused where it would not follow:
// parameters, and numbers that were computed from an extent when the model was
// written, as far as they can be recognised. And a model of another batch is
// the same model only where the loss is a sum over sequences.
//
//===----------------------------------------------------------------------===//

#include "Retype.h"

#include "plait/Analysis/FactorClasses.h"
#include "plait/Dialect/NN/IR/Inputs.h"
#include "plait/Dialect/NN/IR/NN.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Verifier.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/SmallVectorExtras.h"

using namespace mlir;
using namespace plait;

/// A batch or a sequence of more is a typing error.
static constexpr int64_t kMostTokens = int64_t(1) << 24;
/// The tokens of a microbatch of all ranks: thousands of them have some each.
/// Times the largest vocabulary it is still far from what 64 bits hold.
static constexpr int64_t kMostTokensTogether = int64_t(1) << 32;

namespace {

/// Batch or sequence.
struct Extent {
  const char *name; // in messages
  int64_t written, wanted;
  int dims = -1; // its class of dimensions

  bool changes() const { return written != wanted; }
};

/// Keeps what is created, in order.
struct Collector : OpBuilder::Listener {
  void notifyOperationInserted(Operation *op, OpBuilder::InsertPoint) override {
    created.push_back(op);
  }
  SmallVector<Operation *> created;
};

/// Rewrites the types of one loss function.
class Retyper {
public:
  Retyper(func::FuncOp loss, int64_t batch, int64_t sequence);

  ~Retyper();

  LogicalResult run();
  /// Fails, with an error at the op, where something holds for the written size
  /// only.
  LogicalResult check();

private:
  /// The first op that makes a sequence's part of the loss depend on others'.
  Operation *findMixing();
  void join(Operation *op);
  void joinParts(DecomposableOpInterface op);
  void joinAll();
  const Extent *find(Value value, int64_t dim);
  bool hasBatch(Value value);
  LogicalResult checkRead(SlotOpInterface read);
  LogicalResult checkPositions(Operation *op);
  LogicalResult checkMean(nn::ScaleOp op);
  LogicalResult checkCount();
  void retype(Value value);

  func::FuncOp loss;
  FactorClasses classes;
  /// Batch and sequence, by the dimension of the tokens.
  Extent extents[2];
  /// The parts of composed ops. They live as long as `classes` knows their
  /// values: others at the same addresses would be taken for them.
  Collector parts;
};

} // namespace

Retyper::Retyper(func::FuncOp loss, int64_t batch, int64_t sequence)
    : loss(loss) {
  auto tokens = cast<RankedTensorType>(loss.getArgumentTypes()[0]);
  extents[0] = {"batch", tokens.getDimSize(0), batch};
  extents[1] = {"sequence", tokens.getDimSize(1), sequence};
  joinAll();
}

/// They use each other's results.
Retyper::~Retyper() {
  for (Operation *op : parts.created)
    op->dropAllReferences();
  for (Operation *op : parts.created)
    op->destroy();
}

//===----------------------------------------------------------------------===//
// Dimensions
//===----------------------------------------------------------------------===//

/// An op that is decomposed before sharding has no factors of its own: its
/// parts, which are built beside it for a while, have.
void Retyper::joinParts(DecomposableOpInterface op) {
  size_t first = parts.created.size();
  OpBuilder builder(op, &parts);
  SmallVector<Value> results = op.decompose(builder);
  for (auto [result, made] : llvm::zip_equal(op->getResults(), results))
    if (auto type = dyn_cast<RankedTensorType>(result.getType()))
      for (int64_t dim = 0; dim < type.getRank(); ++dim)
        classes.join(result, made, dim);
  // Parts may be composed themselves, and then add to the list.
  for (size_t i = first; i < parts.created.size(); ++i)
    join(parts.created[i]);
}

void Retyper::join(Operation *op) {
  auto composed = dyn_cast<DecomposableOpInterface>(op);
  if (auto shardable = dyn_cast<ShardableOpInterface>(op))
    classes.add(shardable, shardable.getFactorRule());
  else if (composed && composed.decomposesEarly())
    joinParts(composed);
}

/// All arguments have the batch first, then the sequence where they are of
/// positions. Parts are taken out of the function again.
void Retyper::joinAll() {
  Value tokens = loss.getArgument(0);
  for (BlockArgument argument : loss.getArguments())
    for (int64_t dim = 0, e = nn::countTokenDims(argument); dim < e; ++dim)
      classes.join(argument, tokens, dim);
  SmallVector<Operation *> ops = llvm::map_to_vector(
      loss.getBody().front(), [](Operation &op) { return &op; });
  for (Operation *op : ops)
    join(op);
  for (Operation *op : parts.created)
    op->remove();
  for (auto [dim, extent] : llvm::enumerate(extents))
    extent.dims = classes.find(tokens, dim);
}

/// Null for a dimension that is neither.
const Extent *Retyper::find(Value value, int64_t dim) {
  int dims = classes.find(value, dim);
  for (const Extent &extent : extents)
    if (extent.dims == dims)
      return &extent;
  return nullptr;
}

bool Retyper::hasBatch(Value value) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  for (int64_t dim = 0, rank = type ? type.getRank() : 0; dim < rank; ++dim)
    if (find(value, dim) == &extents[0])
      return true;
  return false;
}

void Retyper::retype(Value value) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  if (!type)
    return;
  SmallVector<int64_t> shape(type.getShape());
  for (auto [dim, size] : llvm::enumerate(shape))
    if (const Extent *extent = find(value, dim))
      size = extent->wanted;
  value.setType(type.clone(ArrayRef<int64_t>(shape)));
}

//===----------------------------------------------------------------------===//
// Sequences that mix
//===----------------------------------------------------------------------===//

/// Whether `op`, whose operands have no batch, makes a sum over sequences of
/// those that are `sums`.
static bool isSumOf(Operation *op, const llvm::DenseSet<Value> &sums) {
  auto isSum = [&](Value value) { return sums.contains(value); };
  if (isa<nn::NegOp, nn::ScaleOp, nn::CastOp, nn::StopGradientOp,
          nn::BroadcastOp>(op))
    return true;
  // What is added once is no part of each sequence.
  if (isa<nn::AddOp, nn::SubOp>(op))
    return llvm::all_of(op->getOperands(), isSum);
  if (auto reduce = dyn_cast<nn::ReduceOp>(op))
    return reduce.getKind() == nn::ReduceKind::Sum;
  if (isa<nn::DivOp>(op))
    return !isSum(op->getOperand(1));
  return isa<nn::MulOp, ContractionOpInterface>(op) &&
         llvm::count_if(op->getOperands(), isSum) == 1;
}

/// Sums over sequences have no batch any more. They may be added up; with
/// sequences again, or in anything that is not linear, they mix, and so does a
/// maximum of sequences.
Operation *Retyper::findMixing() {
  llvm::DenseSet<Value> sums;
  auto isSum = [&](Value value) { return sums.contains(value); };
  auto isOfBatch = [&](Value value) { return hasBatch(value); };
  for (Operation &op : loss.getBody().front().without_terminator()) {
    bool readsBatch = llvm::any_of(op.getOperands(), isOfBatch);
    bool readsSum = llvm::any_of(op.getOperands(), isSum);
    if (readsSum && (readsBatch || llvm::any_of(op.getResults(), isOfBatch) ||
                     !isSumOf(&op, sums)))
      return &op;
    auto reduce = dyn_cast<nn::ReduceOp>(op);
    for (Value result : op.getResults()) {
      bool losesBatch = readsBatch && !hasBatch(result);
      if (losesBatch && reduce && reduce.getKind() == nn::ReduceKind::Max)
        return &op;
      if (readsSum || losesBatch)
        sums.insert(result);
    }
  }
  return nullptr;
}

//===----------------------------------------------------------------------===//
// What does not follow
//===----------------------------------------------------------------------===//

/// A parameter has the extents that its file has.
LogicalResult Retyper::checkRead(SlotOpInterface read) {
  auto type = cast<RankedTensorType>(read.getTensor().getType());
  for (int64_t dim = 0; dim < type.getRank(); ++dim)
    if (const Extent *extent = find(read.getTensor(), dim);
        extent && extent->changes())
      return read->emitOpError("reads ")
             << read.getSymbolAttr() << ", whose dimension " << dim
             << " is the " << extent->name << ": it can only be "
             << extent->written << ", but " << extent->wanted
             << " is asked for";
  return success();
}

/// An order of positions is one of a given number.
LogicalResult Retyper::checkPositions(Operation *op) {
  nn::BeginAttr found;
  op->getAttrDictionary().walk([&](nn::BeginAttr begin) {
    if (begin.getExtent())
      found = begin;
  });
  if (!found)
    return success();
  return op->emitOpError("counts in a dimension of ")
         << found.getExtent() << " elements, " << found
         << ", which has no other size";
}

/// A sum over the batch or the sequence that is divided by its size.
LogicalResult Retyper::checkMean(nn::ScaleOp op) {
  auto sum = op.getInput().getDefiningOp<nn::ReduceOp>();
  if (!sum || sum.getKind() != nn::ReduceKind::Sum)
    return success();
  int64_t count = 1;
  const Extent *named = nullptr;
  for (int64_t dim : sum.getDims()) {
    count *= sum.getInput().getType().getDimSize(dim);
    if (const Extent *extent = find(sum.getInput(), dim);
        extent && extent->changes())
      named = extent;
  }
  if (!named || op.getAmount().convertToFloat() != float(1.0 / double(count)))
    return success();
  return op.emitOpError("divides a sum by ")
         << count << ", which is right for a " << named->name << " of "
         << named->written << " only, but " << named->wanted
         << " is asked for; a sum of ones can be divided by instead";
}

/// The number of targets that depends on no argument is for one size.
LogicalResult Retyper::checkCount() {
  Value count = loss.getBody().front().getTerminator()->getOperand(1);
  llvm::SetVector<Value> inputs; // grows while it is walked
  inputs.insert(count);
  for (size_t i = 0; i < inputs.size(); ++i) {
    Operation *op = inputs[i].getDefiningOp();
    if (!op)
      return success(); // an argument
    inputs.insert(op->operand_begin(), op->operand_end());
  }
  return count.getDefiningOp()->emitOpError("is the number of targets, and a "
                                            "constant, for ")
         << extents[0].written << " sequences of " << extents[1].written
         << " tokens; for " << extents[0].wanted << " of " << extents[1].wanted
         << " it has to be counted, as by nn.valid";
}

/// Goes in the order of the ops, so that the first one that is wrong is named.
LogicalResult Retyper::check() {
  if (extents[0].dims == extents[1].dims &&
      extents[0].wanted != extents[1].wanted)
    return loss.emitOpError("has batch and sequence along one dimension, but ")
           << extents[0].wanted << " sequences of " << extents[1].wanted
           << " tokens are asked for";
  if (Operation *mixing = findMixing(); mixing && extents[0].changes())
    return mixing->emitOpError("takes a sum over the batch, and @")
           << nn::kLossFunction << " is no sum over sequences any more: it is "
           << "for " << extents[0].written << ", but " << extents[0].wanted
           << " are asked for";
  for (Operation &op : loss.getBody().front()) {
    auto scale = dyn_cast<nn::ScaleOp>(op);
    if (failed(checkPositions(&op)) || (scale && failed(checkMean(scale))) ||
        (nn::getSlotAccess(&op) == nn::SlotAccess::Read &&
         failed(checkRead(cast<SlotOpInterface>(op)))))
      return failure();
  }
  return checkCount();
}

LogicalResult Retyper::run() {
  if (failed(check()))
    return failure();
  Block &body = loss.getBody().front();
  for (BlockArgument argument : body.getArguments())
    retype(argument);
  for (Operation &op : body)
    for (Value result : op.getResults())
      retype(result);
  loss.setFunctionType(
      FunctionType::get(loss.getContext(), body.getArgumentTypes(),
                        body.getTerminator()->getOperandTypes()));
  return success();
}

/// Both are at most 2^24, so that their product does not overflow.
LogicalResult plait::checkSize(Location loc, int64_t batch, int64_t sequence) {
  for (auto [name, value] : {std::pair("batch", batch), {"sequence", sequence}})
    if (value < 1 || value > kMostTokens)
      return emitError(loc) << name << " is " << value
                            << ", expected from 1 to " << kMostTokens;
  if (batch * sequence > kMostTokensTogether)
    return emitError(loc) << "sequence is " << sequence << ", expected at most "
                          << kMostTokensTogether / batch
                          << " with a microbatch of " << batch;
  return success();
}

bool plait::hasFixedBatch(ModuleOp module) {
  auto loss = module.lookupSymbol<func::FuncOp>(nn::kLossFunction);
  auto tokens = cast<RankedTensorType>(loss.getArgumentTypes()[0]);
  // Nothing but the answer is wanted.
  ScopedDiagnosticHandler silence(module.getContext(), [](Diagnostic &) {});
  return failed(
      Retyper(loss, 2 * tokens.getDimSize(0), tokens.getDimSize(1)).check());
}

/// The ops verify what they make of the new types, and the function what they
/// select from; vocabularies have not changed.
LogicalResult plait::retypeModel(ModuleOp module, int64_t batch,
                                 int64_t sequence) {
  auto loss = module.lookupSymbol<func::FuncOp>(nn::kLossFunction);
  auto tokens = cast<RankedTensorType>(loss.getArgumentTypes()[0]);
  if (tokens.getShape() == ArrayRef({batch, sequence}))
    return success();
  if (failed(checkSize(loss.getLoc(), batch, sequence)) ||
      failed(Retyper(loss, batch, sequence).run()))
    return failure();
  return failure(failed(verify(module)) ||
                 failed(nn::verifyLoss(loss, /*vocab=*/0)));
}
