//===- Checkpoint.cpp - Recomputation in backward passes ------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Which forward values the backward pass finds, and which it computes again.
// Three kinds of answers: what costs nothing to make, or nothing but arithmetic
// in a kernel that reads what it is made of, is always made again; with `full`
// a layer is computed again from its inputs; with `selective` a minimum cut
// picks the cheap ops of a layer that leave the fewest bytes to keep.
//
// The pass copies forward ops into the backward part of a joint function and
// has backward ops read the copies. What still crosses becomes a residual when
// pipe-split-phases cuts the function. Common subexpressions must not be merged
// in between: that would undo the copies.
//
//===----------------------------------------------------------------------===//

#include "../Remarks.h"
#include "../Sharding/FactorAxes.h"
#include "plait/Analysis/MinimumCut.h"
#include "plait/Dialect/NN/IR/Layers.h"
#include "plait/Dialect/NN/IR/Names.h"
#include "plait/Dialect/Plait/IR/ExpertChunks.h"
#include "plait/Dialect/Plan/IR/Buffers.h"
#include "plait/Transforms/FoldedModel.h"
#include "plait/Transforms/Passes.h"
#include "plait/Transforms/StageFunctions.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/SetVector.h"

#include <limits>
#include <map>

namespace plait {
#define GEN_PASS_DEF_CHECKPOINTPASS
#include "plait/Transforms/Passes.h.inc"
} // namespace plait

using namespace mlir;
using namespace plait;

/// Computed element by element, with nothing to add up or to look up.
static bool isElementwise(Operation *op) {
  RoleFacts facts = getFacts(op);
  return (facts.elementwise || facts.repeats) && !isBackward(op);
}

/// Whether what `op` is made of takes `bytes` or more, looking through what is
/// elementwise and may be computed again; parameters and constants are there
/// anyway. It goes no further back than the answer needs: behind a residual lie
/// all layers before it.
static bool isMadeOf(Operation *op, int64_t bytes) {
  llvm::SetVector<Value> values(op->operand_begin(), op->operand_end());
  // `values` grows while it is walked; as a set it counts what several ops read
  // once.
  for (size_t index = 0; index < values.size() && bytes > 0; ++index) {
    Value value = values[index];
    Operation *source = value.getDefiningOp();
    if (isElementwise(source) && !source->hasTrait<ComparesFloats>())
      values.insert(source->operand_begin(), source->operand_end());
    else if (!source || source->getNumOperands())
      bytes -= byteSize(value.getType());
  }
  return bytes <= 0;
}

/// Values that cost no more than reading them back: parameters, constants, and
/// what is computed element by element of fewer bytes, such as a repetition or
/// the exponential of a bf16 tensor in f32.
static bool isFree(Operation *op) {
  if (op->getNumOperands() == 0)
    return true;
  return isElementwise(op) &&
         !isMadeOf(op, byteSize(op->getResult(0).getType()));
}

/// What ranks that share the tokens out have gathered: a parameter that they
/// store in parts, or keys and values of a sequence that they split. It is
/// gathered again: to keep it is to hold what was divided, once for each
/// microbatch in flight (Llama Team 2024, section 3.3.2). So is what tp has
/// gathered where it splits sequences (Korthikanti et al. 2022, section 4.2.2);
/// elsewhere it is kept: its ranks wait for each other in every layer as it is.
static bool isGathered(Operation *op) {
  auto reshard = dyn_cast<dist::ReshardOp>(op);
  if (!reshard)
    return false;
  auto from = dist::ShardingAttr::of(reshard.getInput());
  auto to = dist::ShardingAttr::of(reshard.getResult());
  bool splitsTokens =
      getConfiguration(op->getParentOfType<ModuleOp>()).sequenceParallel;
  // An axis that split the input and splits nothing of the result: gathered.
  return llvm::any_of(from.getDims(), [&](ArrayAttr axes) {
    return llvm::any_of(dist::getAxes(axes), [&](StringAttr axis) {
      return (splitsTokens || axis.getValue() != kTensorAxis) &&
             to.findDim(axis) < 0;
    });
  });
}

