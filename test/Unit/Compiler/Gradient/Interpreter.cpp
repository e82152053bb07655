//===- Interpreter.cpp - Evaluates nn ops, in double precision ------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Interpreter.h"

#include "llvm/ADT/TypeSwitch.h"

#include <cmath>
#include <limits>
#include <random>

using namespace mlir;
using namespace plait;
using namespace plait::test;

using Index = SmallVector<int64_t>;

//===----------------------------------------------------------------------===//
// Arrays
//===----------------------------------------------------------------------===//

static int64_t product(ArrayRef<int64_t> shape) {
  int64_t result = 1;
  for (int64_t extent : shape)
    result *= extent;
  return result;
}

Array::Array(ArrayRef<int64_t> shape)
    : shape(shape), data(product(shape), 0.0) {}

Array::Array(ArrayRef<int64_t> shape, std::vector<double> data)
    : shape(shape), data(std::move(data)) {}

double &Array::at(ArrayRef<int64_t> index) {
  int64_t offset = 0;
  for (auto [extent, i] : llvm::zip_equal(shape, index))
    offset = offset * extent + i;
  return data[offset];
}

Array test::random(ArrayRef<int64_t> shape, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<double> normal;
  Array array(shape);
  for (double &x : array.data)
    x = normal(generator);
  return array;
}

static Array zerosFor(Value value) {
  return Array(cast<RankedTensorType>(value.getType()).getShape());
}

/// Calls `body` for every index of `shape`, the last dimension fastest.
static void forEachIndex(ArrayRef<int64_t> shape,
                         function_ref<void(ArrayRef<int64_t>)> body) {
  Index index(shape.size(), 0);
  for (int64_t left = product(shape); left > 0; --left) {
    body(index);
    for (int64_t dim = shape.size() - 1; dim >= 0; --dim) {
      if (++index[dim] < shape[dim])
        break;
      index[dim] = 0;
    }
  }
}

/// The entries of `index` that `dims` list.
static Index select(ArrayRef<int64_t> index, ArrayRef<int64_t> dims) {
  Index result;
  for (int64_t dim : dims)
    result.push_back(index[dim]);
  return result;
}

//===----------------------------------------------------------------------===//
// Elementwise ops
//===----------------------------------------------------------------------===//

/// The result's element for the operands' elements `x`, or nothing.
static std::optional<double> evaluateElement(Operation *op,
                                             ArrayRef<double> x) {
  using Result = std::optional<double>;
  return TypeSwitch<Operation *, Result>(op)
      .Case([&](nn::NegOp) { return -x[0]; })
      .Case([&](nn::ExpOp) { return std::exp(x[0]); })
      .Case([&](nn::LogOp) { return std::log(x[0]); })
      .Case([&](nn::TanhOp) { return std::tanh(x[0]); })
      .Case([&](nn::SinOp) { return std::sin(x[0]); })
      .Case([&](nn::CosOp) { return std::cos(x[0]); })
      .Case([&](nn::ErfOp) { return std::erf(x[0]); })
      .Case([&](nn::SqrtOp) { return std::sqrt(x[0]); })
      .Case([&](nn::RsqrtOp) { return 1.0 / std::sqrt(x[0]); })
      .Case([&](nn::SigmoidOp) { return 1.0 / (1.0 + std::exp(-x[0])); })
      .Case([&](nn::IsZeroOp) { return x[0] == 0.0 ? 1.0 : 0.0; })
      .Case([&](nn::EqualOp) { return x[0] == x[1] ? 1.0 : 0.0; })
      .Case([&](nn::GreaterOp) { return x[0] > x[1] ? 1.0 : 0.0; })
      .Case([&](nn::ConvertOp) { return std::trunc(x[0]); })
      .Case<nn::StopGradientOp, nn::CastOp>([&](auto) { return x[0]; })
      .Case([&](nn::AddOp) { return x[0] + x[1]; })
      .Case([&](nn::SubOp) { return x[0] - x[1]; })
      .Case([&](nn::MulOp) { return x[0] * x[1]; })
      .Case([&](nn::DivOp) { return x[0] / x[1]; })
      .Case([&](nn::MinOp) { return std::min(x[0], x[1]); })
      .Case([&](nn::ScaleOp scale) {
        return x[0] * scale.getAmount().convertToDouble();
      })
      .Case([&](nn::ShiftOp shift) {
        return x[0] + shift.getAmount().convertToDouble();
      })
      .Case([&](nn::FillOp fill) { return fill.getAmount().convertToDouble(); })
      .Case([&](nn::ValidOp valid) {
        return x[0] != static_cast<int32_t>(valid.getIgnore()) ? 1.0 : 0.0;
      })
      .Default([](Operation *) { return Result(); });
}

