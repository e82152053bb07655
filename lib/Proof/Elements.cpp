//===- Elements.cpp - Naive evaluation of kernels' ops --------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Evaluation is by recursion from the element that is asked for to the
// arguments of the cluster. Each element costs a step, and steps are limited,
// so that an element which depends on too many others is unknown rather than
// slow. Elementwise ops are in Numbers.cpp; here are those
// that read other elements or depend on the rank's index.
// Nothing is taken from the code generator or from the interfaces that describe
// ops to it: a mistake there must not be repeated here. Speed is not a goal
// beyond what remembering elements gives.
//
//===----------------------------------------------------------------------===//

#include "Elements.h"

#include "Numbers.h"

#include "llvm/ADT/TypeSwitch.h"
#include <cmath>

using namespace mlir;
using namespace plait;
using namespace plait::proof;

/// Values of more elements than this are not remembered as a whole.
/// The map of such a value is emptied when it is full, at some 12 MB.
static constexpr size_t kRemembered = 1 << 18;

/// Of others as many elements are, which are few enough to stay in a cache.
static constexpr size_t kRecent = 1 << 10;

static ArrayRef<int64_t> getShape(Value value) {
  return cast<RankedTensorType>(value.getType()).getShape();
}

/// The indices of an element along each dimension.
static SmallVector<int64_t, 4> unravel(ArrayRef<int64_t> shape,
                                       int64_t element) {
  SmallVector<int64_t, 4> index(shape.size());
  for (int64_t dim = shape.size() - 1; dim >= 0; --dim) {
    index[dim] = element % shape[dim];
    element /= shape[dim];
  }
  return index;
}

/// The inverse of unravel(): the row-major number of an element.
static int64_t ravel(ArrayRef<int64_t> shape, ArrayRef<int64_t> index) {
  int64_t element = 0;
  for (auto [extent, at] : llvm::zip_equal(shape, index))
    element = element * extent + at;
  return element;
}

/// Whether elements that are far from one another are made of one of `value`,
/// the elements of a row of its sum.
///
/// For these it pays to keep all elements: each of them is asked for again for
/// every element of a row, and may itself be a sum over a row.
static bool isRepeated(Value value) {
  return isReduction(value.getDefiningOp()) ||
         llvm::any_of(value.getUsers(),
                      [](Operation *user) { return getFacts(user).repeats; });
}

/// Null: it is not remembered. The address is valid until the next store().
const Number *Elements::Memory::find(int64_t element) const {
  if (keepsAll) {
    auto found = all.find(element);
    return found == all.end() ? nullptr : &found->second;
  }
  if (recent.empty())
    return nullptr;
  auto &[kept, number] = recent[element % kRecent];
  return kept == element ? &number : nullptr;
}

/// Forgetting is always safe, since elements are recomputed: a full map is
/// emptied, and in the small table an element replaces the one of the same
/// remainder.
void Elements::Memory::store(int64_t element, Number number) {
  if (keepsAll) {
    if (all.size() >= kRemembered)
      all.clear();
    all[element] = number;
    return;
  }
  if (recent.empty())
    recent.assign(kRecent, {-1, Number()});
  recent[element % kRecent] = {element, number};
}

Elements::Elements(plan::ClusterOp cluster, Inputs inputs)
    : cluster(cluster), inputs(std::move(inputs)) {
  for (Value value : cluster.getBody().front().getTerminator()->getOperands())
    // The result of the cluster lies in memory as bf16, and the kernel may take
    // the rounded number from there or the f32 one from its register. The bound
    // has to allow both.
    if (getElementTypeOrSelf(value).isBF16())
      rounded.insert(value);
  for (Operation &op : cluster.getBody().front().without_terminator())
    for (Value value : op.getResults())
      // Of the rest an element is asked for once.
      if (isRepeated(value) || !value.hasOneUse())
        known.try_emplace(value, isRepeated(value));
}

