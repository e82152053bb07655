//===- SplitCollectives.cpp - Matmuls beside what they exchange -----------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// In the forward pass of tensor parallelism a sum over tp waits for the matmul
// in front of it, and the matmul behind an all-gather for that. Cut into pieces
// of rows, they take turns: a piece is computed while another is exchanged.
//
// Nothing is moved over what it conflicts with, and pieces are only made where
// none touches the bytes of another, so that results are those of the whole.
// That rows of a piece lie side by side on both ends has been seen to where the
// sequence was sharded (AssignShardings.cpp), and that what the matmul reads is
// not written over meanwhile where values got their places (PlaceValues.cpp).
//
//===----------------------------------------------------------------------===//

#include "../Remarks.h"
#include "CollectivePieces.h"
#include "Footprint.h"
#include "GemmRows.h"
#include "SplitChains.h"
#include "plait/Dialect/NN/IR/Names.h"
#include "plait/Dialect/Plait/IR/Plait.h"
#include "plait/Support/PieceOverlap.h"
#include "plait/Transforms/Passes.h"

namespace plait {
#define GEN_PASS_DEF_SPLITCOLLECTIVESPASS
#include "plait/Transforms/Passes.h.inc"
} // namespace plait

using namespace mlir;
using namespace plait;
using namespace plait::plan;

namespace {

/// A matmul and what it waits for, or what waits for it.
struct Pair {
  GemmOp gemm;
  CollectiveOp collective;
  bool gathers;      // the collective comes first
  double beside = 0; // FLOPs that the collective has beside it as it is
};

/// Cuts the pairs of one function.
class Splitter {
public:
  Splitter(FunctionOp function, const Aliases &aliases, int64_t asked,
           std::optional<LinkAttr> link)
      : function(function), aliases(aliases), asked(asked), link(link),
        rates(getRates(function->getParentOfType<ModuleOp>())) {}

  /// All but `made`, which are pieces already.
  void run(const llvm::DenseSet<Operation *> &made);
  /// Seconds that something waits for the collective, cut by itself, with what
  /// its matmul loses. There has to be a link.
  double getWait(CollectiveOp collective);

private:
  std::optional<Pair> findPair(CollectiveOp collective);
  GemmOp findProducer(CollectiveOp collective);
  void measureBeside(Pair &pair);
  double getCost(const Pair &pair, int64_t pieces);
  int64_t choosePieces(const Pair &pair);
  bool isIndependent(ArrayRef<Operation *> gemms,
                     ArrayRef<Operation *> collectives, bool gathers);
  void split(const Pair &pair, int64_t pieces);
  static void tell(const Pair &pair, int64_t pieces);

  FunctionOp function;
  const Aliases &aliases;
  int64_t asked;
  std::optional<LinkAttr> link; // none: nothing runs beside anything
  RatesAttr rates;
};

} // namespace

/// Whether `gemm` makes, or reads row by row, all of what is exchanged.
static bool isCuttable(GemmOp gemm, CollectiveOp collective, bool gathers) {
  if (!gemm || !gemm.getBatchSizes().empty())
    return false;
  int64_t rows = gemm.getM();
  if (MemoryAttr input = gemm.getGeluInputAttr();
      input && !hasDenseRows(input, rows, gemm.getN(), gemm.getType()))
    return false;
  return gathers ? gemm.getA() == collective.getOutput() &&
                       gemm.getAStrides()[1] == 1 &&
                       hasDenseRows(gemm.getA(), rows, gemm.getAStrides()[0],
                                    gemm.getType())
                 : gemm.getC() == collective.getInput() &&
                       hasDenseRows(gemm.getC(), rows, gemm.getCStrides()[0],
                                    gemm.getCType());
}

