//===- SplitChains.cpp - Chains of steps in pieces of rows ----------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A forward pass has nothing to compute beside what tensor parallelism
// exchanges but other rows of the same: of the matmul that makes it, and of all
// that follows as far as each row goes by itself. Steps that follow on each
// other and can be cut between rows are a chain (plait/Support/PieceOrder.h),
// from one attention to the next. Where a micro-batch has several sequences,
// which attend to themselves alone, pieces of whole ones go through attentions
// as well: one is computed while another is exchanged, layer after layer (Wang
// et al. 2024, "Domino: Eliminating Communication in LLM Training via Generic
// Tensor Slicing and Overlapping"). Pieces begin in the order that takes the
// least time.
//
// Each step is cut by itself, and steps of different pieces change places only
// where neither writes what the other uses: so all results stay the same bits.
// Nothing is placed anew.
//
//===----------------------------------------------------------------------===//

#include "SplitChains.h"

#include "../Remarks.h"
#include "AttentionSequences.h"
#include "CollectivePieces.h"
#include "GemmRows.h"
#include "KernelRows.h"
#include "plait/Support/PieceOrder.h"
#include "plait/Support/PieceOverlap.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace plait;
using namespace plait::plan;

namespace {

/// Ways to cut a chain into some number of pieces.
struct Ways {
  std::vector<ChainLink> links;
  std::vector<ChainWay> list; // the fastest first
};

/// Cuts the chains of one function.
class ChainSplitter {
public:
  ChainSplitter(FunctionOp function, const Aliases &aliases, int64_t asked,
                LinkAttr link, function_ref<double(CollectiveOp)> getWait)
      : function(function), aliases(aliases), asked(asked), link(link),
        rates(getRates(function->getParentOfType<ModuleOp>())),
        getWait(getWait) {}

  llvm::DenseSet<Operation *> run();

private:
  double getSeconds(StepOpInterface step, int64_t pieces);
  double getLimit(ArrayRef<StepOpInterface> chain);
  std::vector<Ways> listWays(ArrayRef<StepOpInterface> chain, size_t layers);
  SmallVector<Operation *> createPieces(ArrayRef<StepOpInterface> chain,
                                        int64_t pieces);
  bool split(ArrayRef<StepOpInterface> chain, const Ways &ways, double limit);
  bool split(ArrayRef<StepOpInterface> chain, size_t layers, double limit);
  void splitRun(ArrayRef<StepOpInterface> run);

  FunctionOp function;
  const Aliases &aliases;
  int64_t asked;
  LinkAttr link;
  RatesAttr rates;
  function_ref<double(CollectiveOp)> getWait;
  llvm::DenseSet<Operation *> made; // pieces of collectives
};

} // namespace

/// Returns how many parts a collective can be cut into at most.
static int64_t countUnits(CollectiveOp collective) {
  return collective.getKind() == CollectiveKind::AllReduce
             ? collective.getChunk()
             : collective.getOuter();
}

/// Whether a step can be a part of a chain, in some number of pieces.
static bool isLink(StepOpInterface step) {
  return llvm::TypeSwitch<Operation *, bool>(step.getOperation())
      .Case([](GemmOp gemm) { return hasRows(gemm); })
      .Case([](KernelOp kernel) { return hasRows(kernel); })
      .Case([](AttentionOp attention) { return hasSequences(attention); })
      .Case([](CollectiveOp collective) {
        return hasPieces(collective) && countUnits(collective) > 1;
      })
      .Default([](Operation *) { return false; });
}

/// Whether a step that isLink() has as many pieces; of a kernel that is seen
/// when they are created.
static bool isDivisible(StepOpInterface step, int64_t pieces, int64_t asked) {
  if (auto gemm = dyn_cast<GemmOp>(step.getOperation()))
    return int64_t(gemm.getM()) % pieces == 0;
  if (auto attention = dyn_cast<AttentionOp>(step.getOperation()))
    return int64_t(attention.getBatch()) % pieces == 0;
  auto collective = dyn_cast<CollectiveOp>(step.getOperation());
  if (!collective)
    return true;
  bool isSum = collective.getKind() == CollectiveKind::AllReduce;
  return pieces <= getMostPieces(asked, isSum) &&
         countUnits(collective) % pieces == 0;
}