/// Arguments cost no step. Errors begin at 0: what was drawn is exact in the
/// type of the argument.
Number Elements::get(Value value, int64_t element) {
  if (auto argument = dyn_cast<BlockArgument>(value))
    return {inputs.load(argument.getArgNumber(), element), 0};
  auto own = known.find(value);
  if (own != known.end())
    if (const Number *found = own->second.find(element))
      return *found;
  if (left <= 0)
    return kUnknown;
  --left;
  Number number = evaluate(value, element);
  // One that nobody had the steps for may be found later.
  if (own != known.end() && (left > 0 || number.isKnown()))
    own->second.store(element, number);
  return number;
}

/// Adds the rounding to bf16 to values that the cluster stores so.
Number Elements::evaluate(Value value, int64_t element) {
  Number number = evaluateOp(value.getDefiningOp(), element);
  if (rounded.contains(value) && std::isfinite(number.value))
    number.error += kHalfUnit * (std::abs(number.value) + number.error);
  return number;
}

/// For ids, keys and positions. i32 is exact in a double.
int64_t Elements::getInteger(Value value, int64_t element) {
  return static_cast<int64_t>(get(value, element).value);
}

/// Of the rank that the inputs play, asked once for each axis.
int64_t Elements::getIndex(StringAttr axis) {
  auto [it, isNew] = indices.try_emplace(axis, 0);
  if (isNew)
    it->second = inputs.getIndex(axis);
  return it->second;
}

/// The index in the global tensor of the first element that this rank has.
int64_t Elements::getBegin(ArrayRef<RankTerm> terms) {
  int64_t begin = 0;
  for (const RankTerm &term : terms)
    begin += term.scale * getIndex(term.axis);
  return begin;
}

//===----------------------------------------------------------------------===//
// Elements from other places
//===----------------------------------------------------------------------===//

/// The elements of the operand that a reduction's result is made of.
///
/// Row-major numbers, in the order of the operand. None if there are more than
/// steps are left: the reduction is given up before any of its terms is
/// evaluated.
SmallVector<int64_t> Elements::findTerms(nn::ReduceOp reduce, int64_t element) {
  ArrayRef<int64_t> shape = getShape(reduce.getInput());
  // The indices of the result, at the dimensions that are kept.
  Index kept = unravel(getShape(reduce.getResult()), element);
  Index index(shape.size(), 0);
  for (size_t dim = 0, next = 0; dim < shape.size(); ++dim)
    if (!llvm::is_contained(reduce.getDims(), int64_t(dim)))
      index[dim] = kept[next++];
  int64_t count = 1;
  for (int64_t dim : reduce.getDims())
    count *= shape[dim];
  SmallVector<int64_t> terms;
  if (count > left)
    return terms;
  terms.reserve(count);
  // Counts through the reduced dimensions like an odometer, the last one
  // fastest.
  for (; count > 0; --count) {
    terms.push_back(ravel(shape, index));
    for (int64_t dim : llvm::reverse(reduce.getDims())) {
      if (++index[dim] < shape[dim])
        break;
      index[dim] = 0;
    }
  }
  return terms;
}

/// The order in which a kernel adds is unknown, so addUp() bounds all orders.
Number Elements::reduceSum(Operation *op, ArrayRef<int64_t> terms) {
  std::vector<Number> numbers;
  numbers.reserve(terms.size());
  for (int64_t term : terms)
    numbers.push_back(get(op->getOperand(0), term));
  return addUp(numbers);
}

/// A maximum rounds nothing: it may be off by as much as its most uncertain
/// term. An unknown term or a NaN makes the result such a one.
Number Elements::reduceMax(Operation *op, ArrayRef<int64_t> terms) {
  Number largest{-std::numeric_limits<double>::infinity(), 0};
  for (int64_t term : terms) {
    Number number = get(op->getOperand(0), term);
    if (!number.isKnown() || std::isnan(number.value))
      return number;
    largest = {std::max(largest.value, number.value),
               std::max(largest.error, number.error)};
  }
  return largest;
}