static bool evaluateElements(Operation *op, ArrayRef<const Array *> operands,
                             Array &result) {
  for (size_t i = 0; i < result.data.size(); ++i) {
    SmallVector<double> x;
    for (const Array *operand : operands)
      if (i < operand->data.size())
        x.push_back(operand->data[i]);
    if (x.size() != operands.size())
      return false;
    std::optional<double> y = evaluateElement(op, x);
    if (!y)
      return false;
    result.data[i] = *y;
  }
  return true;
}

//===----------------------------------------------------------------------===//
// Ops with a rule of their own
//===----------------------------------------------------------------------===//

namespace {
/// One letter of a contraction: how far its tensors move when it does.
struct Loop {
  int64_t extent, lhs = 0, rhs = 0, out = 0;
};
} // namespace

static void contract(ArrayRef<Loop> loops, const double *lhs, const double *rhs,
                     double *out) {
  if (loops.empty()) {
    *out += *lhs * *rhs;
    return;
  }
  const Loop &loop = loops.front();
  for (int64_t i = 0; i < loop.extent; ++i)
    contract(loops.drop_front(), lhs + i * loop.lhs, rhs + i * loop.rhs,
             out + i * loop.out);
}

static void evaluateRule(nn::MatmulOp op, ArrayRef<Array *> operands,
                         Array &result) {
  std::map<char, Loop> loops;
  auto addStrides = [&](StringRef letters, int64_t Loop::*stride) {
    int64_t step = 1;
    for (char letter : llvm::reverse(letters)) {
      loops[letter].extent = op.getExtent(letter);
      loops[letter].*stride = step;
      step *= op.getExtent(letter);
    }
  };
  addStrides(op.getLhsLetters(), &Loop::lhs);
  addStrides(op.getRhsLetters(), &Loop::rhs);
  addStrides(op.getResultLetters(), &Loop::out);
  SmallVector<Loop> list;
  for (const auto &[letter, loop] : loops)
    list.push_back(loop);
  contract(list, operands[0]->data.data(), operands[1]->data.data(),
           result.data.data());
}

static void evaluateRule(nn::BroadcastOp op, ArrayRef<Array *> operands,
                         Array &result) {
  forEachIndex(result.shape, [&](ArrayRef<int64_t> index) {
    result.at(index) = operands[0]->at(select(index, op.getDims()));
  });
}

static void evaluateRule(nn::ReduceOp op, ArrayRef<Array *> operands,
                         Array &result) {
  bool isMax = op.getKind() == nn::ReduceKind::Max;
  if (isMax)
    for (double &x : result.data)
      x = -std::numeric_limits<double>::infinity();
  forEachIndex(operands[0]->shape, [&](ArrayRef<int64_t> index) {
    Index kept;
    for (auto [dim, i] : llvm::enumerate(index))
      if (!llvm::is_contained(op.getDims(), static_cast<int64_t>(dim)))
        kept.push_back(i);
    double x = operands[0]->at(index), &y = result.at(kept);
    y = isMax ? std::max(x, y) : x + y;
  });
}

/// The rows of a table's block that are not padding, if it is the first block.
template <typename OpTy> static int64_t countRows(OpTy op, const Array &table) {
  int64_t limit = op.getLimit();
  return limit ? std::min(limit, table.shape[0]) : table.shape[0];
}

