//===- IterationSpace.cpp - The loops of a cluster ------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Dimensions of tensors are nodes of a union-find, which ops join by their
// roles:
// 1. Join what each op moves together. An input is a tensor of its own at each
//    use, since it may repeat differently there.
// 2. The classes of the largest tensor are the dimensions of the space.
// 3. Every other tensor has to fit: its dimensions are some of those, in order
//    if it has the last of them.
// 4. Neighbouring dimensions become one group, which one loop runs over, as
//    long as no tensor has one without the other.
//
// Fails, rather than guesses, where tensors do not fit: fusion then does not
// form the cluster.
//
//===----------------------------------------------------------------------===//

#include "plait/Analysis/IterationSpace.h"
#include "plait/Dialect/Plan/IR/RowPitch.h"

using namespace mlir;
using namespace plait;

FusionRole plait::getRole(Operation *op) {
  return cast<FusableOpInterface>(op).getFusionRole();
}

std::optional<IndexMap> plait::findIndexMap(Operation *op) {
  auto fusable = cast<FusableOpInterface>(op);
  if (fusable.getFusionRole() != FusionRole::Reindex)
    return std::nullopt;
  return fusable.getIndexMap();
}

int64_t plait::getCallValue(Operation *op) {
  StringRef name = cast<FusableOpInterface>(op).getCallAttrName();
  return cast<IntegerAttr>(op->getInherentAttr(name).value()).getInt();
}

static ArrayRef<int64_t> shapeOf(Value value) {
  return cast<RankedTensorType>(value.getType()).getShape();
}

//===----------------------------------------------------------------------===//
// Classes of dimensions
//===----------------------------------------------------------------------===//

/// Every dimension of every value, and of every use of an input, is a node;
/// the ops join nodes to classes.
class plait::SpaceBuilder {
public:
  explicit SpaceBuilder(plan::ClusterOp cluster)
      : cluster(cluster), body(cluster.getBody().front()) {}

  FailureOr<IterationSpace> build();

private:
  struct Node {
    unsigned parent;
    bool indexed = false;  // by data: no loop runs over it
    bool isolated = false; // no neighbour may join its loop
    int64_t dim = kNoDim;
  };
  /// A tensor as the ops see it; `use` is null for an op's result.
  struct Tensor {
    Value value;
    OpOperand *use;
    unsigned first;
    bool shifted; // another extent than the loop over it has
  };

  unsigned find(unsigned node) {
    while (nodes[node].parent != node)
      node = nodes[node].parent = nodes[nodes[node].parent].parent;
    return node;
  }
  Node &root(unsigned node) { return nodes[find(node)]; }
  /// Joins two classes: what holds of one node of a class holds of the class.
  void join(unsigned a, unsigned b) {
    a = find(a), b = find(b);
    nodes[b].parent = a;
    nodes[a].isolated |= nodes[b].isolated;
    nodes[a].indexed |= nodes[b].indexed;
  }

  unsigned addTensor(Value value, OpOperand *use, bool shifted = false);
  LogicalResult joinOperands(Operation *op);
  void joinRows(Operation *op, Value operand, unsigned from, unsigned result);
  LogicalResult chooseSpace();
  void joinUses();
  LogicalResult failAt(const Tensor &tensor);
  LogicalResult assignDims();
  void assignGroups();
  void collectReductions();

  plan::ClusterOp cluster;
  Block &body;
  IterationSpace space;
  std::vector<Node> nodes;
  std::vector<Tensor> tensors;
  DenseMap<Value, unsigned> values; // the first node of an op's result
  SmallVector<bool> isolated;       // per dimension of the space
};

/// Returns the first of the tensor's nodes, one for each dimension, in order.
unsigned SpaceBuilder::addTensor(Value value, OpOperand *use, bool shifted) {
  // What an op of the cluster computed has one place in the space.
  if (use && values.contains(value))
    return values[value];
  unsigned first = nodes.size();
  for (unsigned dim = 0; dim < shapeOf(value).size(); ++dim)
    nodes.push_back({first + dim});
  tensors.push_back({value, use, first, shifted});
  if (!use)
    values[value] = first;
  return first;
}

