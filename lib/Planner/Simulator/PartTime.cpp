//===- PartTime.cpp - Passes that wait for what ZeRO exchanges ------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A pass as streams run it, in the order of SpreadReplicas.cpp: one stream
// computes, and each axis has one, in which nothing overtakes. A gather begins
// once its like of the layer before the last has been used, whose memory it
// takes. Gradients are reduced at once, and each is added up behind the next
// one's reduction; those of a layer that follow on a vector's come behind all
// else of it. What ranks of tp exchange goes on while a pass waits for these,
// and so does what those of cp gather for attention. Layers that repeat are run
// a few times, and the line continued.
//
//===----------------------------------------------------------------------===//

#include "PartTime.h"

#include <algorithm>
#include <ranges>
#include <vector>

using namespace plait;
using namespace plait::planner;

namespace {

/// Blocks that are alike, in one pass.
struct Run {
  int count = 1;
  PartLists::List list;
  bool isBackward = false;
  bool gathers = true;
  std::span<const PartMark> marks, againMarks;
  double again = 0;     // seconds of what is computed again before it
  bool isEarly = false; // whether that waits for no message
  double work = 0;      // seconds of all else, but for...
  double context = 0;   // what ranks of cp wait for, in the stream of that axis
  double forWeights = 0; // what gradients of weights wait for, of ranks of tp
};

/// Describes what ranks of cp have gathered for an attention.
struct Gathering {
  double exposed = 0; // seconds that no work hides
  double idle = 0;    // seconds that had been waited for when it began
};

class Streams {
public:
  /// Returns the seconds that were waited for parameters and gradients, and for
  /// what the first block reads, which comes `isThere` seconds from the start.
  double run(std::span<const Run> runs, double isThere = 0);
  /// Returns the seconds of all that was run.
  double getEnd() const { return std::max(times.clock, times.added); }

private:
  void gather(const Run &run);
  void compute(const Run &run);
  void walk(const Run &run, std::span<const PartMark> marks, double seconds,
            bool isAgain);
  void wait(const Run &run, const Gathering &gathering);
  void reduce(const ExchangedPart &part);
  double send(const Replicated &made, double ready, bool inwards);
  struct Times {
    PerAxis<double> free = {}; // from when on a stream is
    double clock = 0, worked = 0;
    double added = 0; // when the last gradient is there
  };
  bool isSteady(const Times &before) const;
  void skip(const Times &before, int count);
  void work(double seconds) {
    times.clock += seconds;
    times.worked += seconds;
  }
  double getIdle() const { return times.clock - times.worked; }
  void wait(double until);
  void settle() { work(std::exchange(exchanging, 0)); }

  Times times;
  std::vector<double> here, next; // when parameters of a block are there
  std::vector<double> done;       // when those of the last one have been used
  std::vector<const PartMark *> late; // gradients that come when a block ends
  double input = 0;                   // when the first block has what it reads
  double exchanging = 0; // seconds that are left of an exchange over tp
  double opening = 0;    // seconds of the one that the next block begins with
  bool isOpen = false;   // whether that has begun
};

} // namespace

/// Axis after axis, for a gather the outermost first.
double Streams::send(const Replicated &made, double ready, bool inwards) {
  auto over = [&](const AxisFacts &facts) {
    if (made.count[facts.axis] == 0)
      return;
    double &until = times.free[facts.axis];
    ready = until = std::max(until, ready) + made.seconds[facts.axis];
  };
  if (inwards)
    std::ranges::for_each(kAxes, over);
  else
    std::ranges::for_each(std::views::reverse(kAxes), over);
  return ready;
}

/// Parameters come in the order in which they are read, first of all by what is
/// computed again.
void Streams::gather(const Run &run) {
  size_t count = run.list->parts.size();
  next.assign(count, 0);
  for (size_t i = 0; run.gathers && i < count; ++i) {
    size_t part = run.isBackward && run.again == 0 ? count - 1 - i : i;
    const Replicated &made = run.list->parts[part].gather;
    if (made.getSeconds() == 0)
      continue;
    double free = part < done.size() ? done[part] : times.clock;
    next[part] = send(made, free, /*inwards=*/true);
  }
}

/// Exchanges over tp have a stream of their own, and go on meanwhile.
void Streams::wait(double until) {
  double waits = std::max(0.0, until - times.clock);
  double hidden = std::min(waits, exchanging);
  times.clock += waits;
  times.worked += hidden;
  exchanging -= hidden;
}

/// Ranks of cp exchange in a stream of their own, and wait for it. What they
/// gather goes on while something else is waited for.
void Streams::wait(const Run &run, const Gathering &gathering) {
  settle();
  if (run.context == 0)
    return;
  double exposed = gathering.exposed;
  double idle = getIdle() - gathering.idle;
  wait(std::max(times.free[Axis::CP],
                times.clock + std::max(0.0, exposed - idle)));
  times.worked += exposed;
  work(run.context - exposed);
  times.free[Axis::CP] = times.clock;
}