static void evaluateRule(nn::EmbeddingOp op, ArrayRef<Array *> operands,
                         Array &result) {
  forEachIndex(result.shape, [&](ArrayRef<int64_t> index) {
    int64_t id = operands[1]->at(index.drop_back());
    if (id >= 0 && id < countRows(op, *operands[0]))
      result.at(index) = operands[0]->at({id, index.back()});
  });
}

static void evaluateRule(nn::EmbeddingGradOp op, ArrayRef<Array *> operands,
                         Array &result) {
  forEachIndex(operands[0]->shape, [&](ArrayRef<int64_t> index) {
    int64_t id = operands[1]->at(index.drop_back());
    if (id >= 0 && id < countRows(op, result))
      result.at({id, index.back()}) += operands[0]->at(index);
  });
}

/// By the op's description: each row of the ids with one matrix, element by
/// element.
static void evaluateRule(nn::GroupedMatmulOp op, ArrayRef<Array *> operands,
                         Array &result) {
  bool makes = op.makesMatrices();
  Array &matrices = makes ? result : *operands[1];
  Array &rows = makes ? *operands[1] : result;
  int64_t limit = op.getLimit() ? int64_t(op.getLimit()) : matrices.shape[0];
  forEachIndex(rows.shape, [&](ArrayRef<int64_t> index) {
    int64_t id = operands[2]->at(index.drop_back());
    if (id < 0 || id >= std::min(limit, matrices.shape[0]))
      return;
    Index from(index.take_front(operands[0]->shape.size() - 1));
    from.push_back(0);
    for (int64_t k = 0; k < operands[0]->shape.back(); ++k) {
      from.back() = k;
      double x = operands[0]->at(from);
      double &w = op.isTransposed() ? matrices.at({id, index.back(), k})
                                    : matrices.at({id, k, index.back()});
      (makes ? w : rows.at(index)) += x * (makes ? rows.at(index) : w);
    }
  });
}

static void evaluateRule(nn::PickOp op, ArrayRef<Array *> operands,
                         Array &result) {
  forEachIndex(result.shape, [&](ArrayRef<int64_t> index) {
    if (operands[1]->at(index.drop_back()) == index.back())
      result.at(index) = operands[0]->at(index);
  });
}

/// Which element of a dimension lies at each index of it: chunks from both
/// ends.
static std::vector<int64_t> listZigzag(int64_t extent, int64_t chunks) {
  std::vector<int64_t> list;
  for (int64_t first = 0, last = chunks - 1; first < last; ++first, --last)
    for (int64_t chunk : {first, last})
      for (int64_t i = 0; i < extent / chunks; ++i)
        list.push_back(chunk * (extent / chunks) + i);
  return list;
}

static void evaluateRule(nn::ReorderOp op, ArrayRef<Array *> operands,
                         Array &result) {
  int64_t dim = op.getDim();
  std::vector<int64_t> list = listZigzag(result.shape[dim], op.getChunks());
  forEachIndex(result.shape, [&](ArrayRef<int64_t> index) {
    Index other(index);
    other[dim] = list[index[dim]];
    if (op.getInverse())
      result.at(other) = operands[0]->at(index);
    else
      result.at(index) = operands[0]->at(other);
  });
}

static void evaluateRule(nn::CausalMaskOp op, ArrayRef<Array *> operands,
                         Array &result) {
  std::vector<int64_t> list;
  if (op.getBegin())
    list = listZigzag(op.getBegin()->getExtent(), op.getBegin()->getChunks());
  forEachIndex(result.shape, [&](ArrayRef<int64_t> index) {
    int64_t key = index.back(), query = index.drop_back().back();
    query = list.empty() ? query : list[query];
    int64_t window = op.getWindow().value_or(query + 1);
    bool seen = op.getBidirectional() ? std::abs(query - key) < window
                                      : key <= query && query - key < window;
    result.at(index) = seen ? operands[0]->at(index)
                            : -std::numeric_limits<double>::infinity();
  });
}

