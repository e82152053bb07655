//===- FormClusters.cpp - Group fusable ops into kernels ------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// 1. *Free* ops (constants, broadcasts, casts that do not round) are copied
//    into the kernels that use them and never stored.
// 2. A column reduction (over leading dimensions) takes copies of the
//    elementwise ops it reads, as far as nobody needs their results stored.
//    Those of a layer, and those that read the same, share a kernel.
// 3. Every other fusable op joins the kernel of an op it reads from, if both
//    work on the same rows and no path leads out of the kernel and back in.
// 4. What other kernels it reads from make for it alone joins as well.
// 5. What is returned, stored or accumulated comes from a kernel, a product or
//    a collective: where it does not, a kernel copies it.
//
//===----------------------------------------------------------------------===//

#include "plait/Transforms/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/SetVector.h"

#include <functional>
#include <map>

namespace plait {
#define GEN_PASS_DEF_FORMCLUSTERSPASS
#include "plait/Transforms/Passes.h.inc"
} // namespace plait

using namespace mlir;
using namespace plait;

namespace {

using Shape = SmallVector<int64_t, 5>;

std::optional<FusionRole> roleOf(Operation *op) {
  auto fusable = dyn_cast<FusableOpInterface>(op);
  return fusable ? std::optional(fusable.getFusionRole()) : std::nullopt;
}

Shape shapeOf(Value value) {
  return Shape(cast<RankedTensorType>(value.getType()).getShape());
}

/// Costs nothing to compute again inside of a kernel.
bool isFree(Operation *op) {
  std::optional<FusionRole> role = roleOf(op);
  if (auto cast = dyn_cast<nn::CastOp>(op))
    return cast.isExact();
  return role && (op->getNumOperands() == 0 || role == FusionRole::Broadcast);
}

/// What an op reads, seen through casts that do not round.
Operation *sourceOf(Value value) {
  Operation *source = value.getDefiningOp();
  while (auto cast = dyn_cast_or_null<nn::CastOp>(source)) {
    if (!cast.isExact())
      break;
    source = cast.getInput().getDefiningOp();
  }
  return source;
}

bool isReduction(Operation *op) {
  std::optional<FusionRole> role = roleOf(op);
  return role == FusionRole::ReduceSum || role == FusionRole::ReduceMax;
}

/// Reduces leading dimensions and keeps others.
bool isColumnReduction(Operation *op) {
  return isReduction(op) && !shapeOf(op->getResult(0)).empty() &&
         ArrayRef(shapeOf(op->getOperand(0)))
                 .take_back(shapeOf(op->getResult(0)).size()) ==
             ArrayRef(shapeOf(op->getResult(0))) &&
         cast<nn::ReduceOp>(op).getDims().front() == 0;
}

/// A sum over everything is sequential: only its like joins it.
bool sumsAll(Operation *op) {
  return isReduction(op) && shapeOf(op->getResult(0)).empty();
}

/// The first operand is read from memory at another place than the element's
/// own, so its producer cannot be in the same kernel.
bool readsElsewhere(Operation *op) {
  std::optional<FusionRole> role = roleOf(op);
  return role == FusionRole::Gather || role == FusionRole::RotateHalf ||
         role == FusionRole::Slice || role == FusionRole::ScatterAdd;
}

SmallVector<Operation *> inProgramOrder(ArrayRef<Operation *> ops) {
  SmallVector<Operation *> sorted(ops);
  llvm::sort(sorted,
             [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
  return sorted;
}

/// The iteration space of an op on its own.
Shape spaceOf(Operation *op) {
  return shapeOf(isReduction(op) ? op->getOperand(0) : op->getResult(0));
}

/// Ops that will be one kernel, or a single other op.
struct Unit {
  SmallVector<Operation *> ops;
  Shape space;
  bool closed = false; // takes no further ops
};

/// A column reduction that others may share a kernel with.
struct Column {
  int unit;
  Attribute layer; // or null
  llvm::SetVector<Value> traffic;

  /// What a kernel reads is held until all of it is there. That is not for long
  /// within a layer, and no longer than anyhow where both read the same.
  bool gains(const Column &other) const {
    auto reads = [&](Value input) { return other.traffic.contains(input); };
    return (layer && layer == other.layer) || llvm::any_of(traffic, reads);
  }
};

/// Forms the clusters of one function.
class Former {
public:
  explicit Former(func::FuncOp function)
      : body(function.getBody().front()), builder(function.getContext()) {}

  void run();

private:
  void copyStoredValues();
  void createUnits();
  void formColumns();
  void formRows();
  bool isStored(Value value);
  llvm::SetVector<Operation *> findSources(Operation *op);
  void addSources(Operation *op, llvm::SetVector<Operation *> &result);
  Value copyForColumn(Operation *column, Value value, IRMapping &copies);
  bool fits(const Unit &unit, Operation *op);
  bool hasOuterPath(int from, int to);
  bool join(Operation *op, int target);
  bool readsOwnRows(Operation *op, const Unit &unit);
  void absorb(int from, int into);
  void emitAll();
  bool isReadOutside(Value value, const llvm::DenseSet<Operation *> &inside);
  void emitCluster(const Unit &unit);
  SmallVector<int> orderUnits();

  Block &body;
  OpBuilder builder;
  std::vector<Unit> units;
  llvm::DenseMap<Operation *, int> unitOf;
  /// By op: the ops that must come before it, free ones looked through.
  llvm::DenseMap<Operation *, SmallVector<Operation *>> before;
};

} // namespace

//===----------------------------------------------------------------------===//
// Preparation
//===----------------------------------------------------------------------===//

/// Step 5.
void Former::copyStoredValues() {
  llvm::DenseSet<Value> returned;
  for (Operation &op : llvm::make_early_inc_range(body)) {
    bool stores = isa<nn::WriteOp, nn::AccumulateOp, nn::MetricOp>(op);
    if (!stores && !isa<func::ReturnOp>(op))
      continue;
    // Writing back what was read changes nothing.
    if (auto write = dyn_cast<nn::WriteOp>(op))
      if (auto read = write.getInput().getDefiningOp<nn::ReadOp>();
          read && read.getSymbol() == write.getSymbol() &&
          read.getSlot() == write.getSlot()) {
        write.erase();
        continue;
      }
    for (OpOperand &operand : op.getOpOperands()) {
      Operation *source = operand.get().getDefiningOp();
      bool computed = source && !isa<nn::ReadOp, nn::StepScalarOp>(source) &&
                      !isa<ConstantDataOpInterface>(source);
      bool alone = operand.get().hasOneUse();
      // Kernels and products can add to what is in a buffer, nothing else.
      bool overwrites = source && !roleOf(source) && !isa<nn::MatmulOp>(source);
      bool isAccumulate = isa<nn::AccumulateOp>(op);
      bool first = returned.insert(operand.get()).second;
      if (computed && first && !(isAccumulate && (!alone || overwrites)))
        continue;
      builder.setInsertionPoint(&op);
      operand.set(nn::StopGradientOp::create(
          builder, op.getLoc(), operand.get().getType(), operand.get()));
    }
  }
}

/// Whether somebody outside of kernels needs the value in memory.
bool Former::isStored(Value value) {
  return llvm::any_of(value.getUsers(), [](Operation *user) {
    return !isa<FusableOpInterface>(user) || readsElsewhere(user);
  });
}

void Former::addSources(Operation *op, llvm::SetVector<Operation *> &result) {
  for (Value operand : op->getOperands())
    if (Operation *source = operand.getDefiningOp()) {
      if (isFree(source) && roleOf(op))
        addSources(source, result);
      else
        result.insert(source);
    }
}

/// The ops that `op` reads, free ones looked through.
llvm::SetVector<Operation *> Former::findSources(Operation *op) {
  llvm::SetVector<Operation *> result;
  addSources(op, result);
  return result;
}

void Former::createUnits() {
  llvm::DenseMap<Attribute, SmallVector<Operation *>> accesses;
  for (Operation &op : body) {
    if (isFree(&op) && !isStored(op.getResult(0)))
      continue;
    llvm::SetVector<Operation *> earlier = findSources(&op);
    // Accesses to one parameter keep their order.
    if (auto symbol = op.getAttrOfType<FlatSymbolRefAttr>("symbol")) {
      for (Operation *other : accesses[symbol])
        if (!isa<nn::ReadOp>(op) || !isa<nn::ReadOp>(other))
          earlier.insert(other);
      accesses[symbol].push_back(&op);
    }
    before[&op] = earlier.takeVector();
    bool fusable = roleOf(&op).has_value();
    unitOf[&op] = units.size();
    units.push_back({{&op}, fusable ? spaceOf(&op) : Shape(), !fusable});
  }
}

//===----------------------------------------------------------------------===//
// Growing
//===----------------------------------------------------------------------===//

/// Whether a path leads from unit `from` through another unit to unit `to`.
bool Former::hasOuterPath(int from, int to) {
  llvm::DenseSet<int> seen;
  SmallVector<int> worklist{to};
  while (!worklist.empty()) {
    int unit = worklist.pop_back_val();
    for (Operation *op : units[unit].ops)
      for (Operation *source : before[op]) {
        int other = unitOf.lookup(source);
        if (other == from && unit != to)
          return true;
        if (other != from && other != to && seen.insert(other).second)
          worklist.push_back(other);
      }
  }
  return false;
}

/// Whether `op` may compute in the rows of `unit`.
bool Former::fits(const Unit &unit, Operation *op) {
  Shape space = spaceOf(op);
  ArrayRef<int64_t> own(space), other(unit.space);
  if (own == other)
    return sumsAll(op) == llvm::any_of(unit.ops, sumsAll);
  // Scalars only go with scalars: rows run in parallel, they do not.
  if (own.empty() || other.empty())
    return false;
  // One number per row beside the elements of the row, or the reverse; what
  // has a reduction of its own cannot become the number.
  if (own == other.drop_back())
    return !isReduction(op);
  return other == own.drop_back() &&
         llvm::none_of(unit.ops, [](Operation *member) {
           return isReduction(member) || readsElsewhere(member);
         });
}

/// Whether the row values that `op` reads from `unit` reach the elements of
/// their own row only.
bool Former::readsOwnRows(Operation *op, const Unit &unit) {
  for (Value operand : op->getOperands()) {
    Operation *spread = sourceOf(operand);
    if (!spread || roleOf(spread) != FusionRole::Broadcast)
      continue;
    Operation *source = sourceOf(spread->getOperand(0));
    auto dims = cast<nn::BroadcastOp>(spread).getDims();
    bool ownRow = true;
    for (auto [index, dim] : llvm::enumerate(dims))
      ownRow &= static_cast<int64_t>(index) == dim;
    if (source && llvm::is_contained(unit.ops, source) &&
        (!ownRow || dims.size() + 1 != shapeOf(operand).size()))
      return false;
  }
  return true;
}

/// Moves all of unit `from`, elementwise work that nobody but `into` reads,
/// into that unit if it is legal: the kernel then stores nothing of it.
void Former::absorb(int from, int into) {
  Unit &source = units[from], &target = units[into];
  if (from == into || source.closed || target.closed ||
      source.space != target.space)
    return;
  llvm::DenseSet<Operation *> both(source.ops.begin(), source.ops.end());
  both.insert(target.ops.begin(), target.ops.end());
  // A rank's rows of what is in memory already may be read by any kernel.
  auto readsMemory = [&](Operation *op) {
    return roleOf(op) == FusionRole::Slice &&
           !both.contains(sourceOf(op->getOperand(0)));
  };
  auto stays = [&](Operation *op) {
    return isReduction(op) || (readsElsewhere(op) && !readsMemory(op)) ||
           isReadOutside(op->getResult(0), both);
  };
  auto isAlone = [](Operation *op) {
    return readsElsewhere(op) || sumsAll(op);
  };
  if (llvm::any_of(source.ops, stays) || llvm::any_of(target.ops, isAlone) ||
      !llvm::all_of(both,
                    [&](Operation *op) {
                      return readsOwnRows(op, source) &&
                             readsOwnRows(op, target);
                    }) ||
      hasOuterPath(into, from))
    return;
  for (Operation *op : source.ops)
    unitOf[op] = into;
  llvm::append_range(target.ops, source.ops);
  source.ops.clear();
}

/// Moves `op` into unit `target` if that is legal.
bool Former::join(Operation *op, int target) {
  Unit &unit = units[target];
  int own = unitOf[op];
  if (own == target || unit.closed || !fits(unit, op))
    return false;
  // No op of the kernel reads elsewhere what the kernel makes.
  auto clashes = [&](Operation *reader, Operation *maker) {
    return readsElsewhere(reader) && reader->getNumOperands() > 0 &&
           sourceOf(reader->getOperand(0)) == maker;
  };
  for (Operation *member : unit.ops)
    if (clashes(op, member) || clashes(member, op))
      return false;
  if (!readsOwnRows(op, unit) || hasOuterPath(target, own))
    return false;
  unit.ops.push_back(op);
  if (spaceOf(op).size() > unit.space.size())
    unit.space = spaceOf(op);
  units[own].ops.clear();
  unitOf[op] = target;
  return true;
}

/// What a column reduction is to read in place of `value`: copies, made in the
/// block and in its unit, of the elementwise ops that only kernels read.
Value Former::copyForColumn(Operation *column, Value value, IRMapping &copies) {
  Unit &own = units[unitOf[column]];
  Operation *source = value.getDefiningOp();
  if (!source || roleOf(source) != FusionRole::Elementwise ||
      source->getNumOperands() == 0 || isStored(value) ||
      shapeOf(value) != own.space)
    return value;
  if (Value known = copies.lookupOrNull(value))
    return known;
  SmallVector<Value> operands =
      llvm::map_to_vector(source->getOperands(), [&](Value operand) {
        return copyForColumn(column, operand, copies);
      });
  builder.setInsertionPoint(column);
  Operation *clone = builder.clone(*source);
  clone->setOperands(operands);
  unitOf[clone] = unitOf[column];
  own.ops.push_back(clone);
  before[clone] = findSources(clone).takeVector();
  copies.map(value, clone->getResult(0));
  return clone->getResult(0);
}

/// What the kernel of the ops `inside` reads to compute `value`, if anything.
static void addInputs(Value value, const llvm::DenseSet<Operation *> &inside,
                      llvm::SetVector<Value> &inputs) {
  Operation *source = value.getDefiningOp();
  if (source && inside.contains(source))
    return;
  if (!source || !isFree(source)) {
    inputs.insert(value);
    return;
  }
  for (Value operand : source->getOperands())
    addInputs(operand, inside, inputs);
}

/// What `unit` reads of its whole space: nearly all that it reads.
static llvm::SetVector<Value> findTraffic(const Unit &unit) {
  llvm::DenseSet<Operation *> inside(unit.ops.begin(), unit.ops.end());
  llvm::SetVector<Value> inputs;
  for (Operation *op : unit.ops)
    for (Value operand : op->getOperands())
      addInputs(operand, inside, inputs);
  inputs.remove_if([&](Value input) { return shapeOf(input) != unit.space; });
  return inputs;
}

/// Step 2.
void Former::formColumns() {
  std::map<std::pair<Shape, Shape>, Column> open;
  SmallVector<Operation *> columns;
  for (Operation &op : body)
    if (roleOf(&op) && unitOf.contains(&op) &&
        (isColumnReduction(&op) || roleOf(&op) == FusionRole::ScatterAdd))
      columns.push_back(&op);
  for (Operation *op : columns) {
    Unit &own = units[unitOf[op]];
    own.closed = true;
    if (!isColumnReduction(op))
      continue;
    IRMapping copies;
    op->setOperand(0, copyForColumn(op, op->getOperand(0), copies));
    before[op] = findSources(op).takeVector();
    Column column{unitOf[op], op->getAttr(nn::kLayerAttr), findTraffic(own)};
    auto [it, isNew] =
        open.try_emplace({own.space, shapeOf(op->getResult(0))}, column);
    int from = column.unit, target = it->second.unit;
    if (isNew || !column.gains(it->second) || hasOuterPath(target, from) ||
        hasOuterPath(from, target)) {
      it->second = std::move(column);
      continue;
    }
    for (Operation *member : llvm::to_vector(own.ops)) {
      unitOf[member] = target;
      units[target].ops.push_back(member);
    }
    own.ops.clear();
  }
}

/// Steps 3 and 4.
void Former::formRows() {
  SmallVector<Operation *> ops;
  for (Operation &op : body)
    if (unitOf.contains(&op) && roleOf(&op) && !units[unitOf[&op]].closed)
      ops.push_back(&op);
  for (Operation *op : ops) {
    // An op nobody reads any more, after columns took copies.
    if (op->use_empty())
      continue;
    SmallVector<Operation *> candidates = inProgramOrder(before[op]);
    for (Operation *source : llvm::reverse(candidates))
      if (join(op, unitOf.lookup(source)))
        break;
    for (Operation *source : llvm::reverse(candidates))
      absorb(unitOf.lookup(source), unitOf.lookup(op));
  }
}

//===----------------------------------------------------------------------===//
// Emission
//===----------------------------------------------------------------------===//

/// A topological order of the units that stays close to the program's: one
/// comes where its last op is, or before the first that needs it. Sorts their
/// ops.
SmallVector<int> Former::orderUnits() {
  for (Unit &unit : units)
    unit.ops = inProgramOrder(unit.ops);
  SmallVector<int> order;
  llvm::DenseSet<int> done;
  std::function<void(int)> visit = [&](int unit) {
    if (!done.insert(unit).second)
      return;
    for (Operation *op : units[unit].ops)
      for (Operation *source : before[op])
        if (unitOf.lookup(source) != unit)
          visit(unitOf.lookup(source));
    order.push_back(unit);
  };
  for (Operation &op : body) {
    auto it = unitOf.find(&op);
    if (it != unitOf.end() && units[it->second].ops.back() == &op)
      visit(it->second);
  }
  return order;
}

/// Whether a value is needed outside of the kernel that holds the ops `inside`:
/// free ops are copied into kernels, and ops that nobody reads any more go.
bool Former::isReadOutside(Value value,
                           const llvm::DenseSet<Operation *> &inside) {
  return llvm::any_of(value.getUsers(), [&](Operation *user) {
    if (inside.contains(user))
      return false;
    if (roleOf(user) && user->use_empty())
      return false;
    return unitOf.contains(user) || isReadOutside(user->getResult(0), inside);
  });
}

/// Copies `members`, which are in program order, and the free ops they read to
/// where `builder` stands; `mapping` has all else that they read.
static void copyMembers(OpBuilder &builder, ArrayRef<Operation *> members,
                        IRMapping &mapping) {
  std::function<void(Value)> import = [&](Value value) {
    if (mapping.contains(value))
      return;
    // Only free ops are left: copy them.
    Operation *source = value.getDefiningOp();
    llvm::for_each(source->getOperands(), import);
    builder.clone(*source, mapping);
  };
  for (Operation *op : members) {
    llvm::for_each(op->getOperands(), import);
    builder.clone(*op, mapping);
  }
}

void Former::emitCluster(const Unit &unit) {
  ArrayRef<Operation *> members = unit.ops;
  llvm::DenseSet<Operation *> inside(members.begin(), members.end());
  llvm::SetVector<Value> inputs;
  SmallVector<Value> outputs;
  for (Operation *op : members) {
    for (Value operand : op->getOperands())
      addInputs(operand, inside, inputs);
    if (isReadOutside(op->getResult(0), inside))
      outputs.push_back(op->getResult(0));
  }
  auto cluster = plan::ClusterOp::create(
      builder, members.back()->getLoc(), ValueRange(outputs).getTypes(),
      inputs.getArrayRef(), DenseI32ArrayAttr());
  OpBuilder::InsertionGuard guard(builder);
  Block *block = builder.createBlock(&cluster.getBody());
  IRMapping mapping;
  for (Value input : inputs)
    mapping.map(input, block->addArgument(input.getType(), input.getLoc()));
  copyMembers(builder, members, mapping);
  plan::YieldOp::create(builder, cluster.getLoc(),
                        llvm::map_to_vector(outputs, [&](Value value) {
                          return mapping.lookup(value);
                        }));
  for (auto [value, result] : llvm::zip_equal(outputs, cluster.getResults()))
    value.replaceUsesWithIf(result, [&](OpOperand &use) {
      return !inside.contains(use.getOwner());
    });
}

void Former::emitAll() {
  Operation *terminator = body.getTerminator();
  SmallVector<Operation *> old;
  for (Operation &op : body)
    if (roleOf(&op))
      old.push_back(&op);
  for (int index : orderUnits()) {
    Unit &unit = units[index];
    if (unit.ops.empty() || unit.ops.front() == terminator)
      continue;
    bool fusable = roleOf(unit.ops.front()).has_value();
    if (!fusable) {
      unit.ops.front()->moveBefore(terminator);
      continue;
    }
    bool used =
        llvm::any_of(unit.ops, [](Operation *op) { return !op->use_empty(); });
    builder.setInsertionPoint(terminator);
    if (used)
      emitCluster(unit);
  }
  for (Operation *op : llvm::reverse(old))
    op->erase();
}

void Former::run() {
  copyStoredValues();
  createUnits();
  formColumns();
  formRows();
  emitAll();
}

namespace {
struct FormClustersPass : plait::impl::FormClustersPassBase<FormClustersPass> {
  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>())
      Former(function).run();
  }
};
} // namespace
