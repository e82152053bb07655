//===- KernelTrial.cpp - A kernel on drawn numbers ------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One trial is one kernel on one draw of its operands. It goes through three
// calls: prepare() draws and chooses what to look at, execute() runs the kernel
// in a process that may die of it, and compare() holds the elements that were
// chosen against Elements. Kernels.cpp batches trials and owns the process.
// A trial's cost must not depend on the size of the tensors. So a large kernel
// is run for some of its parallel indices only, and of its results a few dozen
// elements are looked at. All choices follow from the kernel and the draw, so
// two compilations of one model find the same.
//
//===----------------------------------------------------------------------===//

#include "KernelTrial.h"

#include "Numbers.h"
#include "plait/Dialect/Plan/IR/RowPitch.h"
#include "plait/Support/SortedTokens.h"

#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/TypeSwitch.h"
#include <cmath>
#include <random>
#include <set>

using namespace mlir;
using namespace plait;
using namespace plait::proof;

/// Up to as many elements of a tensor all parallel indices are run.
static constexpr int64_t kAll = 1 << 16;
/// Of kernels with tensors up to this, scalars above all, several draws are
/// tried.
static constexpr int64_t kFew = 64;
/// The elements that the indices which are run may have together, and the first
/// and the last of them.
static constexpr int64_t kRun = 1 << 17, kRunOfEnds = 1 << 24;
/// Integers that are drawn, all of them, and the rows of a table that they
/// name: a kernel that adds to rows touches a page of memory for each.
static constexpr int64_t kIntegers = 1 << 22, kNamed = 256;
/// Steps of the evaluator (Elements.h): those of a result's elements, of the
/// first two of them, and of the first. A million take about 0.05 s.
static constexpr int64_t kSteps = 1 << 12, kStepsOfTwo = 1 << 14,
                         kStepsOfOne = 1 << 19;

static ArrayRef<int64_t> getShape(Value value) {
  return cast<RankedTensorType>(value.getType()).getShape();
}

/// Of the rank's tensor, without what lies between rows.
static int64_t countElements(Value value) {
  return cast<RankedTensorType>(value.getType()).getNumElements();
}

/// The value in the body, whose op is the one to blame and whose shape is the
/// result's.
Value KernelTrial::getYielded(unsigned result) const {
  auto cluster = kernel.cluster;
  return cluster.getBody().front().getTerminator()->getOperand(result);
}

/// What becomes of what lies in the result's memory: a cluster without modes
/// overwrites.
plan::Accumulate KernelTrial::getMode(unsigned result) const {
  auto cluster = kernel.cluster;
  auto modes = cluster.getAccumulate();
  return modes ? static_cast<plan::Accumulate>((*modes)[result])
               : plan::Accumulate::Overwrite;
}

/// By what is claimed and by what is called: either may be wrong.
bool KernelTrial::dependsOnMicrobatch() const {
  auto cluster = kernel.cluster;
  auto results = llvm::seq<unsigned>(0, cluster->getNumResults());
  bool isAsked = llvm::any_of(results, [&](unsigned result) {
    return getMode(result) == plan::Accumulate::AddUnlessFirst;
  });
  bool isTaken = llvm::any_of(kernel.info.scalars, [](const auto &scalar) {
    return scalar.firstMicrobatch;
  });
  return isAsked || isTaken;
}

/// Judged by the largest tensor, in the body too: of a large one each element
/// is a draw of its own.
bool KernelTrial::isSmall() const { return countElements() <= kFew; }

/// The last rank along each axis: its blocks do not begin at 0, and padding is
/// there.
int64_t KernelTrial::getIndex(StringAttr axis) const {
  auto mesh = dist::MeshOp::find(kernel.cluster);
  return mesh ? mesh.getAxisSize(axis) - 1 : 0;
}

//===----------------------------------------------------------------------===//
// Operands
//===----------------------------------------------------------------------===//

/// Where nothing follows from how large an integer is.
static constexpr std::pair<int64_t, int64_t> kAnyInteger{0, 1 << 30};

/// One of the integers in `range`. Of a table with more than kNamed rows it is
/// one of so many: a few at both ends and the others evenly in between.
static int64_t pickInteger(std::pair<int64_t, int64_t> range, uint32_t drawn) {
  constexpr int64_t kAtEnd = 8;
  int64_t size = range.second - range.first;
  if (size <= kNamed || range == kAnyInteger)
    return range.first + drawn % size;
  int64_t index = drawn % kNamed;
  if (index < kAtEnd)
    return range.first + index;
  if (index >= kNamed - kAtEnd)
    return range.second - (kNamed - index);
  return range.first + index * (size / kNamed);
}

