//===- PadRows.cpp - Rows at addresses that loads like -----------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Gives values whose rows have an awkward length a row pitch, where all that
// touch them can read and write rows that lie apart. plan::choosePitch says
// what is awkward, PlaceValues.cpp allocates the larger tensors.
//
// A pitch is worth having only where nothing else sees the rows: a collective
// or a transfer would move the gaps along, a parameter is saved without them.
// So a value has one only if its producer and all of its users are matmuls or
// kernels. Residuals are seen by two functions, which have to agree; the pass
// therefore looks at the whole module.
//
//===----------------------------------------------------------------------===//

#include "PreparePlacing.h"

#include "plait/Analysis/KernelShape.h"
#include "plait/Dialect/NN/IR/NN.h"
#include "plait/Dialect/Plan/IR/RowPitch.h"
#include "plait/Transforms/StageFunctions.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <map>

using namespace mlir;
using namespace plait;
using pipe::PortAttr;
using pipe::PortKind;

namespace {

/// Chooses, for all functions of the module, whose rows lie apart.
class Padder {
public:
  explicit Padder(ModuleOp module) : module(module) {}
  void run();

private:
  /// A residual of a stage: all functions of the stage see it as it lies.
  using Port = std::pair<int64_t, int64_t>; // stage, index
  /// A value and, if it is one, the residuals that it is.
  struct Candidate {
    Value value;
    SmallVector<Port> ports;
    bool fits;
  };

  void collect(func::FuncOp function);
  void add(Value value, SmallVector<Port> ports);
  void agree();
  void setPitches(bool erase);

  ModuleOp module;
  std::vector<Candidate> candidates;
};

} // namespace

/// Returns the pitch of a row of the last dimension, in elements.
static int64_t getBestPitch(Value value) {
  auto type = cast<RankedTensorType>(value.getType());
  return plan::choosePitch(type.getShape().back(),
                           type.getElementTypeBitWidth() / 8);
}

/// Whether `value` is a matrix, or several, whose rows would lie better apart.
static bool isOdd(Value value) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  return type && type.getRank() > 1 && isa<FloatType>(type.getElementType()) &&
         getBestPitch(value) != type.getShape().back();
}

/// Whether the cluster reads the operand by its loops alone.
static bool readsByLoops(plan::ClusterOp cluster, unsigned operand) {
  BlockArgument argument = cluster.getBody().front().getArgument(operand);
  return argument != findScatterAddend(cluster) &&
         llvm::none_of(argument.getUses(), [](OpOperand &use) {
           return readsMemory(use) || getFacts(use.getOwner()).scatters;
         });
}

/// Whether `op` is a matmul of which the library is told how far rows lie
/// apart.
static bool isPitchedMatmul(Operation *op) {
  auto contraction = dyn_cast<ContractionOpInterface>(op);
  return contraction && contraction.takesRowPitch();
}

/// Whether `use` takes rows at any pitch. What is returned is judged by its
/// ports.
static bool takesPitch(OpOperand &use) {
  if (auto cluster = dyn_cast<plan::ClusterOp>(use.getOwner()))
    return readsByLoops(cluster, use.getOperandNumber());
  return isPitchedMatmul(use.getOwner()) ||
         isa<func::ReturnOp, plan::MoveOp>(use.getOwner());
}

/// Whether `op` writes rows at any pitch: a kernel that scatters finds those of
/// its table by their length.
static bool givesPitch(Operation *op) {
  if (auto cluster = dyn_cast<plan::ClusterOp>(op))
    return llvm::none_of(cluster.getBody().front(), [](Operation &inner) {
      return getFacts(&inner).scatters;
    });
  return isPitchedMatmul(op) || isa<plan::MoveOp>(op);
}

/// A value fits if its source writes and all uses read rows at any pitch. Where
/// a block argument comes from is judged by its ports.
void Padder::add(Value value, SmallVector<Port> ports) {
  Operation *source = value.getDefiningOp();
  bool fits = !source || givesPitch(source);
  candidates.push_back({value, std::move(ports),
                        fits && llvm::all_of(value.getUses(), takesPitch)});
}

/// All odd rows that are no parameter's, message's or the like.
void Padder::collect(func::FuncOp function) {
  pipe::FunctionAttr own = getStageFunction(function);
  if (!own)
    return;
  // What is returned or taken by any port but a residual's is bound to a buffer
  // that others know without gaps.
  llvm::DenseMap<Value, SmallVector<Port>> ports;
  llvm::DenseSet<Value> fixed;
  auto note = [&](Value value, PortAttr port) {
    if (port && port.getKind() == PortKind::Residual)
      ports[value].push_back({own.getIndex(), port.getIndex()});
    else
      fixed.insert(value);
  };
  Block &body = function.getBody().front();
  for (auto [argument, port] :
       llvm::zip_equal(body.getArguments(), getPorts(function)))
    note(argument, port);
  for (auto [result, port] : llvm::zip_equal(
           body.getTerminator()->getOperands(), getResultPorts(function)))
    note(result, port);
  auto visit = [&](Value value) {
    if (!isOdd(value))
      return;
    add(value, ports.lookup(value));
    candidates.back().fits &= !fixed.contains(value);
  };
  llvm::for_each(body.getArguments(), visit);
  for (Operation &op : body)
    llvm::for_each(op.getResults(), visit);
}