/// Which of `rows` rows an id names; -1: none.
template <typename Op>
int64_t Elements::findRow(Op op, int64_t id, int64_t rows) {
  std::optional<nn::BeginAttr> begin = op.getBegin();
  int64_t limit = op.getLimit();
  // Rows from `limit` on are padding, also where the block has memory for them.
  if (limit && id >= limit)
    return -1;
  int64_t row = id - (begin ? getBegin(begin->getTerms()) : 0);
  return 0 <= row && row < rows ? row : -1;
}

/// What is stored at `index` of a dimension of so many chunks in the order
/// first, last, second, last but one, …: where it belongs. By the op's
/// description.
static int64_t findPosition(int64_t index, int64_t extent, int64_t chunks) {
  int64_t chunk = extent / chunks, place = index / chunk;
  int64_t number = place % 2 == 0 ? place / 2 : chunks - 1 - place / 2;
  return number * chunk + index % chunk;
}

/// The other way round.
static int64_t findStored(int64_t position, int64_t extent, int64_t chunks) {
  int64_t chunk = extent / chunks, number = position / chunk;
  int64_t place =
      number < chunks / 2 ? 2 * number : 2 * (chunks - 1 - number) + 1;
  return place * chunk + position % chunk;
}

/// Where in the whole tensor the rank's element at `index` belongs.
int64_t Elements::getPosition(nn::BeginAttr begin, int64_t index) {
  if (!begin)
    return index;
  index += getBegin(begin.getTerms());
  return begin.getChunks()
             ? findPosition(index, begin.getExtent(), begin.getChunks())
             : index;
}

/// From the op's description, not by the header that the op uses.
///
/// The hash of the sequence's key, the op's site and the indices in the global
/// tensor, compared with the share of words that are kept. A rank which counts
/// from its own first element gets another hash, which is what the trial should
/// notice. Dimension 0 is the sequences: the key stands for its index, and the
/// site takes its place in the list of numbers.
bool Elements::isKept(nn::DropoutOp dropout, int64_t element) {
  Index index = unravel(getShape(dropout.getInput()), element);
  auto hash = static_cast<uint32_t>(getInteger(dropout.getKeys(), index[0]));
  index[0] = dropout.getSite();
  for (size_t dim = 1; dim < index.size(); ++dim)
    index[dim] = getPosition(dropout.getBegin(dim), index[dim]);
  for (int64_t number : index) {
    hash += 0x9e3779b9u * static_cast<uint32_t>(number);
    hash = (hash ^ hash >> 16) * 0x7feb352du;
    hash = (hash ^ hash >> 15) * 0x846ca68bu;
    hash ^= hash >> 16;
  }
  // 2^32 words: the threshold is rounded as the op's description says.
  double kept = 1 - dropout.getProbability().convertToDouble();
  return hash < std::round(kept * 4294967296.0);
}

//===----------------------------------------------------------------------===//
// Ops
//===----------------------------------------------------------------------===//

/// Elements are repeated along the dimensions that the input does not have.
Number Elements::define(nn::BroadcastOp op, int64_t element) {
  Index index = unravel(getShape(op.getResult()), element), from;
  for (int64_t dim : op.getDims())
    from.push_back(index[dim]);
  return get(op.getInput(), ravel(getShape(op.getInput()), from));
}

Number Elements::define(nn::ReduceOp op, int64_t element) {
  SmallVector<int64_t> terms = findTerms(op, element);
  if (terms.empty())
    return kUnknown;
  return op.getKind() == nn::ReduceKind::Max ? reduceMax(op, terms)
                                             : reduceSum(op, terms);
}