/// The range of integers that `op` tells apart: rows or elements of this rank,
/// and those next to them.
static std::pair<int64_t, int64_t>
findRange(Operation *op, function_ref<int64_t(StringAttr)> getIndex) {
  // Each op that takes integers as indices; of all others the extent is 0, and
  // any integer that is not negative will do.
  using Counted = std::pair<std::optional<nn::BeginAttr>, int64_t>;
  auto [begin, extent] =
      llvm::TypeSwitch<Operation *, Counted>(op)
          .Case([](nn::EmbeddingOp own) {
            return Counted(own.getBegin(), getShape(own.getTable()).front());
          })
          .Case([](nn::EmbeddingGradOp own) {
            return Counted(own.getBegin(), getShape(own.getResult()).front());
          })
          .Case([](nn::PickOp own) {
            return Counted(own.getBegin(), getShape(own.getInput()).back());
          })
          .Case([](nn::CausalMaskOp own) { // of the keys
            return Counted(std::nullopt, getShape(own.getResult()).back());
          })
          .Default(Counted(std::nullopt, 0));
  if (extent == 0)
    return kAnyInteger;
  int64_t first = 0;
  if (begin)
    for (const RankTerm &term : begin->getTerms())
      first += term.scale * getIndex(term.axis);
  // Where the table is whole, others are no words of it.
  return begin ? std::pair(std::max<int64_t>(first - 2, 0), first + extent + 2)
               : std::pair(first, first + extent);
}

/// Who takes the integers, also where they are repeated or moved first.
///
/// Grows while it is read: a broadcast of a broadcast is found too.
static SmallVector<Operation *> findUsers(Value value) {
  SmallVector<Operation *> users(value.getUsers());
  for (size_t i = 0; i < users.size(); ++i) {
    RoleFacts facts = getFacts(users[i]);
    if (facts.repeats || facts.maps)
      users.append(users[i]->user_begin(), users[i]->user_end());
  }
  return users;
}

static bool isComparedWithZero(Value argument) {
  return llvm::any_of(findUsers(argument), llvm::IsaPred<nn::IsZeroOp>);
}

bool KernelTrial::comparesWithZero() const {
  auto cluster = kernel.cluster;
  return llvm::any_of(cluster.getBody().front().getArguments(),
                      isComparedWithZero);
}

/// Words, classes, keys or starts, by who takes them, and now and then what is
/// ignored.
///
/// The narrowest range of all users, since an id that is legal for one may be
/// none for another. Integers have memory of their own: what is drawn as pages
/// of floats means nothing as ids. False: too many of them, or no memory.
bool KernelTrial::drawIntegers(unsigned argument, TensorMemory &own) {
  auto cluster = kernel.cluster;
  Value value = cluster.getBody().front().getArgument(argument);
  int64_t count = ::countElements(value);
  if (count > kIntegers || !own.allocate())
    return false;
  std::pair<int64_t, int64_t> range = kAnyInteger;
  std::optional<int32_t> ignored;
  for (Operation *user : findUsers(value)) {
    if (auto valid = dyn_cast<nn::ValidOp>(user))
      ignored = static_cast<int32_t>(valid.getIgnore());
    auto found =
        findRange(user, [&](StringAttr axis) { return getIndex(axis); });
    if (found.second - found.first < range.second - range.first)
      range = found;
  }
  std::mt19937 generator(argument);
  for (int64_t element = 0; element < count; ++element) {
    uint32_t drawn = generator();
    // One in eight, so that most rows of a loss count and some do not.
    bool isIgnored = ignored && drawn % 8 == 0;
    own.store(element, isIgnored ? *ignored : pickInteger(range, drawn / 8));
  }
  if (int64_t entries = plan::getSortedEntries(value)) {
    SortedTokens sorted{count, entries};
    std::vector<int32_t> words(sorted.getWords());
    for (int64_t element = 0; element < count; ++element)
      words[element] = int32_t(own.load(element));
    sorted.sort(words);
    for (int64_t word = count; word < sorted.getWords(); ++word)
      own.store(word, words[word]);
  }
  return true;
}

