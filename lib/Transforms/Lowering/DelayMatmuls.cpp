//===- DelayMatmuls.cpp - Matmuls beside collectives ----------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The gradient of a parameter is needed at the end of the step, that of an
// input at once, and with tensor parallelism only after ranks have exchanged
// it. A matmul for the former is worth most beside that exchange. It then holds
// what it reads for longer; where that would raise the function's peak it
// stays.
//
// One walk from the first op to the last. Matmuls are collected, and each
// collective takes of them what it lasts longer than what is computed beside it
// anyway: the newest that no other has, which hold least, before what others
// have left of theirs. A matmul is moved behind the last one that takes of it;
// rows of it go back to those before (plan-overlap-collectives). Gathers that
// GPUs launch together count as one, and nothing comes between. Lifetimes are
// those before anything was moved, with ends that grow: the body is not
// analysed again.
//
//===----------------------------------------------------------------------===//

#include "LiveBytes.h"
#include "PreparePlacing.h"

#include "plait/Dialect/Dist/IR/Dist.h"
#include "plait/Dialect/NN/IR/NN.h"
#include "plait/Dialect/Plait/IR/Plait.h"
#include "plait/Dialect/Plan/IR/RowPitch.h"
#include "plait/Plan/Communicators.h"

#include "llvm/ADT/SetVector.h"

#include <vector>

using namespace mlir;
using namespace plait;

/// FLOPs of a matmul; of other ops 0.
static double getMatmulFlops(Operation *op) {
  auto costed = dyn_cast<CostedOpInterface>(op);
  return costed && costed.getWorkShape().kind == WorkShape::Contraction
             ? double(costed.getFlops())
             : 0;
}

bool plait::isWeightGradient(Operation *op) {
  // FLOPs last: they are counted, and few ops are only added up.
  return !op->use_empty() && llvm::all_of(op->getUsers(), [](Operation *user) {
    return nn::getSlotAccess(user) == nn::SlotAccess::Add;
  }) && getMatmulFlops(op) > 0;
}

namespace {

/// A matmul that may be moved.
struct Waiting {
  Operation *matmul;
  double left;                     // seconds that no collective has taken
  Operation *collective = nullptr; // the last that has taken of it
};

/// Collectives that begin at once, one behind the other.
using Launch = SmallVector<dist::CollectiveOpInterface, 2>;

/// Moves the matmuls of one function.
class Delayer {
public:
  Delayer(func::FuncOp function, const Surroundings &surroundings)
      : body(function.getBody().front()),
        workspace(findWorkspace(function, surroundings)),
        live(workspace, body.getOperations().size()),
        mesh(dist::MeshOp::find(function)),
        rates(getRates(function->getParentOfType<ModuleOp>())) {
    countSteps();
  }

  void run();

private:
  void countSteps();
  Lifetime *findLifetime(Value value);
  bool extend(Operation *matmul, int64_t last);
  double getSeconds(const Launch &launch);
  double getMissing(const Launch &launch);
  void fill(const Launch &launch);
  void take(Waiting &waiting, Operation *collective, double &missing);
  void move(const Waiting &waiting);

  Block &body;
  Workspace workspace;
  LiveBytes live;
  dist::MeshOp mesh;
  RatesAttr rates;
  llvm::DenseMap<Operation *, int64_t> steps; // as they were
  std::vector<double> computed; // seconds of other matmuls before each step
  std::vector<Waiting> matmuls; // in their order
  SmallVector<size_t> fresh;    // of them, what no collective has taken of
  SmallVector<size_t> begun;    // and what some have left
  llvm::DenseMap<Operation *, Operation *>
      ends; // of what is behind collectives
};

} // namespace

/// Finds the lifetime of the bytes that `value` takes in the workspace, or in a
/// slot that is released behind its last use; null: there is none.
Lifetime *Delayer::findLifetime(Value value) {
  auto found = workspace.lifetimes.find(workspace.findRoot(value));
  if (found != workspace.lifetimes.end())
    return &found->second;
  auto released = workspace.released.find(dyn_cast<BlockArgument>(value));
  return released == workspace.released.end() ? nullptr : &released->second;
}

/// Has what `matmul` reads live until step `last`, unless that is too much.
bool Delayer::extend(Operation *matmul, int64_t last) {
  llvm::SmallSetVector<Lifetime *, 2> read;
  for (Value operand : matmul->getOperands())
    if (Lifetime *lifetime = findLifetime(operand))
      read.insert(lifetime);
  SmallVector<Lifetime> more;
  for (Lifetime *lifetime : read)
    more.push_back({lifetime->bytes, lifetime->last + 1, last});
  if (!live.add(more))
    return false;
  for (Lifetime *lifetime : read)
    lifetime->last = std::max(lifetime->last, last);
  return true;
}

/// Asking the block for its order after each move would number all of its ops
/// anew.
void Delayer::countSteps() {
  double seconds = 0;
  for (Operation &op : body) {
    steps[&op] = int64_t(computed.size());
    computed.push_back(seconds);
    if (!isWeightGradient(&op))
      seconds += rates.getGemmSeconds(getMatmulFlops(&op));
  }
}