/// What has been gathered in another order: to keep that is to hold as much.
static bool isGatheredInOrder(Operation *op) {
  Operation *source =
      movesElements(op) ? op->getOperand(0).getDefiningOp() : nullptr;
  return source && isGathered(source);
}

/// Whether a whole value is meant for those who take rows: nothing is moved.
static bool isNarrowed(Operation *op) {
  auto reshard = dyn_cast<dist::ReshardOp>(op);
  return reshard && dist::ShardingAttr::of(reshard.getResult()).isOwned();
}

static int64_t countResultBytes(Operation *op) {
  int64_t bytes = 0;
  for (Type type : op->getResultTypes())
    bytes += byteSize(type);
  return bytes;
}

/// Operations a byte of its results. GPUs do 150 to 300 of a bf16 matmul in the
/// time in which one byte comes from memory: what is computed for less costs
/// about as little as reading it back. It is part of what `selective` means, no
/// rate of the cluster: the same ops are chosen on every machine, as the
/// planner's formulas for memory have them.
static constexpr int64_t kCheapFlopsPerByte = 256;

/// Activations, norms, the scores of an attention and their softmax, but not
/// matmuls with weights, which add up over far more elements.
static bool isCheap(Operation *op) {
  auto costed = dyn_cast<CostedOpInterface>(op);
  return costed &&
         costed.getFlops() <= kCheapFlopsPerByte * countResultBytes(op);
}

/// An op that makes each element of another one of the same type, whether or
/// not it is decomposed later: activations, scalings.
static bool isOfOneElement(Operation *op) {
  bool isByElement = isa<FusableOpInterface>(op)
                         ? getFacts(op).elementwise
                         : isa<DecomposableOpInterface>(op);
  return isByElement && op->getNumOperands() == 1 && op->getNumResults() == 1 &&
         op->hasTrait<OpTrait::SameOperandsAndResultType>() &&
         !op->hasTrait<ComparesFloats>() && isCheap(op);
}

/// Whether backward kernels that want the result are all that does, and one
/// reads the operand anyway: made again there it costs arithmetic alone, as the
/// gate's activation of SwiGLU, whose gradient reads the gate (Shazeer 2020).
static bool isReadAnyway(Operation *op) {
  if (isBackward(op) || !isOfOneElement(op) ||
      op->getParentOfType<ModuleOp>()->hasAttr(kKeepsEachResultAttr))
    return false;
  auto inBackward = [](Operation *user) { return isBackward(user); };
  // What is returned is kept as it is.
  auto inKernel = [](Operation *user) {
    return isBackward(user) ? getFacts(user).elementwise
                            : !user->hasTrait<OpTrait::IsTerminator>();
  };
  return llvm::any_of(op->getUsers(), inBackward) &&
         llvm::all_of(op->getUsers(), inKernel) &&
         llvm::any_of(op->getOperand(0).getUsers(), [&](Operation *user) {
           return isBackward(user) && inKernel(user);
         });
}

/// Whether the backward pass makes it anew, whatever else it computes again.
static bool isMadeAnew(Operation *op) {
  return isFree(op) || isGathered(op) || isGatheredInOrder(op) ||
         isNarrowed(op) || isReadAnyway(op);
}

/// Finds what the forward pass computes of rows of experts, one for each
/// choice: from grouped matmuls on, until a sum over choices.
static llvm::SetVector<Operation *> findExpertRows(func::FuncOp function) {
  llvm::SetVector<Operation *> found;
  for (Operation &op : function.getBody().front()) {
    if (isBackward(&op) || op.getNumResults() != 1)
      continue;
    bool takesRows = llvm::any_of(op.getOperands(), [&](Value operand) {
      return found.contains(operand.getDefiningOp());
    });
    bool isByRow = isElementwise(&op) || isOfOneElement(&op) || isNarrowed(&op);
    if (isa<GroupedOpInterface>(op) || (takesRows && isByRow))
      found.insert(&op);
  }
  return found;
}