/// Rows that the rank does not have, and padding, are zeros.
Number Elements::define(nn::EmbeddingOp op, int64_t element) {
  ArrayRef<int64_t> table = getShape(op.getTable());
  int64_t row =
      findRow(op, getInteger(op.getIds(), element / table[1]), table[0]);
  return row < 0 ? Number{0, 0}
                 : get(op.getTable(), row * table[1] + element % table[1]);
}

/// What the positions with the row's id add.
///
/// Looks at all positions, and a position costs a step whether or not it has
/// the id, so that the budget bounds the search as well.
Number Elements::define(nn::EmbeddingGradOp op, int64_t element) {
  ArrayRef<int64_t> shape = getShape(op.getResult());
  int64_t row = element / shape[1], column = element % shape[1];
  Value gradient = op->getOperand(0), ids = op->getOperand(1);
  int64_t positions = cast<RankedTensorType>(ids.getType()).getNumElements();
  if (positions > left)
    return kUnknown;
  left -= positions;
  std::vector<Number> terms;
  for (int64_t position = 0; position < positions; ++position)
    if (findRow(op, getInteger(ids, position), shape[0]) == row)
      terms.push_back(get(gradient, position * shape[1] + column));
  return addUp(terms);
}

/// The rank's block among those of all axes, the first axis major. The last
/// blocks may reach beyond the input: that is padding, and zero.
Number Elements::define(dist::SliceOp op, int64_t element) {
  Index index = unravel(getShape(op.getResult()), element);
  ArrayRef<int64_t> shape = getShape(op.getInput());
  int64_t rank = 0;
  auto mesh = dist::MeshOp::find(op->getParentOfType<ModuleOp>());
  for (auto axis : op.getAxes().getAsRange<StringAttr>())
    rank = rank * mesh.getAxisSize(axis) + getIndex(axis);
  // Each round has a block of every rank.
  int64_t &place = index[op.getDim()];
  int64_t rounds = op.getRounds(),
          own = getShape(op.getResult())[op.getDim()] / rounds;
  place += place / own * (shape[op.getDim()] / rounds - own) + rank * own;
  return index[op.getDim()] < shape[op.getDim()]
             ? get(op.getInput(), ravel(shape, index))
             : Number{0, 0};
}

/// The index itself.
Number Elements::define(nn::IotaOp op, int64_t element) {
  Index index = unravel(getShape(op.getResult()), element);
  return {double(getPosition(op.getBeginAttr(), index[op.getAlong()])), 0};
}

/// All but the element that the row's id names are zero.
Number Elements::define(nn::PickOp op, int64_t element) {
  int64_t columns = getShape(op.getResult()).back();
  bool isHere = getInteger(op.getIds(), element / columns) ==
                getPosition(op.getBeginAttr(), element % columns);
  return isHere ? get(op->getOperand(0), element) : Number{0, 0};
}

Number Elements::define(nn::CausalMaskOp op, int64_t element) {
  ArrayRef<int64_t> shape = getShape(op.getResult());
  Index index = unravel(shape, element);
  int64_t key = index.back(),
          query = getPosition(op.getBeginAttr(), index[index.size() - 2]);
  int64_t distance =
      op.getBidirectional() ? std::abs(query - key) : query - key;
  bool isSeen =
      distance >= 0 && distance < int64_t(op.getWindow().value_or(query + 1));
  // A query always sees its own key, even where a document starts behind it: a
  // row without any key would have no softmax.
  if (op.getStarts() && key != query)
    isSeen &= key >= getInteger(op.getStarts(), element / shape.back());
  return isSeen ? get(op->getOperand(0), element)
                : Number{-std::numeric_limits<double>::infinity(), 0};
}

Number Elements::define(nn::MaskPaddingOp op, int64_t element) {
  Index index = unravel(getShape(op.getResult()), element);
  int64_t position = getPosition(op.getBeginAttr(), index[op.getDim()]);
  return position < int64_t(op.getLimit())
             ? get(op->getOperand(0), element)
             : Number{op.getAmount().convertToDouble(), 0};
}