/// Returns the operations of both matmuls, of which a causal mask leaves half.
static double getFlops(AttentionOp attention) {
  double share = attention.getScore().getBidirectional() ? 1 : 0.5;
  return 4 * share * double(attention.getBatch()) *
         double(attention.getHeads()) * double(attention.getQueries()) *
         double(attention.getKeys()) * double(attention.getHeadSize());
}

/// Returns how long a step takes, or one of its pieces; of attention as if it
/// were matmuls.
double ChainSplitter::getSeconds(StepOpInterface step, int64_t pieces) {
  if (auto gemm = dyn_cast<GemmOp>(step.getOperation()))
    return kBeginSeconds +
           rates.getGemmSeconds(gemm.getMatrixFlops() / double(pieces)) *
               getTilesFactor(int64_t(gemm.getM()) / pieces, gemm.getN(),
                              rates.getGemmUnits());
  if (auto attention = dyn_cast<AttentionOp>(step.getOperation()))
    return kBeginSeconds +
           rates.getGemmSeconds(getFlops(attention) / double(pieces));
  if (auto kernel = dyn_cast<KernelOp>(step.getOperation()))
    return kBeginSeconds +
           rates.getMemorySeconds(double(kernel.getTraffic())) / double(pieces);
  return link.getSeconds(step.getSent().bytes / double(pieces));
}

/// Returns what the chain takes if nothing here cuts it.
double ChainSplitter::getLimit(ArrayRef<StepOpInterface> chain) {
  double limit = 0;
  for (StepOpInterface step : chain) {
    auto collective = dyn_cast<CollectiveOp>(step.getOperation());
    limit += collective ? getWait(collective) : getSeconds(step, 1);
  }
  return limit;
}

/// Lists the ways to cut a chain of some layers, the fastest number of pieces
/// first.
std::vector<Ways> ChainSplitter::listWays(ArrayRef<StepOpInterface> chain,
                                          size_t layers) {
  std::vector<Ways> all;
  auto most = layers > 1 ? int(asked) : getMostPieces(int(asked), false);
  for (int pieces = 2; pieces <= most; ++pieces) {
    if (!llvm::all_of(chain, [&](StepOpInterface step) {
          return isDivisible(step, pieces, asked);
        }))
      continue;
    Ways ways;
    for (StepOpInterface step : chain)
      ways.links.push_back({bool(step.getStream()), getSeconds(step, pieces),
                            getSeconds(step, 1)});
    ways.list = plait::listWays(ways.links, pieces, int(layers));
    all.push_back(std::move(ways));
  }
  llvm::stable_sort(all, [](const Ways &a, const Ways &b) {
    return a.list.front().seconds < b.list.front().seconds;
  });
  return all;
}

/// Creates the pieces of the first step, followed by those of the second;
/// nothing where a step cannot be cut so.
SmallVector<Operation *>
ChainSplitter::createPieces(ArrayRef<StepOpInterface> chain, int64_t pieces) {
  OpBuilder builder(chain.front());
  auto create = [&](Operation *step, int64_t piece) -> Operation * {
    return llvm::TypeSwitch<Operation *, Operation *>(step)
        .Case([&](GemmOp gemm) {
          int64_t rows = int64_t(gemm.getM()) / pieces;
          return createRows(builder, gemm, piece * rows, rows);
        })
        .Case([&](KernelOp kernel) {
          return createRows(builder, kernel, piece, pieces);
        })
        .Case([&](AttentionOp attention) {
          return createSequences(builder, attention, piece, pieces);
        })
        .Case([&](CollectiveOp collective) {
          return createPiece(builder, collective, piece, pieces);
        });
  };
  SmallVector<Operation *> created;
  for (StepOpInterface step : chain)
    for (int64_t piece = 0; piece < pieces; ++piece) {
      if (Operation *own = create(step, piece)) {
        created.push_back(own);
        continue;
      }
      for (Operation *op : created)
        op->erase();
      return {};
    }
  return created;
}