/// Whether the gradient of `parameter` comes when a block ends: those of
/// vectors are sums of the kernel at the layer's other end, and all behind the
/// first of them keep their order.
static bool isLate(const Run &run, uint32_t parameter) {
  auto isSum = [](const ExchangedPart &part) {
    return part.isVector && part.isDivided;
  };
  return run.isBackward && std::any_of(run.list->parts.begin() + parameter,
                                       run.list->parts.end(), isSum);
}

/// Finds the gradient that is reduced last; null: none is.
static const PartMark *findLast(const Run &run,
                                std::span<const PartMark> marks) {
  const PartMark *last = nullptr;
  for (const PartMark &mark : marks)
    if (mark.what == PartMark::What::Made &&
        run.list->parts[mark.parameter].isDivided &&
        (!last || mark.parameter < last->parameter))
      last = &mark;
  return last;
}

/// Works for so many seconds. What is computed again reduces nothing.
void Streams::walk(const Run &run, std::span<const PartMark> marks,
                   double seconds, bool isAgain) {
  const std::vector<ExchangedPart> &parts = run.list->parts;
  const PartMark *last = findLast(run, marks);
  double all = 0; // of gradients
  for (const PartMark &mark : marks)
    all += mark.what == PartMark::What::Made ? mark.takes : 0;
  double left = std::max(0.0, seconds - all), worked = 0;
  double gathered = 0, idle = 0; // what ranks of cp gather
  auto make = [&](const PartMark &mark) {
    work(mark.takes);
    if (!parts[mark.parameter].isDivided)
      return;
    // The next block begins while the last one is waited for.
    if (&mark == last && worked >= left && opening > 0) {
      exchanging = opening;
      isOpen = true;
    }
    reduce(parts[mark.parameter]);
  };
  late.clear();
  for (const PartMark &mark : marks) {
    double until = std::clamp(mark.seconds, worked, std::max(worked, left));
    if (until > worked)
      settle();
    work(until - std::exchange(worked, until));
    if (mark.what == PartMark::What::Exchange) {
      if (!std::exchange(isOpen, false)) {
        settle();
        exchanging = mark.takes;
      }
      worked += mark.takes;
    } else if (mark.what == PartMark::What::Gather) {
      double &free = times.free[Axis::CP];
      free = std::max(free, times.clock) + mark.takes;
      gathered = mark.seconds + mark.takes;
      idle = getIdle();
    } else if (mark.what == PartMark::What::Attention) {
      if (!isAgain)
        wait(run, {std::max(0.0, gathered - mark.seconds), idle});
    } else if (mark.what == PartMark::What::Read) {
      wait(here[mark.parameter]);
    } else if (mark.what == PartMark::What::Used) {
      done[mark.parameter] = times.clock;
    } else if (isLate(run, mark.parameter)) {
      late.push_back(&mark);
    } else {
      make(mark);
    }
  }
  settle();
  work(left - worked);
  worked = left;
  std::ranges::sort(late, std::greater(), &PartMark::parameter);
  for (const PartMark *mark : late)
    make(*mark);
}

void Streams::compute(const Run &run) {
  done.assign(run.list->parts.size(), 0);
  auto receive = [&] {
    times.clock = std::max(times.clock, std::exchange(input, 0));
  };
  if (!run.isEarly)
    receive();
  if (run.again > 0)
    walk(run, run.againMarks, run.again, /*isAgain=*/true);
  receive();
  double begin = times.clock;
  walk(run, run.marks, run.work, /*isAgain=*/false);
  // Gathers for gradients of weights come while these wait for reductions.
  if (run.forWeights == 0)
    return;
  times.worked += run.forWeights;
  wait(begin + run.work + run.context + run.forWeights);
}

/// Adds up what was reduced before, behind that.
void Streams::reduce(const ExchangedPart &part) {
  wait(std::exchange(times.added,
                     send(part.reduce, times.clock, /*inwards=*/false)));
  work(part.adding);
}

/// Whether the last block has taken as long in each stream that was used.
bool Streams::isSteady(const Times &before) const {
  double taken = times.clock - before.clock;
  auto isSo = [&](double passed) {
    return passed == 0 || std::abs(passed - taken) < 1e-6 * taken;
  };
  return isSo(times.added - before.added) &&
         std::ranges::all_of(kAxes, [&](const AxisFacts &facts) {
           return isSo(times.free[facts.axis] - before.free[facts.axis]);
         });
}