/// Rows lie alike; no loop but the op's own runs over the columns of a row that
/// is no longest one.
void SpaceBuilder::joinRows(Operation *op, Value operand, unsigned from,
                            unsigned result) {
  unsigned last = shapeOf(operand).size() - 1;
  for (unsigned dim = 0; dim < last; ++dim)
    join(from + dim, result + dim);
  int64_t own = shapeOf(operand).back();
  int64_t made = shapeOf(op->getResult(0)).back();
  if (own == made)
    join(from + last, result + last);
  root(from + last).isolated = root(result + last).isolated = true;
  if (own != made)
    root((own < made ? from : result) + last).indexed = true;
}

/// Joins what each role says about the dimensions of its operands; see
/// FusionRole.
LogicalResult SpaceBuilder::joinOperands(Operation *op) {
  FusionRole role = getRole(op);
  unsigned result = addTensor(op->getResult(0), nullptr);
  unsigned rank = shapeOf(op->getResult(0)).size();
  SmallVector<unsigned> firsts;
  ArrayRef<int64_t> own = cast<FusableOpInterface>(op).getDims();
  for (OpOperand &operand : op->getOpOperands()) {
    bool data = operand.getOperandNumber() == 0;
    bool shifted = role == FusionRole::Reindex && data &&
                   shapeOf(operand.get()) != shapeOf(op->getResult(0));
    unsigned from = addTensor(operand.get(), &operand, shifted);
    firsts.push_back(from);
    unsigned operandRank = shapeOf(operand.get()).size();
    if (getFacts(role).ownsRows) {
      joinRows(op, operand.get(), from, result);
    } else if (getFacts(role).reduces) {
      unsigned next = result;
      for (unsigned dim = 0; dim < operandRank; ++dim)
        if (!llvm::is_contained(own, dim))
          join(from + dim, next++);
    } else if (role == FusionRole::Broadcast) {
      for (auto [dim, target] : llvm::enumerate(own))
        join(from + dim, result + target);
    } else if (role == FusionRole::Gather && data) {
      root(from).indexed = true;
      root(from + 1).isolated = true;
      join(from + 1, result + rank - 1);
    } else if (role == FusionRole::ScatterAdd && data) {
      root(result).indexed = true;
      root(result + 1).isolated = true;
      join(from + operandRank - 1, result + 1);
    } else {
      // Leading dimensions agree: ids, say, lack the last one.
      bool scattered = role == FusionRole::ScatterAdd;
      if (operandRank > rank && !scattered)
        return op->emitOpError("has an operand of more dimensions than its "
                               "result, which no kernel computes");
      for (unsigned dim = 0; dim < operandRank; ++dim)
        join(from + dim, (scattered ? firsts[0] : result) + dim);
    }
  }
  // Where an op computes with the index along a dimension, a loop over that one
  // and its neighbour together would have to divide for it.
  if (std::optional<IndexMap> map = findIndexMap(op))
    root(result + map->dim).isolated = true;
  if (cast<FusableOpInterface>(op).computesIndices())
    for (unsigned dim = 0; dim < rank; ++dim)
      root(result + dim).isolated = true;
  return success();
}

//===----------------------------------------------------------------------===//
// The space
//===----------------------------------------------------------------------===//