/// Whether `order` gives what the whole steps do, of whose pieces these are the
/// uses: pieces of a step use nothing that another one writes, and no two
/// change places of which one does.
static bool isAllowed(ArrayRef<size_t> order, size_t pieces,
                      ArrayRef<ResolvedUses> uses) {
  SmallVector<size_t> places(order.size());
  for (auto [place, index] : llvm::enumerate(order))
    places[index] = place;
  for (size_t before = 0; before < order.size(); ++before) {
    Footprint own;
    own.add(uses[before]);
    for (size_t behind = before + 1; behind < order.size(); ++behind)
      if ((places[behind] < places[before] ||
           before / pieces == behind / pieces) &&
          own.conflicts(uses[behind]))
        return false;
  }
  return true;
}

/// Cuts the chain in the fastest of the ways that is allowed, if one is that
/// takes less than `limit` seconds.
bool ChainSplitter::split(ArrayRef<StepOpInterface> chain, const Ways &ways,
                          double limit) {
  int pieces = ways.list.front().pieces;
  SmallVector<Operation *> created = createPieces(chain, pieces);
  SmallVector<ResolvedUses> uses;
  for (Operation *op : created)
    uses.push_back(aliases.resolve(cast<StepOpInterface>(op)));
  size_t kept = 0; // of those that were created
  for (const ChainWay &way : ways.list) {
    if (created.empty() || way.seconds >= limit)
      break;
    SmallVector<size_t> order; // of those that were created
    forEachPiece(ways.links, way, [&](size_t link, size_t piece) {
      order.push_back(link * pieces + piece);
      return true;
    });
    if (!isAllowed(order, pieces, uses))
      continue;
    for (size_t index : order)
      created[index]->moveBefore(chain.front());
    for (StepOpInterface step : chain.take_front(way.links))
      step->erase();
    kept = order.size();
    break;
  }
  for (Operation *op : ArrayRef(created).take_front(kept))
    if (isa<CollectiveOp>(op))
      made.insert(op);
  for (Operation *op : ArrayRef(created).drop_front(kept))
    op->erase();
  return kept > 0;
}

/// Cuts a chain of some layers where that takes less than `limit` seconds.
bool ChainSplitter::split(ArrayRef<StepOpInterface> chain, size_t layers,
                          double limit) {
  const auto *first = llvm::find_if(
      chain, [](StepOpInterface step) { return bool(step.getStream()); });
  if (first == chain.end())
    return false;
  auto options = about(*first, "overlap", "plan-split-collectives");
  Location where = (*first)->getLoc();
  for (const Ways &ways : listWays(chain, layers))
    if (split(chain, ways, limit)) {
      remark::passed(where, options)
          << remark::add("in {0} chunks, in a chain of {1} steps",
                         ways.list.front().pieces, chain.size());
      return true;
    }
  return false;
}

/// Cuts steps that follow on each other: attentions as well, where pieces of
/// whole sequences take less time than those of what is between attentions.
void ChainSplitter::splitRun(ArrayRef<StepOpInterface> run) {
  SmallVector<ArrayRef<StepOpInterface>> chains;
  double limit = 0;
  for (size_t begin = 0; begin < run.size();) {
    size_t end = begin;
    while (end < run.size() && !isa<AttentionOp>(*run[end]))
      ++end;
    chains.push_back(run.slice(begin, end - begin));
    double least = getLimit(chains.back());
    if (std::vector<Ways> ways = listWays(chains.back(), 1); !ways.empty())
      least = std::min(least, ways.front().list.front().seconds);
    limit += least;
    if (end < run.size())
      limit += getSeconds(run[end], 1);
    begin = end + 1;
  }
  if (chains.size() > 1 && split(run, chains.size(), limit))
    return;
  for (ArrayRef<StepOpInterface> chain : chains)
    split(chain, 1, getLimit(chain));
}

/// Finds all chains before any is cut.
llvm::DenseSet<Operation *> ChainSplitter::run() {
  SmallVector<SmallVector<StepOpInterface>> runs(1);
  for (StepOpInterface step : getSteps(function))
    if (isLink(step))
      runs.back().push_back(step);
    else
      runs.emplace_back();
  for (ArrayRef<StepOpInterface> run : runs)
    splitRun(run);
  return std::move(made);
}

llvm::DenseSet<Operation *>
plait::splitChains(FunctionOp function, const Aliases &aliases, int64_t asked,
                   LinkAttr link, function_ref<double(CollectiveOp)> getWait) {
  return ChainSplitter(function, aliases, asked, link, getWait).run();
}