Number Elements::define(nn::DropoutOp op, int64_t element) {
  if (!isKept(op, element))
    return {0, 0};
  Number kept = get(op->getOperand(0), element);
  double scale = 1 / (1 - op.getProbability().convertToDouble());
  // The scale is a number that a kernel holds rounded, which makes two
  // roundings with that of the multiplication.
  return roundOnce(kept.value * scale,
                   kept.error * scale + kUnit * std::abs(kept.value) * scale);
}

Number Elements::define(nn::ReorderOp op, int64_t element) {
  ArrayRef<int64_t> shape = getShape(op.getResult());
  Index index = unravel(shape, element);
  int64_t &at = index[op.getDim()];
  auto find = op.getInverse() ? findStored : findPosition;
  at = find(at, shape[op.getDim()], op.getChunks());
  return get(op->getOperand(0), ravel(shape, index));
}

/// The second half of a row, negated, and then the first one.
Number Elements::define(nn::RotateHalfOp op, int64_t element) {
  int64_t columns = getShape(op.getResult()).back(), half = columns / 2;
  bool isFirst = element % columns < half;
  Number turned = get(op->getOperand(0), element + (isFirst ? half : -half));
  return {isFirst ? -turned.value : turned.value, turned.error};
}

Number Elements::define(nn::SliceOp op, int64_t element) {
  int64_t columns = getShape(op.getResult()).back(), parts = op.getParts();
  int64_t row = element / columns, column = element % columns;
  return get(op.getInput(),
             (row * parts + int64_t(op.getPart())) * columns + column);
}

Number Elements::define(nn::ChunkOp op, int64_t element) {
  Index index = unravel(getShape(op.getResult()), element);
  index[op.getDim()] +=
      int64_t(op.getPart()) * getShape(op.getResult())[op.getDim()];
  return get(op.getInput(), ravel(getShape(op.getInput()), index));
}

/// Bits by division, whatever the sign of the word.
Number Elements::define(nn::UnpackBitsOp op, int64_t element) {
  int64_t words = getShape(op.getInput()).back(), bits = op.getBits();
  int64_t columns = words * (32 / bits);
  int64_t row = element / columns, column = element % columns;
  auto word = static_cast<uint32_t>(
      getInteger(op.getInput(), row * words + column % words));
  int64_t range = int64_t(1) << bits;
  int64_t code = int64_t(word >> (column / words * bits)) % range;
  bool isNegative = bits > 1 && code >= range / 2;
  return {double(isNegative ? code - range : code), 0};
}

/// Counts the tensors' elements row by row.
Number Elements::define(nn::OccupiedOp op, int64_t element) {
  ArrayRef<int64_t> shape = getShape(op.getResult());
  int64_t columns = shape.back(), rows = shape[shape.size() - 2];
  int64_t row = element / columns % rows, column = element % columns;
  for (int64_t count : op.getElements()) {
    int64_t own = llvm::divideCeil(count, columns);
    if (row < own)
      return {row * columns + column < count ? 1.0 : 0.0, 0};
    row -= own;
  }
  return {0, 0};
}

/// How many are before it, in the order of those that are kept.
Number Elements::define(nn::KeepTopOp op, int64_t element) {
  int64_t columns = getShape(op.getInput()).back();
  int64_t first = element / columns * columns, before = 0;
  auto getSize = [&](int64_t at) -> std::optional<double> {
    Number own = get(op.getInput(), at);
    if (!own.isExact())
      return std::nullopt;
    return std::isnan(own.value) ? std::numeric_limits<double>::max()
                                 : std::abs(own.value);
  };
  std::optional<double> own = getSize(element);
  for (int64_t at = first; at < first + columns && own; ++at) {
    std::optional<double> other = getSize(at);
    if (!other)
      return kUnknown;
    before += *other > *own || (*other == *own && at < element);
  }
  return own ? Number{before < int64_t(op.getKeep()) ? 1.0 : 0.0, 0} : kUnknown;
}