/// The dimensions of the largest tensor are those of the space.
LogicalResult SpaceBuilder::chooseSpace() {
  const Tensor *largest = nullptr;
  int64_t most = -1;
  for (const Tensor &tensor : tensors) {
    ArrayRef<int64_t> shape = shapeOf(tensor.value);
    // A table that rows are looked up in is no measure: it may be larger than
    // all that is computed.
    bool indexed = false;
    for (unsigned dim = 0; dim < shape.size(); ++dim)
      indexed |= root(tensor.first + dim).indexed;
    int64_t count = ShapedType::getNumElements(shape);
    // Of equally many elements the tensor with more dimensions: extents of 1
    // are told apart by it.
    bool larger =
        count > most ||
        (count == most && shape.size() > shapeOf(largest->value).size());
    if (indexed || tensor.shifted || !larger)
      continue;
    largest = &tensor;
    most = count;
  }
  if (!largest)
    return cluster.emitOpError("holds nothing to compute");
  ArrayRef<int64_t> shape = shapeOf(largest->value);
  // Parts that share no value still share the loops if their shapes agree.
  for (const Tensor &tensor : tensors)
    if (shapeOf(tensor.value) == shape && !tensor.shifted)
      for (unsigned dim = 0; dim < shape.size(); ++dim)
        if (!root(tensor.first + dim).indexed)
          join(largest->first + dim, tensor.first + dim);
  // A dimension of extent 1 needs no loop, unless an op asks for its index.
  for (unsigned dim = 0; dim < shape.size(); ++dim) {
    Node &node = root(largest->first + dim);
    if (shape[dim] == 1 && !node.isolated)
      continue;
    if (node.dim != kNoDim)
      return cluster.emitOpError("uses dimension ")
             << dim << " of a tensor as two at once, which no kernel does";
    node.dim = space.extents.size();
    space.extents.push_back(shape[dim]);
    isolated.push_back(node.isolated);
  }
  // Sets of groups are the bits of a word.
  if (space.extents.size() > 63)
    return cluster.emitOpError("has more than 63 dimensions");
  return success();
}

/// A use of an input that is joined to nothing else lies as another use of it
/// does.
void SpaceBuilder::joinUses() {
  auto isPlaced = [&](const Tensor &tensor) {
    unsigned rank = shapeOf(tensor.value).size();
    return llvm::all_of(llvm::seq<unsigned>(rank), [&](unsigned dim) {
      const Node &node = root(tensor.first + dim);
      return !node.indexed &&
             (node.dim != kNoDim || shapeOf(tensor.value)[dim] == 1);
    });
  };
  // Quadratic in the tensors of one cluster.
  for (const Tensor &tensor : tensors) {
    if (isPlaced(tensor))
      continue;
    for (const Tensor &other : tensors)
      if (other.value == tensor.value && isPlaced(other) && !other.shifted) {
        for (unsigned dim = 0; dim < shapeOf(tensor.value).size(); ++dim)
          if (!root(tensor.first + dim).indexed)
            join(other.first + dim, tensor.first + dim);
        break;
      }
  }
}

LogicalResult SpaceBuilder::failAt(const Tensor &tensor) {
  return cluster.emitOpError("holds ")
         << tensor.value.getType()
         << ", which does not fit the loops over its largest tensor";
}

/// Every tensor's dimensions are dimensions of the space, none of them twice.
/// They ascend in a tensor that has the last: transposed it would be read
/// across its rows, for which there is no kernel. One number a row is found
/// anywhere.
LogicalResult SpaceBuilder::assignDims() {
  for (const Tensor &tensor : tensors) {
    SmallVector<int64_t> dims, used;
    for (auto [index, extent] : llvm::enumerate(shapeOf(tensor.value))) {
      const Node &node = root(tensor.first + index);
      int64_t dim = node.indexed ? kNoDim : node.dim;
      dims.push_back(dim);
      if (dim != kNoDim)
        used.push_back(dim);
      bool fits = dim == kNoDim
                      ? node.indexed || extent == 1
                      : tensor.shifted || extent == space.extents[dim];
      if (!fits)
        return failAt(tensor);
    }
    bool isByRow = !llvm::is_contained(used, int64_t(space.extents.size()) - 1);
    if (isByRow)
      llvm::sort(used);
    if (!llvm::is_sorted(used) ||
        std::ranges::adjacent_find(used) != used.end())
      return failAt(tensor);
    if (tensor.use)
      space.useDims[tensor.use] = std::move(dims);
    else
      space.valueDims[tensor.value] = std::move(dims);
  }
  return success();
}