/// Operands first, then results, as the kernel's calling convention has it. The
/// number of an operand includes its position, so that two operands of one
/// kernel differ and an exchange of them shows.
bool KernelTrial::takeMemory(DrawnPages &pages, ResultPages &results) {
  auto cluster = kernel.cluster;
  for (BlockArgument argument : cluster.getBody().front().getArguments()) {
    TensorMemory &own = memory.emplace_back(argument);
    unsigned index = argument.getArgNumber();
    bool isZero = draw.hasZeros && isComparedWithZero(argument);
    bool isTaken =
        getElementTypeOrSelf(argument).isInteger() ? drawIntegers(index, own)
        : isZero ? own.allocate() // fresh pages are zeros
                 : own.draw(pages, draw.isPositive, index + 7 * draw.number);
    if (!isTaken)
      return false;
  }
  for (OpResult result : cluster->getResults())
    if (!memory.emplace_back(result).write(results, result.getResultNumber()))
      return false;
  for (const TensorMemory &own : memory)
    args.push_back(own.getStart());
  return true;
}

//===----------------------------------------------------------------------===//
// What is looked at
//===----------------------------------------------------------------------===//

int64_t KernelTrial::countElements() const {
  int64_t count = 1;
  auto cluster = kernel.cluster;
  cluster->walk([&](Operation *op) {
    for (Value value :
         llvm::concat<Value>(llvm::to_vector_of<Value>(op->getOperands()),
                             llvm::to_vector_of<Value>(op->getResults())))
      count = std::max(count, ::countElements(value));
  });
  return count;
}

/// Whether one element of each result can be evaluated.
///
/// A reduction over more than a quarter of the steps for one element would
/// leave nothing for what its terms are made of. Such kernels are reported as
/// too long, not as right.
bool KernelTrial::isShort() const {
  auto cluster = kernel.cluster;
  bool isShort = true;
  cluster->walk([&](Operation *op) {
    if (isReduction(op))
      isShort &= ::countElements(op->getOperand(0)) /
                     std::max<int64_t>(::countElements(op->getResult(0)), 1) <
                 kStepsOfOne / 4;
  });
  return isShort;
}

/// Elements of `value` that ids name: few, and unlike all others.
///
/// Almost all elements of a pick's result or of a table's gradient are zero, so
/// elements at random would say nothing of the others. Only ids that are
/// arguments are followed.
SmallVector<int64_t> KernelTrial::findNamed(Value value) const {
  SmallVector<int64_t> named;
  auto cluster = kernel.cluster;
  ArrayRef<int64_t> shape = getShape(value);
  for (Operation &op : cluster.getBody().front()) {
    // A pick need not be what is yielded: what follows it elementwise has its
    // elements at the same indices.
    bool isPick = isa<nn::PickOp>(op) && getShape(op.getResult(0)) == shape;
    // What is scattered may be added to a table.
    Operation *source = value.getDefiningOp();
    bool adds = getFacts(&op).scatters && source &&
                (source == &op ||
                 llvm::is_contained(source->getOperands(), op.getResult(0)));
    if (!isPick && !adds)
      continue;
    auto ids = dyn_cast<BlockArgument>(op.getOperand(1));
    if (!ids)
      continue;
    int64_t first = 0, row = shape.back(), positions = ::countElements(ids);
    auto begin = isPick ? cast<nn::PickOp>(op).getBegin()
                        : cast<nn::EmbeddingGradOp>(op).getBegin();
    if (begin)
      for (const RankTerm &term : begin->getTerms())
        first += term.scale * getIndex(term.axis);
    // From all over the ids, since different indices compute them.
    for (int64_t position : {positions - 1, int64_t(0), positions / 2,
                             positions / 3, positions / 5}) {
      int64_t id = memory[ids.getArgNumber()].load(position) - first;
      // Of a row the element that is picked, or the row that is added to.
      if (!isPick)
        named.push_back(id * row + position % row);
      else if (0 <= id && id < row)
        named.push_back(position * row + id);
    }
  }
  return named;
}