/// From the op's description, not by the header that the op uses.
static void evaluateRule(nn::DropoutOp op, ArrayRef<Array *> operands,
                         Array &result) {
  double kept = 1.0 - op.getProbability().convertToDouble();
  forEachIndex(result.shape, [&](ArrayRef<int64_t> index) {
    auto hash = static_cast<uint32_t>(
        static_cast<int64_t>(operands[1]->at(index.take_front())));
    Index numbers(index);
    numbers.front() = op.getSite();
    for (int64_t number : numbers) {
      hash += 0x9e3779b9u * static_cast<uint32_t>(number);
      hash = (hash ^ hash >> 16) * 0x7feb352du;
      hash = (hash ^ hash >> 15) * 0x846ca68bu;
      hash ^= hash >> 16;
    }
    if (hash < kept * 4294967296.0)
      result.at(index) = operands[0]->at(index) / kept;
  });
}

static void evaluateRule(nn::RotateHalfOp op, ArrayRef<Array *> operands,
                         Array &result) {
  int64_t half = result.shape.back() / 2;
  forEachIndex(result.shape, [&](ArrayRef<int64_t> index) {
    Index from(index);
    bool first = index.back() < half;
    from.back() += first ? half : -half;
    double x = operands[0]->at(from);
    result.at(index) = first ? -x : x;
  });
}

static void evaluateRule(nn::IotaOp op, ArrayRef<Array *>, Array &result) {
  forEachIndex(result.shape, [&](ArrayRef<int64_t> index) {
    result.at(index) = index[op.getAlong()];
  });
}

static void evaluateRule(nn::RopeTableOp op, ArrayRef<Array *>, Array &result) {
  std::vector<float> data = op.getData(result.shape[0]);
  result.data.assign(data.begin(), data.end());
}

template <typename... OpTys>
static bool evaluateRules(Operation *op, ArrayRef<Array *> operands,
                          Array &result) {
  auto evaluate = [&](auto rule) {
    if (rule)
      evaluateRule(rule, operands, result);
    return bool(rule);
  };
  return (evaluate(dyn_cast<OpTys>(op)) || ...);
}

//===----------------------------------------------------------------------===//
// Interpreter
//===----------------------------------------------------------------------===//

void Interpreter::set(Value input, Array array) {
  inputs[input] = std::move(array);
  results.clear();
}

const Array &Interpreter::get(Value value) {
  void *key = value.getAsOpaquePointer();
  if (auto it = results.find(key); it != results.end())
    return it->second;
  if (auto it = inputs.find(value); it != inputs.end())
    return results[key] = it->second;
  evaluate(value.getDefiningOp());
  return results[key];
}

void Interpreter::evaluate(Operation *op) {
  SmallVector<Array *> operands;
  for (Value operand : op->getOperands())
    operands.push_back(const_cast<Array *>(&get(operand)));
  Array result = zerosFor(op->getResult(0));
  bool done =
      op->getNumResults() == 1 &&
      (evaluateRules<nn::MatmulOp, nn::BroadcastOp, nn::ReduceOp,
                     nn::EmbeddingOp, nn::EmbeddingGradOp, nn::PickOp,
                     nn::GroupedMatmulOp, nn::CausalMaskOp, nn::DropoutOp,
                     nn::RotateHalfOp, nn::ReorderOp, nn::IotaOp,
                     nn::RopeTableOp>(op, operands, result) ||
       evaluateElements(
           op, SmallVector<const Array *>(operands.begin(), operands.end()),
           result));
  if (done)
    results[op->getResult(0).getAsOpaquePointer()] = std::move(result);
  else
    evaluateDecomposition(op);
}

void Interpreter::evaluateDecomposition(Operation *op) {
  auto decomposable = cast<DecomposableOpInterface>(op);
  auto [it, isNew] = parts.try_emplace(op);
  if (isNew) {
    OpBuilder builder(op);
    it->second = decomposable.decompose(builder);
  }
  SmallVector<Value> values = it->second;
  for (auto [value, result] : llvm::zip_equal(values, op->getResults())) {
    Array array = get(value);
    results[result.getAsOpaquePointer()] = std::move(array);
  }
}