/// Dimensions join unless a tensor has one without the other, or has them in
/// another order, or has its rows lie apart in memory.
void SpaceBuilder::assignGroups() {
  unsigned count = space.extents.size();
  SmallVector<bool> cut(count, false);
  // A cut lies between a dimension and the one before it.
  for (unsigned dim = 1; dim < count; ++dim)
    cut[dim] = isolated[dim] || isolated[dim - 1];
  auto cutAlong = [&](ArrayRef<int64_t> all) {
    SmallVector<int64_t> dims;
    llvm::copy_if(all, std::back_inserter(dims),
                  [](int64_t dim) { return dim != kNoDim; });
    for (unsigned dim = 1; dim < count; ++dim) {
      auto before = llvm::find(dims, dim - 1), own = llvm::find(dims, dim);
      bool hasOne = before != dims.end(), hasOther = own != dims.end();
      cut[dim] = cut[dim] || hasOne != hasOther ||
                 (hasOne && std::next(before) != own);
    }
  };
  // Rows with a gap behind them cannot be walked as one.
  auto cutPitched = [&](OpOperand &use, Value stored) {
    ArrayRef<int64_t> shape = shapeOf(stored);
    if (shape.empty() || plan::getRowPitch(stored) == shape.back())
      return;
    if (int64_t dim = space.getDims(use).back(); dim > 0)
      cut[dim] = true;
  };
  for (BlockArgument input : body.getArguments())
    for (OpOperand &use : input.getUses())
      cutPitched(use, input);
  for (OpOperand &use : body.getTerminator()->getOpOperands())
    cutPitched(use, cluster.getResult(use.getOperandNumber()));
  for (const Tensor &tensor : tensors)
    if (!shapeOf(tensor.value).empty())
      cutAlong(tensor.use ? space.useDims[tensor.use]
                          : space.valueDims[tensor.value]);
  for (unsigned dim = 0; dim < count; ++dim) {
    if (dim == 0 || cut[dim])
      space.groups.emplace_back();
    Group &group = space.groups.back();
    group.extent *= space.extents[dim];
    group.dims.push_back(dim);
    space.groupOfDim.push_back(space.groups.size() - 1);
  }
}

/// Collects, of each reduction, the groups that its operand has and its result
/// lacks.
void SpaceBuilder::collectReductions() {
  for (Operation &op : body.without_terminator()) {
    if (!getFacts(getRole(&op)).reduces)
      continue;
    GroupSet from = space.getGroups(space.getDims(op.getOpOperand(0)));
    GroupSet to = space.getGroups(space.getDims(op.getResult(0)));
    space.reductions.push_back({&op, from & ~to});
  }
}

/// The steps of the banner; groups come before reductions, which are told by
/// them.
FailureOr<IterationSpace> SpaceBuilder::build() {
  for (Operation &op : body.without_terminator())
    if (failed(joinOperands(&op)))
      return failure();
  for (OpOperand &operand : body.getTerminator()->getOpOperands())
    // Results are uses, too: one that is an argument has no op to give it
    // dimensions.
    addTensor(operand.get(), &operand);
  if (failed(chooseSpace()))
    return failure();
  joinUses();
  if (failed(assignDims()))
    return failure();
  assignGroups();
  collectReductions();
  return std::move(space);
}

FailureOr<IterationSpace> IterationSpace::analyze(plan::ClusterOp cluster) {
  return SpaceBuilder(cluster).build();
}

ArrayRef<int64_t> IterationSpace::getDims(Value value) const {
  return valueDims.find(value)->second;
}

/// A use of what the cluster computes lies as the value does; only inputs have
/// dimensions of their own at each use.
ArrayRef<int64_t> IterationSpace::getDims(OpOperand &use) const {
  auto found = useDims.find(&use);
  return found == useDims.end() ? getDims(use.get()) : found->second;
}

GroupSet IterationSpace::getGroups(ArrayRef<int64_t> dims) const {
  GroupSet set = 0;
  for (int64_t dim : dims)
    if (dim != kNoDim)
      set |= GroupSet(1) << groupOfDim[dim];
  return set;
}