/// The other ends of the moves of `value`.
static SmallVector<Value> getMoved(Value value) {
  SmallVector<Value> ends;
  if (auto move = value.getDefiningOp<plan::MoveOp>())
    ends.push_back(move.getInput());
  for (Operation *user : value.getUsers())
    if (auto move = dyn_cast<plan::MoveOp>(user))
      ends.push_back(move.getResult());
  return ends;
}

/// A residual has its pitch in all functions or in none, and what is moved at
/// both ends.
void Padder::agree() {
  // One value may be several residuals, so that refusing one port can refuse
  // another: repeat up to the fixed point. Values only ever stop fitting.
  for (bool changed = true; changed;) {
    changed = false;
    std::map<Port, bool> allowed;
    llvm::DenseMap<Value, bool> moved;
    for (const Candidate &candidate : candidates)
      moved[candidate.value] = candidate.fits;
    for (const Candidate &candidate : candidates)
      for (Port port : candidate.ports)
        allowed.try_emplace(port, true).first->second &= candidate.fits;
    for (Candidate &candidate : candidates)
      if (candidate.fits &&
          !(llvm::all_of(candidate.ports,
                         [&](Port port) { return allowed[port]; }) &&
            llvm::all_of(getMoved(candidate.value),
                         [&](Value end) { return moved.lookup(end); }))) {
        candidate.fits = false;
        changed = true;
      }
  }
}

/// Sets the pitch of all that fits or, to take that back, erases it: 0 for a
/// result of an op, no attribute for an argument.
void Padder::setPitches(bool erase) {
  Builder builder(module.getContext());
  for (const Candidate &candidate : candidates) {
    if (!candidate.fits)
      continue;
    int64_t pitch = erase ? 0 : getBestPitch(candidate.value);
    if (auto argument = dyn_cast<BlockArgument>(candidate.value)) {
      auto function = cast<func::FuncOp>(argument.getOwner()->getParentOp());
      if (erase)
        function.removeArgAttr(argument.getArgNumber(), plan::kPitchAttr);
      else
        function.setArgAttr(argument.getArgNumber(), plan::kPitchAttr,
                            builder.getI64IntegerAttr(pitch));
      continue;
    }
    Operation *op = candidate.value.getDefiningOp();
    // An op has one array for all of its results; only this one's entry
    // changes.
    SmallVector<int64_t> pitches(op->getNumResults(), 0);
    if (auto old = op->getAttrOfType<DenseI64ArrayAttr>(plan::kPitchAttr))
      pitches.assign(old.asArrayRef().begin(), old.asArrayRef().end());
    pitches[cast<OpResult>(candidate.value).getResultNumber()] = pitch;
    op->setAttr(plan::kPitchAttr, builder.getDenseI64ArrayAttr(pitches));
  }
}

/// Rows that lie apart are a loop of their own, which leaves some clusters
/// without a kernel: those keep all of theirs as they are.
void Padder::run() {
  // What kernels allow is seen below; this is all that would be better off.
  for (auto function : module.getOps<func::FuncOp>())
    collect(function);
  agree();
  setPitches(/*erase=*/false);
  // Whether a cluster has a kernel is known only with the pitches in place.
  llvm::DenseSet<Operation *> failed;
  for (const Candidate &candidate : candidates) {
    SmallVector<Operation *> touching(candidate.value.getUsers());
    if (Operation *source = candidate.value.getDefiningOp())
      touching.push_back(source);
    for (Operation *op : touching)
      if (auto cluster = dyn_cast<plan::ClusterOp>(op);
          cluster && candidate.fits && !hasKernel(cluster))
        failed.insert(cluster);
  }
  if (failed.empty())
    return;
  // All are erased while `fits` still says which were set.
  setPitches(/*erase=*/true);
  for (Candidate &candidate : candidates)
    candidate.fits &=
        !failed.contains(candidate.value.getDefiningOp()) &&
        llvm::none_of(candidate.value.getUsers(),
                      [&](Operation *user) { return failed.contains(user); });
  agree();
  setPitches(/*erase=*/false);
}

void plait::padRows(ModuleOp module) { Padder(module).run(); }