/// The step that makes what `collective` sums up, if it is a matmul that may
/// come right in front of it.
GemmOp Splitter::findProducer(CollectiveOp collective) {
  Footprint sum, between;
  sum.add(aliases.resolve(collective));
  for (Operation *op = collective->getPrevNode(); op; op = op->getPrevNode()) {
    auto step = dyn_cast<StepOpInterface>(op);
    if (!step) // constants are written before the first step
      continue;
    ResolvedUses uses = aliases.resolve(step);
    if (sum.conflicts(uses))
      return between.conflicts(uses) ? GemmOp() : dyn_cast<GemmOp>(op);
    between.add(uses);
  }
  return {};
}

/// Measures what is computed between the collective and the first step that
/// waits for it; which of a gather is the matmul that may be cut.
void Splitter::measureBeside(Pair &pair) {
  Footprint moved;
  moved.add(aliases.resolve(pair.collective));
  for (Operation *op = pair.collective->getNextNode(); op;
       op = op->getNextNode()) {
    auto step = dyn_cast<StepOpInterface>(op);
    if (!step)
      continue;
    if (moved.conflicts(aliases.resolve(step))) {
      if (pair.gathers)
        pair.gemm = dyn_cast<GemmOp>(op);
      return;
    }
    pair.beside += step.getMatrixFlops();
  }
}

std::optional<Pair> Splitter::findPair(CollectiveOp collective) {
  CollectiveKind kind = collective.getKind();
  Pair pair{{}, collective, kind == CollectiveKind::AllGather};
  if (!hasPieces(collective))
    return std::nullopt;
  measureBeside(pair);
  if (!pair.gathers)
    pair.gemm = findProducer(collective);
  if (!isCuttable(pair.gemm, collective, pair.gathers))
    return std::nullopt;
  return pair;
}

double Splitter::getCost(const Pair &pair, int64_t pieces) {
  CollectiveOp collective = pair.collective;
  GemmOp gemm = pair.gemm;
  double exchange = link->getSeconds(collective.getSent().bytes / pieces);
  double whole = rates.getGemmSeconds(gemm.getMatrixFlops());
  double cut = whole * getPiecesFactor(gemm.getM(), gemm.getN(), pieces,
                                       rates.getGemmUnits());
  return getPiecesCost(getExposedSeconds(pieces, cut, exchange),
                       rates.getGemmSeconds(pair.beside), cut - whole);
}

/// The number of pieces that costs least; where nothing runs beside anything,
/// the most. Blocks of a gather or scatter stay whole, and
/// where there are more of them than pieces are asked for, up to twice as many.
int64_t Splitter::choosePieces(const Pair &pair) {
  CollectiveOp collective = pair.collective;
  GemmOp gemm = pair.gemm;
  bool isSum = collective.getKind() == CollectiveKind::AllReduce;
  int64_t units = isSum ? int64_t(gemm.getM()) : int64_t(collective.getOuter());
  int64_t best = 1;
  for (int64_t pieces = 2; pieces <= getMostPieces(asked, isSum); ++pieces)
    if (units % pieces == 0 && int64_t(gemm.getM()) % pieces == 0 &&
        (!link || getCost(pair, pieces) < getCost(pair, best)))
      best = pieces;
  return best;
}

double Splitter::getWait(CollectiveOp collective) {
  std::optional<Pair> pair = findPair(collective);
  return pair ? getCost(*pair, choosePieces(*pair))
              : link->getSeconds(collective.getSent().bytes);
}

/// Whether each piece may be exchanged while those behind it are computed, or
/// computed while those behind it are exchanged.
bool Splitter::isIndependent(ArrayRef<Operation *> gemms,
                             ArrayRef<Operation *> collectives, bool gathers) {
  ArrayRef<Operation *> early = gathers ? gemms : collectives,
                        late = gathers ? collectives : gemms;
  for (size_t piece = 0; piece < early.size(); ++piece) {
    Footprint own;
    own.add(aliases.resolve(cast<StepOpInterface>(early[piece])));
    for (Operation *other : late.drop_front(piece + 1))
      if (own.conflicts(aliases.resolve(cast<StepOpInterface>(other))))
        return false;
  }
  return true;
}