/// The columns of a row of a mask that are not 0; none where that is not known.
std::optional<SmallVector<int64_t>> Elements::findMarked(Value mask,
                                                         int64_t row) {
  int64_t columns = getShape(mask).back();
  SmallVector<int64_t> found;
  for (int64_t column = 0; column < columns; ++column) {
    Number own = get(mask, row * columns + column);
    if (!own.isExact())
      return std::nullopt;
    if (own.value != 0)
      found.push_back(column);
  }
  return found;
}

Number Elements::define(nn::CompactOp op, int64_t element) {
  int64_t kept = getShape(op.getResult()).back(), row = element / kept;
  auto marked = findMarked(op.getMask(), row);
  if (!marked)
    return kUnknown;
  int64_t index = element % kept, columns = getShape(op.getInput()).back();
  return index < int64_t(marked->size())
             ? get(op.getInput(), row * columns + (*marked)[index])
             : Number{0, 0};
}

Number Elements::define(nn::ExpandOp op, int64_t element) {
  int64_t columns = getShape(op.getResult()).back(), row = element / columns;
  auto marked = findMarked(op.getMask(), row);
  if (!marked)
    return kUnknown;
  int64_t kept = getShape(op.getInput()).back();
  int64_t index = llvm::find(*marked, element % columns) - marked->begin();
  return index < std::min<int64_t>(marked->size(), kept)
             ? get(op.getInput(), row * kept + index)
             : Number{0, 0};
}

Number Elements::define(nn::FindOp op, int64_t element) {
  int64_t kept = getShape(op.getResult()).back();
  auto marked = findMarked(op.getMask(), element / kept);
  if (!marked)
    return kUnknown;
  size_t index = element % kept;
  return {index < marked->size() ? double((*marked)[index]) : -1, 0};
}

Number Elements::define(nn::MarkOp op, int64_t element) {
  int64_t kept = getShape(op.getInput()).back();
  int64_t columns = getShape(op.getResult()).back(), row = element / columns;
  bool isMarked = false;
  for (int64_t index = 0; index < kept; ++index) {
    Number own = get(op.getInput(), row * kept + index);
    if (!own.isExact())
      return kUnknown;
    isMarked |= std::trunc(own.value) == double(element % columns);
  }
  return {isMarked ? 1.0 : 0.0, 0};
}

/// Operands are read at the same element. An op that has no meaning here is
/// reported by getUnruled() and not guessed.
Number Elements::defineElementwise(Operation *op, int64_t element) {
  SmallVector<Number, 2> operands;
  for (Value operand : op->getOperands())
    operands.push_back(get(operand, element));
  std::optional<Number> result = evaluateElement(op, operands);
  if (result)
    return *result;
  unruled = op;
  return kUnknown;
}

/// Ops that select or combine elements by their indices have a meaning of their
/// own; what is left is elementwise.
Number Elements::evaluateOp(Operation *op, int64_t element) {
  return llvm::TypeSwitch<Operation *, Number>(op)
      .Case<nn::BroadcastOp, nn::ReduceOp, nn::EmbeddingOp, nn::EmbeddingGradOp,
            dist::SliceOp, nn::IotaOp, nn::PickOp, nn::CausalMaskOp,
            nn::MaskPaddingOp, nn::DropoutOp, nn::ReorderOp, nn::RotateHalfOp,
            nn::SliceOp, nn::ChunkOp, nn::UnpackBitsOp, nn::OccupiedOp,
            nn::KeepTopOp, nn::CompactOp, nn::ExpandOp, nn::FindOp, nn::MarkOp>(
          [&](auto own) { return define(own, element); })
      .Default([&](Operation *) { return defineElementwise(op, element); });
}