namespace {

/// Which of a layer's forward ops to compute again so that the fewest bytes are
/// kept for its backward ops: a minimum cut between what has to be there and
/// who needs it, through every value by as much as it takes to keep it (Jain et
/// al. 2020 solve it exactly for time; Chen et al. 2016 by segments).
class RecomputeCut {
public:
  /// `mayCopy` accepts the ops that may be computed again.
  explicit RecomputeCut(llvm::function_ref<bool(Operation *)> mayCopy)
      : mayCopy(mayCopy) {}

  /// The ops to copy, for the layer's backward ops `users`. Takes the time of a
  /// maximum flow through a network with two nodes a value; only what `users`
  /// depend on, as far as it may be copied, is in it.
  llvm::DenseSet<Operation *> find(ArrayRef<Operation *> users);

private:
  /// A value enters its first node and leaves the second.
  struct Nodes {
    int in, out;
  };
  Nodes add(Value value);
  /// From each forward operand of `op` to `node`.
  void connect(Operation *op, int node);

  llvm::function_ref<bool(Operation *)> mayCopy;
  FlowNetwork network;
  llvm::MapVector<Value, Nodes> values; // grows while it is walked
};

} // namespace

/// The edge between the two is the price of keeping the value: cutting it makes
/// the value a residual.
RecomputeCut::Nodes RecomputeCut::add(Value value) {
  auto [entry, isNew] = values.try_emplace(value);
  if (isNew) {
    entry->second = {network.addNode(), network.addNode()};
    network.addEdge(entry->second.in, entry->second.out,
                    byteSize(value.getType()));
  }
  return entry->second;
}

/// Backward operands are on the sink's side whatever is kept.
void RecomputeCut::connect(Operation *op, int node) {
  for (Value operand : op->getOperands())
    if (Operation *source = operand.getDefiningOp();
        !source || !isBackward(source))
      network.addEdge(add(operand).out, node, FlowNetwork::kUncuttable);
}

llvm::DenseSet<Operation *> RecomputeCut::find(ArrayRef<Operation *> users) {
  for (Operation *user : users)
    // What backward ops read has to be on their side: kept, which is its edge
    // cut, or computed there of what is.
    connect(user, FlowNetwork::kSink);
  for (size_t index = 0; index < values.size(); ++index) {
    auto [value, nodes] = values.begin()[index];
    Operation *source = value.getDefiningOp();
    // What may not be computed again comes from the forward pass, at the price
    // of its bytes; edges to who computes are never cut, since an op needs all
    // of its operands.
    if (source && !source->hasTrait<ComparesFloats>() && mayCopy(source))
      connect(source, nodes.in);
    else
      network.addEdge(FlowNetwork::kSource, nodes.in, FlowNetwork::kUncuttable);
  }
  // A value whose first node is behind the cut is not handed over: its op runs
  // there. If only the second one is, the value itself is kept.
  std::vector<bool> isBehind = network.findSinkSide();
  llvm::DenseSet<Operation *> found;
  for (auto &[value, nodes] : values)
    if (isBehind[nodes.in])
      found.insert(value.getDefiningOp());
  return found;
}

namespace {

/// Copies forward ops into the backward part of one joint function.
class Recomputer {
public:
  explicit Recomputer(func::FuncOp function) {
    for (Operation &op : function.getBody().front())
      order.try_emplace(&op, Place(order.size(), kBehindCopies));
  }

  /// Has the backward ops in `users`, which are in program order, use copies of
  /// the forward values that `shouldCopy` accepts, and of what those are
  /// computed from as far as it is accepted too; never of comparisons, which
  /// copies could decide otherwise. Copies stand before the first of the users;
  /// returns them.
  SmallVector<Operation *>
  recompute(ArrayRef<Operation *> users,
            llvm::function_ref<bool(Operation *)> shouldCopy);