/// Matmuls that wait for pieces stay where they are, and so do the pieces of a
/// sum: each comes right behind its matmul.
void Splitter::split(const Pair &pair, int64_t pieces) {
  OpBuilder builder(pair.collective);
  CollectiveOp whole = pair.collective;
  GemmOp gemm = pair.gemm;
  SmallVector<Operation *> gemms, collectives;
  for (int64_t piece = 0; piece < pieces; ++piece) {
    builder.setInsertionPoint(pair.gathers ? gemm : whole.getOperation());
    int64_t rows = gemm.getM() / pieces;
    gemms.push_back(createRows(builder, gemm, piece * rows, rows));
    builder.setInsertionPoint(whole);
    collectives.push_back(createPiece(builder, whole, piece, pieces));
  }
  bool isKept = isIndependent(gemms, collectives, pair.gathers);
  tell(pair, isKept ? pieces : 1);
  for (ArrayRef<Operation *> list : {ArrayRef(gemms), ArrayRef(collectives)})
    for (Operation *op : isKept ? ArrayRef<Operation *>() : list)
      op->erase();
  if (!isKept)
    return;
  gemm->erase();
  whole->erase();
}

void Splitter::tell(const Pair &pair, int64_t pieces) {
  CollectiveOp collective = pair.collective;
  auto options = about(collective, "overlap", "plan-split-collectives");
  if (pieces > 1)
    remark::passed(collective.getLoc(), options) << remark::add(
        "in {0} chunks, each during a chunk of the matmul {1} it", pieces,
        pair.gathers ? "behind" : "in front of");
  else
    remark::missed(collective.getLoc(), options)
        << remark::add("pieces of it and of the matmul {0} it use the same "
                       "bytes",
                       pair.gathers ? "behind" : "in front of");
}

/// Splits collectives in their order, which their pieces keep: all ranks of a
/// group meet in the same one.
void Splitter::run(const llvm::DenseSet<Operation *> &made) {
  SmallVector<CollectiveOp> collectives;
  for (StepOpInterface step : getSteps(function))
    if (auto collective = dyn_cast<CollectiveOp>(step.getOperation());
        collective && !made.contains(collective))
      collectives.push_back(collective);
  for (CollectiveOp collective : collectives) {
    std::optional<Pair> pair = findPair(collective);
    if (!pair)
      continue;
    if (int64_t pieces = choosePieces(*pair); pieces > 1)
      split(*pair, pieces);
  }
}

static bool doesForward(FunctionOp function) {
  pipe::FunctionAttr does = function.getDoesAttr();
  return does && does.getAction() == pipe::ActionKind::Forward;
}

namespace {
struct SplitCollectivesPass
    : plait::impl::SplitCollectivesPassBase<SplitCollectivesPass> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    int64_t asked = getConfiguration(module).tensorOverlap;
    dist::MeshOp mesh = dist::MeshOp::find(module);
    if (asked == 1 || !mesh || mesh.getAxisSize(kTensorAxis) <= 1)
      return;
    TargetAttr target = getTarget(module);
    std::optional<LinkAttr> link;
    if (target && target.isGPU()) {
      FailureOr<LinkAttr> own = getLink(module, kTensorAxis);
      if (failed(own))
        return signalPassFailure();
      link = *own;
    }
    auto visit = [&](FunctionOp function, const Aliases &aliases) {
      Splitter splitter(function, aliases, asked, link);
      llvm::DenseSet<Operation *> made;
      // A backward pass has gradients of weights beside its exchanges.
      if (link && doesForward(function))
        made = splitChains(function, aliases, asked, *link,
                           [&](CollectiveOp collective) {
                             return splitter.getWait(collective);
                           });
      splitter.run(made);
      return success();
    };
    if (failed(forEachCalled(module, visit)))
      signalPassFailure();
  }
};
} // namespace