/// The order is by how much an element tells, since compare() stops when the
/// steps are used up, and chooseIndices() when enough indices are run:
/// 1. The corners: where loops over rows begin and end.
/// 2. Elements that ids name.
/// 3. A few at random.
/// 4. Both sides of the edges of vectors: of 8 to 64 elements, in a row and in
///    the tensor, where the remainder loop begins.
/// 5. More at random.
/// The generator is seeded by the result's number only.
void KernelTrial::chooseElements(unsigned result) {
  Value value = getYielded(result);
  int64_t count = ::countElements(value);
  auto shape = cast<RankedTensorType>(value.getType()).getShape();
  int64_t row = shape.empty() ? 1 : shape.back();
  llvm::SmallSetVector<int64_t, 32> chosen;
  auto choose = [&](int64_t element) {
    if (0 <= element && element < count)
      chosen.insert(element);
  };
  std::mt19937 generator(result);
  // 1. Corners.
  // The last element and the first, the ends of rows, then of vectors.
  for (int64_t element :
       {count - 1, int64_t(0), row - 1, count - row, row, row - 2, int64_t(1)})
    choose(element);
  // 2. Named by ids.
  for (int64_t element : findNamed(value))
    choose(element);
  // 3. At random.
  for (int random = 0; random < 4; ++random)
    choose(generator() % count);
  // 4. Edges of vectors.
  for (int64_t edge : {8, 16, 32, 64})
    for (int64_t end : {edge, row, count})
      for (int64_t element : {end / edge * edge - 1, end / edge * edge})
        choose(element);
  // 5. More at random.
  for (int random = 0; random < 12; ++random)
    choose(generator() % count);
  Samples &own = samples.emplace_back();
  own.elements.assign(chosen.begin(), chosen.end());
}

/// Each result is divided among the parallel indices in order, or nearly so.
///
/// A tensor of up to kAll elements is computed whole, the upper half of the
/// indices first, since a kernel may be called for them in any order. Of a
/// larger one the last index, the first, and those that compute the elements
/// which were chosen, as long as they have no more than kRun elements together.
/// The share of an index is an estimate: compare() passes by what was not
/// written. False: not even the two ends can be run.
bool KernelTrial::chooseIndices() {
  int64_t extent = kernel.info.extent, size = countElements();
  isComplete = size <= kAll || extent == 1;
  if (isComplete) {
    int64_t half = extent / 2;
    ranges = {{half, extent}, {0, half}};
    return size <= kRunOfEnds;
  }
  std::set<int64_t> indices{extent - 1, 0};
  for (auto [result, own] : llvm::enumerate(samples)) {
    double share = double(extent) / ::countElements(getYielded(result));
    for (int64_t element : own.elements)
      if ((indices.size() + 1) * (size / extent) <= kRun)
        indices.insert(std::min<int64_t>(element * share, extent - 1));
  }
  for (int64_t index : indices)
    ranges.push_back({index, index + 1});
  return 2 * (size / extent) <= kRunOfEnds;
}

/// What lies in the elements before, and words for what will lie there after.
///
/// Where the kernel adds, there has to be a number to add to: small integers,
/// exact in bf16, and not 0, so that a kernel which overwrites is noticed. A
/// table that rows are scattered into lies there.
bool KernelTrial::keepElements(ResultPages &results) {
  for (auto [result, own] : llvm::enumerate(samples)) {
    const TensorMemory &tensor = getResult(result);
    std::optional<unsigned> table = findTable(kernel.cluster, result);
    for (int64_t element : own.elements)
      own.before.push_back(table ? memory[*table].get(element)
                           : getMode(result) == plan::Accumulate::Overwrite
                               ? tensor.getMark()
                               : tensor.encode(element % 7 + 1));
    own.after = results.share(own.elements.size());
    if (!own.after)
      return false;
  }
  return true;
}

/// Afterwards all that execute() needs lies in `args`, `scalars`, `ranges` and
/// `samples`.
bool KernelTrial::prepare(DrawnPages &pages, ResultPages &results, Draw how) {
  draw = how;
  if (!function || !isShort() || !takeMemory(pages, results))
    return false;
  for (unsigned result = 0; result < kernel.cluster->getNumResults(); ++result)
    chooseElements(result);
  if (!chooseIndices() || !keepElements(results))
    return false;
  // The scalars of the last rank along each axis, as the runtime would compute
  // them from the plan.
  for (const codegen::RankScalar &scalar : kernel.info.scalars)
    scalars.push_back(
        scalar.firstMicrobatch
            ? draw.isFirst
            : scalar.bias +
                  (scalar.axis ? scalar.scale * getIndex(scalar.axis) : 0));
  return true;
}

/// Allocates nothing and takes no lock: after fork() another thread's lock may
/// be held for ever. The next kernel writes to the same memory, so what is
/// looked at is kept at once.
void KernelTrial::execute() const {
  size_t operands = memory.size() - samples.size();
  for (auto [result, own] : llvm::enumerate(samples))
    for (auto [element, bits] : llvm::zip_equal(own.elements, own.before))
      memory[operands + result].set(element, bits);
  for (auto [begin, end] : ranges)
    if (begin < end)
      function(args.data(), scalars.data(), begin, end);
  for (auto [result, own] : llvm::enumerate(samples))
    for (auto [index, element] : llvm::enumerate(own.elements))
      own.after[index] = memory[operands + result].get(element);
}