  /// Whether `a` is in front of `b` until copies move: both were there at
  /// first, or are copies that one call has returned.
  bool isBefore(Operation *a, Operation *b) const {
    return order.at(a) < order.at(b);
  }

private:
  /// The place of the op that was there at first and in front of which copies
  /// are, or of one itself; behind that the number of a copy.
  using Place = std::pair<size_t, size_t>;
  static constexpr size_t kBehindCopies = std::numeric_limits<size_t>::max();

  /// The places of all ops. A copy makes a block forget the order of its ops,
  /// so that asking the block for each layer would take the square of a
  /// function's length.
  llvm::DenseMap<Operation *, Place> order;
};

} // namespace

SmallVector<Operation *>
Recomputer::recompute(ArrayRef<Operation *> users,
                      llvm::function_ref<bool(Operation *)> shouldCopy) {
  // What is needed, in the order of the forward pass.
  llvm::SetVector<Operation *> needed;
  SmallVector<Operation *> worklist(users);
  while (!worklist.empty())
    for (Value operand : worklist.pop_back_val()->getOperands()) {
      Operation *source = operand.getDefiningOp();
      if (source && !isBackward(source) &&
          !source->hasTrait<ComparesFloats>() && shouldCopy(source) &&
          needed.insert(source))
        worklist.push_back(source);
    }
  if (needed.empty())
    return {};
  SmallVector<Operation *> sources = needed.takeVector();
  llvm::sort(sources,
             [&](Operation *a, Operation *b) { return isBefore(a, b); });
  size_t place = order.at(users.front()).first;
  OpBuilder builder(users.front());
  IRMapping mapping;
  SmallVector<Operation *> copies;
  // The mapping sends operands to copies made before; what was not copied is
  // read from the forward pass, as a residual.
  for (Operation *source : sources) {
    copies.push_back(builder.clone(*source, mapping));
    copies.back()->setAttr(nn::kBackwardAttr, builder.getUnitAttr());
    order.try_emplace(copies.back(), Place(place, copies.size()));
  }
  for (Operation *user : users)
    for (OpOperand &operand : user->getOpOperands())
      operand.set(mapping.lookupOrDefault(operand.get()));
  return copies;
}

/// What is computed or gathered again, not merely read: it fuses with its user,
/// or is not held for long.
static bool belongsToUser(Operation *copy) {
  bool isComputed = getFacts(copy).elementwise && copy->getNumOperands() != 0;
  return isComputed || isOfOneElement(copy) || isGathered(copy) ||
         isGatheredInOrder(copy);
}

namespace {

/// Places for copies in front of their first users, which are found before any
/// is taken.
class SinkPlan {
public:
  /// `recomputer` has made the copies, in one call.
  explicit SinkPlan(const Recomputer &recomputer) : recomputer(recomputer) {}

  /// Decides that `copy` goes in front of its first user. Users that are copies
  /// have been added before, or stay.
  void add(Operation *copy);
  /// Moves what was added.
  void apply();

private:
  /// The op that does not move and in front of which `op` is, or `op` itself.
  Operation *getAnchor(Operation *op) const {
    Operation *anchor = anchors.lookup(op);
    return anchor ? anchor : op;
  }
  bool isBefore(Operation *a, Operation *b) const;

  const Recomputer &recomputer;
  llvm::DenseMap<Operation *, Operation *> anchors; // of what moves
  /// The ops that move in front of each anchor, in order.
  llvm::MapVector<Operation *, SmallVector<Operation *, 4>> groups;
};

} // namespace