/// Returns the bytes of what the collective combines, or ends or begins with.
static double getBytes(dist::CollectiveOpInterface collective) {
  Type type = getElementTypeOrSelf(collective.getInput().getType());
  return double(collective.countElements()) * type.getIntOrFloatBitWidth() / 8;
}

/// Returns `collective` and the gathers behind it that GPUs launch with it
/// (plan::batchGathers). Those of parameters have a layer's work beside them.
static Launch findLaunch(dist::CollectiveOpInterface collective) {
  Launch launch = {collective};
  auto isGather = [](dist::CollectiveOpInterface op) {
    return op.getKind() == CollectiveKind::AllGather && !op.getSelection() &&
           !isParameterGather(op);
  };
  auto getGiven = [](dist::CollectiveOpInterface op) {
    return double(plan::getStoredBytes(op.getInput()));
  };
  for (double given = getGiven(collective); isGather(launch.back());) {
    auto next = dyn_cast_or_null<dist::CollectiveOpInterface>(
        launch.back()->getNextNode());
    if (!next || !isGather(next) || next.getAxis() != collective.getAxis() ||
        next.getMembers() != collective.getMembers() ||
        (given += getGiven(next)) > double(plan::kMostBatched))
      break;
    launch.push_back(next);
  }
  return launch;
}

/// Returns how long collectives last that begin together; 0 where no link is
/// known.
double Delayer::getSeconds(const Launch &launch) {
  dist::CollectiveOpInterface first = launch.front();
  LinkAttr link = rates.findLink(first.getAxis());
  if (!link || !mesh)
    return 0;
  int64_t members = mesh.getAxisSize(first.getAxis());
  if (auto given = first.getMembers(); given && !given->empty())
    members = int64_t(given->size());
  double bytes = 0;
  for (dist::CollectiveOpInterface collective : launch) {
    auto rows = collective.getSelection();
    bytes += getBytes(collective) *
             (rows ? getRowShare(members, rows->choices) : 1) *
             getSentShare(collective.getKind(), members);
  }
  return link.getSeconds(bytes);
}

/// Returns the seconds of collectives that other matmuls than those which may
/// be moved leave. What is gathered for these alone is not waited for.
double Delayer::getMissing(const Launch &launch) {
  int64_t end = -1;
  for (dist::CollectiveOpInterface collective : launch) {
    bool gathers = collective.getKind() == CollectiveKind::AllGather;
    for (Operation *user : collective->getUsers())
      if (int64_t step = steps.lookup(user);
          !(gathers && isWeightGradient(user)) && (end < 0 || step < end))
        end = step;
  }
  return end < 0 ? 0
                 : getSeconds(launch) -
                       (computed[end] - computed[steps.at(launch.front())]);
}

/// Has the collective, of which `missing` seconds are left, take of a matmul.
/// One that cannot be held for so long is taken of no more.
void Delayer::take(Waiting &waiting, Operation *collective, double &missing) {
  if (!extend(waiting.matmul, steps.at(collective))) {
    waiting.left = 0;
    return;
  }
  double taken = std::min(missing, waiting.left);
  waiting.left -= taken;
  missing -= taken;
  waiting.collective = collective;
}

void Delayer::fill(const Launch &launch) {
  double missing = getMissing(launch);
  Operation *collective = launch.back();
  SmallVector<size_t> rest; // of what it begins
  while (missing > 0 && !fresh.empty()) {
    size_t index = fresh.pop_back_val();
    take(matmuls[index], collective, missing);
    if (matmuls[index].left > 0)
      rest.push_back(index);
  }
  while (missing > 0 && !begun.empty()) {
    take(matmuls[begun.back()], collective, missing);
    if (matmuls[begun.back()].left <= 0)
      begun.pop_back();
  }
  begun.append(rest);
}

/// Moves the matmul behind its collective and what else is there, followed by
/// those that add it up.
void Delayer::move(const Waiting &waiting) {
  Operation *&last =
      ends.try_emplace(waiting.collective, waiting.collective).first->second;
  waiting.matmul->moveAfter(last);
  last = waiting.matmul;
  for (Operation *user : llvm::make_early_inc_range(waiting.matmul->getUsers()))
    if (steps.at(user) < steps.at(waiting.collective)) {
      user->moveAfter(last);
      last = user;
    }
}

void Delayer::run() {
  Operation *launched = nullptr; // the last that has begun
  for (Operation &op : body) {
    if (isWeightGradient(&op)) {
      fresh.push_back(matmuls.size());
      matmuls.push_back({&op, rates.getGemmSeconds(getMatmulFlops(&op))});
    }
    auto collective = dyn_cast<dist::CollectiveOpInterface>(op);
    if (!collective || (launched && steps.at(&op) <= steps.at(launched)))
      continue;
    Launch launch = findLaunch(collective);
    launched = launch.back();
    fill(launch);
  }
  for (const Waiting &waiting : matmuls)
    if (waiting.collective)
      move(waiting);
}

/// Most functions have nothing to move, and are spared the analysis.
void plait::delayMatmuls(func::FuncOp function,
                         const Surroundings &surroundings) {
  auto has = [&](auto isSuch) {
    return llvm::any_of(function.getBody().front(),
                        [&](Operation &op) { return isSuch(&op); });
  };
  if (has(isWeightGradient) && has(llvm::IsaPred<dist::CollectiveOpInterface>))
    Delayer(function, surroundings).run();
}