/// Skips `count` blocks, as if each took what the last one has since `before`.
void Streams::skip(const Times &before, int count) {
  double taken = count * (times.clock - before.clock);
  for (double Times::*time : {&Times::clock, &Times::worked, &Times::added})
    times.*time += count * (times.*time - before.*time);
  for (const AxisFacts &facts : kAxes)
    times.free[facts.axis] +=
        count * (times.free[facts.axis] - before.free[facts.axis]);
  for (std::vector<double> *some : {&next, &done})
    for (double &time : *some)
      time += taken;
}

/// Returns the seconds of the exchange over tp with which a block begins, but
/// where it computes something again before; `run` may be null.
static double getOpening(const Run *run) {
  bool begins = run && run->again == 0 && !run->marks.empty() &&
                run->marks.front().what == PartMark::What::Exchange &&
                run->marks.front().seconds == 0;
  return begins ? run->marks.front().takes : 0;
}

double Streams::run(std::span<const Run> runs, double isThere) {
  input = isThere;
  if (!runs.empty())
    gather(runs.front());
  for (const Run &run : runs)
    for (int i = 0; i < run.count; ++i) {
      Times before = times;
      std::swap(here, next);
      if (i + 1 < run.count)
        gather(run);
      else if (&run != &runs.back())
        gather(*(&run + 1));
      opening = getOpening(i + 1 < run.count      ? &run
                           : &run != &runs.back() ? &run + 1
                                                  : nullptr);
      compute(run);
      // The last one is followed by another.
      if (i + 2 < run.count && isSteady(before)) {
        skip(before, run.count - i - 2);
        i = run.count - 2;
      }
    }
  return getEnd() - times.worked;
}

/// Runs a pass; sets `early` to the seconds in which it goes on, for as long as
/// it takes by itself, before its message is there.
static double getWait(std::span<const Run> runs, double &early) {
  Streams streams;
  double waits = streams.run(runs), late = streams.getEnd();
  early = waits + late - Streams().run(runs, late);
  return waits;
}

namespace {

/// The passes of one virtual stage.
class StagePasses {
public:
  StagePasses(const StageBlocks &stage, std::span<const BlockTime *const> times,
              bool splits, PartLists &lists, const Context &context)
      : stage(stage), times(times), splits(splits), lists(lists),
        context(context) {}

  PassWaits run();

private:
  Run makeRun(size_t entry, bool isBackward);

  const StageBlocks &stage;
  std::span<const BlockTime *const> times; // by entry
  bool splits;
  PartLists &lists;
  const Context &context;
  bool isTableThere = false; // a tied one, in this pass
};

} // namespace

Run StagePasses::makeRun(size_t entry, bool isBackward) {
  const StageBlocks::Entry &of = stage.entries[entry];
  Run run;
  run.count = of.count;
  run.isBackward = isBackward;
  run.list = lists.get(
      {of.block, of.recompute, isBackward, entry == 0, isTableThere}, context);
  isTableThere = run.list->readsTable;
  return run;
}

PassWaits StagePasses::run() {
  PassWaits waits;
  std::vector<Run> runs, apart;
  for (size_t i = 0; i < stage.entries.size(); ++i) {
    Run &run = runs.emplace_back(makeRun(i, /*isBackward=*/false));
    run.marks = times[i]->marks.forward;
    run.context = times[i]->contextForward;
    run.work = times[i]->forward - run.context;
  }
  // Without gathers a pass has nothing to begin with; and copies to other
  // places have taken the time that it waits.
  const Configuration &configuration = context.configuration;
  bool isEarly = configuration.mesh[Axis::PP] > 1 && configuration.zero >= 3 &&
                 !offloadsActivations(configuration.offload);
  waits.forward =
      isEarly ? getWait(runs, waits.earlyForward) : Streams().run(runs);
  runs.clear();
  isTableThere = false;
  for (size_t i = stage.entries.size(); i-- > 0;) {
    const BlockTime &time = *times[i];
    Run &run = runs.emplace_back(makeRun(i, /*isBackward=*/true));
    if (splits) {
      Run &later = apart.emplace_back(run);
      later.gathers = false;
      later.marks = time.marks.weight;
      later.forWeights = time.forWeights;
      later.work = time.backwardWeight - later.forWeights;
    }
    run.marks = time.marks.input;
    run.againMarks = time.marks.forward;
    run.again = time.again;
    run.isEarly = splits;
    run.context = time.contextBackward;
    run.forWeights = splits ? 0 : time.forWeights;
    run.work = time.backwardInput - run.again - run.context - run.forWeights +
               (splits ? 0 : time.backwardWeight);
  }
  waits.backward =
      isEarly ? getWait(runs, waits.earlyBackward) : Streams().run(runs);
  waits.weights = Streams().run(apart);
  return waits;
}

PassWaits planner::getPassWaits(const StageBlocks &stage,
                                std::span<const BlockTime *const> times,
                                bool splits, const Context &context) {
  PartLists own;
  PartLists &lists = context.partLists ? *context.partLists : own;
  return StagePasses(stage, times, splits, lists, context).run();
}