bool SinkPlan::isBefore(Operation *a, Operation *b) const {
  Operation *anchorA = getAnchor(a), *anchorB = getAnchor(b);
  if (anchorA != anchorB)
    return recomputer.isBefore(anchorA, anchorB);
  if (a == anchorA || b == anchorA) // an anchor is behind its group
    return a != anchorA;
  const auto &group = groups.find(anchorA)->second;
  return llvm::find(group, a) < llvm::find(group, b);
}

void SinkPlan::add(Operation *copy) {
  Operation *first =
      *llvm::min_element(copy->getUsers(), [&](Operation *a, Operation *b) {
        return isBefore(a, b);
      });
  Operation *anchor = getAnchor(first);
  auto &group = groups[anchor];
  // Not found if the first user is the anchor: then it is the last in front.
  group.insert(llvm::find(group, first), copy);
  anchors[copy] = anchor;
}

void SinkPlan::apply() {
  for (auto &[anchor, group] : groups)
    for (Operation *copy : group)
      copy->moveBefore(anchor);
}

/// Moves the copies that `moves` accepts to where they are first needed.
static void sink(const Recomputer &recomputer, ArrayRef<Operation *> copies,
                 llvm::function_ref<bool(Operation *)> moves) {
  SinkPlan plan(recomputer);
  // From the last: a copy's users are where they stay before it follows them.
  for (Operation *copy : llvm::reverse(copies))
    if (moves(copy) && !copy->use_empty())
      plan.add(copy);
  plan.apply();
}

static int64_t countLayers(func::FuncOp function) {
  llvm::DenseSet<int64_t> layers;
  for (Operation &op : function.getBody().front())
    if (auto layer = nn::getLayer(&op))
      layers.insert(*layer);
  return int64_t(layers.size());
}

namespace {
struct CheckpointPass : plait::impl::CheckpointPassBase<CheckpointPass> {
  using CheckpointPassBase::CheckpointPassBase;

  void runOnOperation() override {
    TrainingConfiguration configuration = getConfiguration(getOperation());
    if (Status status = checkExecutable(configuration); !status.ok()) {
      getOperation().emitError(status.message());
      return signalPassFailure();
    }
    auto joint = llvm::make_filter_range(
        getOperation().getOps<func::FuncOp>(), [](func::FuncOp function) {
          return doesAction(function, pipe::ActionKind::Joint);
        });
    const Recomputation &recompute = configuration.recompute;
    if (Status status = checkStages(recompute, llvm::range_size(joint));
        !status.ok()) {
      getOperation().emitError(status.message());
      return signalPassFailure();
    }
    int64_t most = 0; // layers of a stage
    for (func::FuncOp function : joint)
      most = std::max(most, countLayers(function));
    if (Status status = checkLayerCounts(recompute, most); !status.ok()) {
      getOperation().emitError(status.message());
      return signalPassFailure();
    }
    for (func::FuncOp function : joint)
      runOn(function,
            recompute.getStage(getStageFunction(function).getIndex()));
  }

  /// 1. Lists the backward ops, all and by layer. Forward ops make an entry
  ///    too: layers are counted by what the function has of the model. In
  ///    chunks rows of experts are no more there than anywhere else: they are
  ///    copied.
  /// 2. Copies for each layer what its kind asks for, in front of its backward
  ///    ops.
  /// 3. Copies for all backward ops what costs nothing or was gathered, to its
  ///    users.
  void runOn(func::FuncOp function, const Recomputation::Stage &kinds) {
    // 1.
    if (getExpertChunks(getOperation()) > 1)
      recomputeRows(function);
    Recomputer recomputer(function);
    std::map<int64_t, SmallVector<Operation *>> layers; // backward ops
    SmallVector<Operation *> backward;
    for (Operation &op : function.getBody().front()) {
      if (isBackward(&op))
        backward.push_back(&op);
      auto layer = nn::getLayer(&op);
      if (!layer)
        continue;
      SmallVector<Operation *> &own = layers[*layer];
      if (isBackward(&op))
        own.push_back(&op);
    }
    // 2. Kinds go by the layer's position in this function, not by its number
    //    in the model.
    for (auto [place, entry] : llvm::enumerate(layers)) {
      auto &[layer, users] = entry;
      if (users.empty()) // nothing of it is trained
        continue;
      Recompute recompute = kinds.getKind(int(place));
      auto isOwn = [layer = layer](Operation *op) {
        return nn::getLayer(op) == layer;
      };
      if (recompute == Recompute::Full)
        recomputer.recompute(
            users, [&](Operation *op) { return isMadeAnew(op) || isOwn(op); });
      else if (recompute == Recompute::Selective)
        recomputeCheap(recomputer, users, isOwn);
    }
    // 3.
    sink(recomputer, recomputer.recompute(backward, isMadeAnew), belongsToUser);
  }