//===----------------------------------------------------------------------===//
// The comparison
//===----------------------------------------------------------------------===//

/// What the ops define, plus what lay there before where the kernel adds to it.
/// Adding rounds once more, to bf16 as well if the result is.
Number KernelTrial::expect(Elements &elements, unsigned result, size_t sample) {
  Number number =
      elements.get(getYielded(result), samples[result].elements[sample]);
  plan::Accumulate mode = getMode(result);
  if (mode == plan::Accumulate::Overwrite ||
      (mode == plan::Accumulate::AddUnlessFirst && draw.isFirst))
    return number;
  double before = getResult(result).decode(samples[result].before[sample]);
  number = roundOnce(number.value + before, number.error);
  if (getElementTypeOrSelf(getYielded(result)).isBF16())
    number.error += kHalfUnit * (std::abs(number.value) + number.error);
  return number;
}

/// Always fails. The error is at the op whose elements they are; the cluster if
/// an argument is yielded as it is.
LogicalResult KernelTrial::tell(unsigned result, size_t sample,
                                Number expected) {
  int64_t element = samples[result].elements[sample];
  uint32_t got = samples[result].after[sample];
  Operation *op = getYielded(result).getDefiningOp();
  InFlightDiagnostic diag =
      (op ? op : kernel.cluster)->emitOpError("is computed wrongly: ");
  diag << kernel.info.symbol;
  if (got == getResult(result).getMark())
    diag << " does not write element " << element;
  else
    diag << " gives " << getResult(result).decode(got) << " in element "
         << element;
  diag << " of " << ::countElements(getYielded(result))
       << ", for which its ops define " << expected.value
       << ", with roundings up to " << expected.error;
  return diag;
}

/// Whether `got` may be a rounding of what is expected.
///
/// The bound is itself computed with roundings, in double, and one percent more
/// is far above those. Infinities and NaNs have no bound and have to be the
/// same.
static bool fits(double got, Number expected) {
  if (std::isnan(expected.value))
    return std::isnan(got);
  if (std::isinf(expected.value))
    return got == expected.value;
  return std::abs(got - expected.value) <= 1.01 * expected.error;
}

/// For each result, in the order of chooseElements():
/// 1. Stop when the steps are used up and at least one element was told of.
///    The first may take more, and a second one is looked at unless the first
///    took as many as both may.
/// 2. Pass by elements of indices that were not run. One that was run and still
///    has its mark fits nothing.
/// 3. Evaluate the element, and pass by one without a bound.
/// 4. Compare. Only finite numbers count as told of: infinities agree too
///    easily.
/// A result of which nothing could be told makes the answer false, and the
/// caller tries another draw.
FailureOr<bool> KernelTrial::compare() {
  Elements elements(kernel.cluster,
                    {[&](unsigned argument, int64_t element) {
                       return memory[argument].load(element);
                     },
                     [&](StringAttr axis) { return getIndex(axis); }});
  bool isTold = true;
  for (auto [result, own] : llvm::enumerate(samples)) {
    int64_t steps = 0;
    size_t told = 0;
    int64_t last = ::countElements(getYielded(result)) - 1;
    for (size_t sample = 0; sample < own.elements.size(); ++sample) {
      // 1. Stop in time.
      if (steps > (told == 1 ? kStepsOfTwo / 2 : kSteps) && told > 0)
        break;
      int64_t element = own.elements[sample];
      double got = getResult(result).decode(own.after[sample]);
      bool isWritten = own.after[sample] != own.before[sample];
      // 2. Was it run?
      // Some other index writes it; the first and the last were run.
      if (!isWritten && !isComplete && element != 0 && element != last)
        continue;
      // 3. Evaluate.
      elements.allow(kStepsOfOne);
      Number expected = expect(elements, result, sample);
      steps += kStepsOfOne - elements.getLeft();
      if (!expected.isKnown())
        continue;
      // 4. Compare.
      if (!fits(got, expected))
        return tell(result, sample, expected);
      told += std::isfinite(got);
    }
    held += told;
    isTold &= told > 0 || own.elements.empty();
  }
  return isTold;
}