  /// Copies become backward ops as others are: what they read is kept or
  /// computed again as is asked for.
  static void recomputeRows(func::FuncOp function) {
    Recomputer recomputer(function);
    SmallVector<Operation *> backward;
    for (Operation &op : function.getBody().front())
      if (isBackward(&op))
        backward.push_back(&op);
    auto rows = findExpertRows(function);
    auto copies = recomputer.recompute(
        backward, [&](Operation *op) { return rows.contains(op); });
    sink(recomputer, copies, [](Operation *) { return true; });
  }

  /// What is computed again, and why not what else the backward ops read.
  static void tell(ArrayRef<Operation *> users,
                   const llvm::DenseSet<Operation *> &chosen,
                   llvm::function_ref<bool(Operation *)> isOwn) {
    if (!hasRemarks(users.front()->getContext()))
      return;
    llvm::SetVector<Operation *> read;
    auto add = [&](Operation *op) {
      for (Value operand : op->getOperands())
        if (Operation *source = operand.getDefiningOp();
            source && !isBackward(source) && !isFree(source) && isOwn(source))
          read.insert(source);
    };
    // The walk goes on behind what is copied alone: what lies further back is
    // not read.
    llvm::for_each(users, add);
    for (size_t index = 0; index < read.size(); ++index) {
      Operation *op = read[index];
      auto options = about(op, "recompute", "nn-checkpoint");
      int64_t bytes = countResultBytes(op);
      if (chosen.contains(op)) {
        add(op);
        remark::passed(op->getLoc(), options)
            << remark::add("{0} is made again, and its {1} bytes not kept",
                           op->getName(), bytes);
      } else if (op->hasTrait<ComparesFloats>()) {
        remark::missed(op->getLoc(), options) << remark::add(
            "{0} is kept, {1} bytes: a copy might compare otherwise",
            op->getName(), bytes);
      } else if (!isCheap(op)) {
        remark::missed(op->getLoc(), options) << remark::add(
            "{0} is kept, {1} bytes: it takes over {2} operations for each",
            op->getName(), bytes, kCheapFlopsPerByte);
      } else {
        remark::missed(op->getLoc(), options) << remark::add(
            "{0} is kept, {1} bytes: what it is made of has no fewer",
            op->getName(), bytes);
      }
    }
  }

  /// Copies are placed at their users and not before the first of them, unlike
  /// those of `full`, where the layer is computed as one piece.
  void recomputeCheap(Recomputer &recomputer, ArrayRef<Operation *> users,
                      llvm::function_ref<bool(Operation *)> isOwn) {
    auto mayCopy = [&](Operation *op) {
      return isMadeAnew(op) || (isOwn(op) && isCheap(op));
    };
    llvm::DenseSet<Operation *> chosen = RecomputeCut(mayCopy).find(users);
    tell(users, chosen, isOwn);
    auto copies = recomputer.recompute(
        users, [&](Operation *op) { return chosen.contains(op); });
    // Scores are not to live as long as the backward pass of the whole layer.
    sink(recomputer, copies, [](Operation *) { return true; });
  }
};
} // namespace
