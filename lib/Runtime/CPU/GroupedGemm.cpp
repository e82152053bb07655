//===- GroupedGemm.cpp - GEMMs of rows with matrices of their own ---------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A task is a block of the result: some rows of one expert and some columns, or
// a part of the matrix of one expert. Threads take tasks in turn, since experts
// have different numbers of rows.
//
//===----------------------------------------------------------------------===//

#include "GroupedGemm.h"

#include "Team.h"
#include "plait/Support/BFloat16.h"

#include <algorithm>
#include <type_traits>

using namespace plait;
using namespace plait::runtime;
namespace fb = plait::plan::fb;

/// Rows and columns of a block, and how much of a sum is copied at a time:
/// multiples of what oneDNN computes at once. Copies are read so many times
/// that they cost little, and are 7 MiB a thread at most.
static constexpr int64_t kBlock = 384, kDeepest = 2048;

/// The most rows that oneDNN for AVX2 multiplies as it does fewer ones, by a
/// plain and by a transposed matrix; more it halves. And how many more than
/// there are it is given at most.
static constexpr int64_t kTogether = 72, kTogetherTransposed = 144,
                         kPadding = 15;

static int64_t countBlocks(int64_t extent) {
  return (extent + kBlock - 1) / kBlock;
}

/// The columns [column, column + count) of rows of `width` elements, one below
/// the other; `rowOf` says which row of the source each is.
template <typename In, typename RowOf>
static void gather(const In *source, int64_t width, int64_t column,
                   int64_t count, int64_t rows, RowOf rowOf, float *target) {
  for (int64_t row = 0; row < rows; ++row)
    std::copy_n(source + rowOf(row) * width + column, count,
                target + row * spreadRows(count));
}

/// Everything that depends on sizes alone is allocated here.
uint32_t GroupedGemmLibrary::prepare(const fb::GroupedGemmStep &step,
                                     int64_t first) {
  Step made;
  step.UnPackTo(&made.shape);
  made.first = first;
  auto grow = [](auto &list, int64_t size) {
    list.resize(std::max<size_t>(list.size(), size));
  };
  grow(order, step.rows());
  grow(begins, step.experts() + 2);
  blocks.reserve(step.rows() / kBlock + step.experts());
  bool makes = step.kind() == fb::GroupedKind::Matrices;
  int64_t rows = std::min(step.rows(), kBlock) + kPadding;
  int64_t deep = std::min(step.k(), makes ? kBlock : kDeepest);
  int64_t wide = std::min(step.n(), kBlock);
  rooms.resize(threads);
  for (Room &room : rooms) {
    grow(room.a, rows * spreadRows(deep));
    // Rows that meet, or a part of a matrix, as it lies: widened, if need be.
    grow(room.b,
         makes ? rows * spreadRows(wide)
               : std::max(deep * spreadRows(wide), wide * spreadRows(deep)));
    grow(room.c, std::max(rows, deep) * wide);
  }
  steps.push_back(std::move(made));
  return static_cast<uint32_t>(steps.size() - 1);
}

/// A counting sort, which keeps the order of the rows of one expert.
void GroupedGemmLibrary::sort(const Step &step, const int32_t *ids) {
  int64_t experts = step.shape.experts, limit = step.shape.limit;
  // Rows of none are those of expert number `experts`.
  auto expertOf = [&](int64_t row) {
    int64_t expert = ids[row] - step.first;
    bool isHere =
        0 <= expert && expert < experts && (!limit || ids[row] < limit);
    return isHere ? expert : experts;
  };
  std::fill_n(begins.begin(), experts + 2, 0);
  for (int64_t row = 0; row < step.shape.rows; ++row)
    ++begins[expertOf(row) + 1];
  for (int64_t expert = 0; expert <= experts; ++expert)
    begins[expert + 1] += begins[expert];
  // Each begins[expert] is where its next row goes, and so ends where the next
  // expert begins: moved back behind the loop.
  for (int64_t row = 0; row < step.shape.rows; ++row)
    order[begins[expertOf(row)]++] = static_cast<int32_t>(row);
  std::copy_backward(begins.begin(), begins.begin() + experts + 1,
                     begins.begin() + experts + 2);
  begins[0] = 0;
}

void GroupedGemmLibrary::cutBlocks(const Step &step) {
  blocks.clear();
  for (int64_t expert = 0; expert < step.shape.experts; ++expert)
    for (int64_t begin = begins[expert]; begin < begins[expert + 1];
         begin += kBlock)
      blocks.push_back(
          {expert, begin, std::min(begin + kBlock, begins[expert + 1])});
}

/// Calls work(task, room), which returns what oneDNN does.
template <typename Work>
Status GroupedGemmLibrary::forEachTask(int64_t tasks, Work work) {
  int64_t parts = std::min<int64_t>(threads, tasks);
  std::vector<dnnl_status_t> results(parts, dnnl_success);
  parallelFor(threads, parts, 1, [&](int64_t from, int64_t to) {
    for (int64_t part = from; part < to; ++part)
      for (int64_t task = part; task < tasks && results[part] == dnnl_success;
           task += parts)
        results[part] = work(task, rooms[part]);
  });
  for (dnnl_status_t result : results)
    PLAIT_RETURN_IF_ERROR(checkDnnl(result));
  return Status::success();
}

/// Sums in place of what is there, or with `add` to it, rounded once.
template <typename Out>
static void store(const float *sums, int64_t count, bool add, Out *target) {
  for (int64_t i = 0; i < count; ++i)
    target[i] = Out(add ? float(target[i]) + sums[i] : sums[i]);
}

/// A part of a matrix of the step: where it is, or with `copied`, or if it is
/// narrow, a copy of it in f32.
template <typename In>
GroupedGemmLibrary::Part
GroupedGemmLibrary::takePart(const fb::GroupedGemmStepT &shape,
                             const In *matrix, const Extent &part, bool copied,
                             std::vector<float> &room) {
  auto [k, depth, n, width] = part;
  int64_t stride = shape.transposed ? shape.k : shape.n;
  int64_t row = shape.transposed ? n : k, column = shape.transposed ? k : n;
  if constexpr (std::is_same_v<In, float>)
    if (!copied)
      return {matrix + row * stride + column, stride, shape.transposed};
  int64_t height = shape.transposed ? width : depth;
  int64_t across = shape.transposed ? depth : width;
  gather(
      matrix, stride, column, across, height,
      [=](int64_t i) { return row + i; }, room.data());
  return {room.data(), spreadRows(across), shape.transposed};
}

/// oneDNN sums up the last rows, if they are few, in another order. So what a
/// row becomes would depend on how many others its expert has, which ranks of
/// experts change: rows are multiplied as if there were some more. AVX2: it
/// computes 6 rows at a time, or 4 or 5, and fewer than these otherwise.
/// AVX-512: 8.
int64_t GroupedGemmLibrary::padRows(int64_t rows) const {
  if (!readsInPlace)
    return std::max<int64_t>(16, (rows + 7) / 8 * 8);
  int64_t rest = rows % 6;
  return 0 < rest && rest < 4 ? rows + 4 - rest : rows;
}

/// The product of the rows in `room.a` and a part of a matrix, in `room.c`.
dnnl_status_t GroupedGemmLibrary::multiplyBlock(int64_t rows, int64_t depth,
                                                int64_t width, Part part,
                                                bool add, Room &room) const {
  int64_t most = part.transposed ? kTogetherTransposed : kTogether;
  if (!readsInPlace)
    most = kBlock;
  dnnl_status_t status = dnnl_success;
  for (int64_t row = 0; row < rows && status == dnnl_success; row += most)
    status = dnnl_sgemm('N', part.transposed ? 'T' : 'N',
                        padRows(std::min(most, rows - row)), width, depth, 1.0f,
                        room.a.data() + row * spreadRows(depth),
                        spreadRows(depth), part.data, part.stride,
                        add ? 1.0f : 0.0f, room.c.data() + row * width, width);
  return status;
}

/// Some columns of the rows of a block: the sum in parts along k, into a copy
/// of which each row then goes to its place.
template <typename In, typename Out>
dnnl_status_t GroupedGemmLibrary::multiplyRows(const Step &step, const In *a,
                                               const In *b, Out *c, bool add,
                                               int64_t task, Room &room) {
  const fb::GroupedGemmStepT &shape = step.shape;
  int64_t cuts = countBlocks(shape.n);
  const Block &block = blocks[task / cuts];
  int64_t column = task % cuts * kBlock;
  int64_t width = std::min(kBlock, shape.n - column);
  int64_t rows = block.end - block.begin;
  const int32_t *numbers = order.data() + block.begin;
  const In *matrix = b + block.expert * shape.k * shape.n;
  auto rowOf = [&](int64_t row) { return numbers[row] / shape.repeat; };
  // As of a plain second operand in FloatGemm.
  bool copied =
      readsInPlace && !shape.transposed && isWorthCopying(shape.n, rows);
  for (int64_t k = 0; k < shape.k; k += kDeepest) {
    int64_t depth = std::min(kDeepest, shape.k - k);
    gather(a, shape.k, k, depth, rows, rowOf, room.a.data());
    // What is there of other rows may be no number, which costs time.
    std::fill_n(room.a.data() + rows * spreadRows(depth),
                kPadding * spreadRows(depth), 0.0f);
    Part part =
        takePart(shape, matrix, {k, depth, column, width}, copied, room.b);
    dnnl_status_t status = multiplyBlock(rows, depth, width, part, k > 0, room);
    if (status != dnnl_success)
      return status;
  }
  for (int64_t row = 0; row < rows; ++row)
    store(room.c.data() + row * width, width, add,
          c + numbers[row] * shape.n + column);
  return dnnl_success;
}

/// The sum over the rows of an expert, block by block, added to what is there
/// if it has `begun`. Zeros where there are no rows.
template <typename In>
dnnl_status_t
GroupedGemmLibrary::sumRows(const Step &step, const In *a, const In *b,
                            int64_t expert, const Extent &part, bool begun,
                            float *sums, int64_t stride, Room &room) {
  const fb::GroupedGemmStepT &shape = step.shape;
  int64_t height = shape.transposed ? part.width : part.depth;
  int64_t across = shape.transposed ? part.depth : part.width;
  const std::vector<float> &left = shape.transposed ? room.b : room.a;
  const std::vector<float> &right = shape.transposed ? room.a : room.b;
  for (int64_t begin = begins[expert]; begin < begins[expert + 1];
       begin += kBlock) {
    int64_t rows = std::min(kBlock, begins[expert + 1] - begin);
    const int32_t *numbers = order.data() + begin;
    gather(
        a, shape.k, part.k, part.depth, rows,
        [&](int64_t row) { return numbers[row] / shape.repeat; },
        room.a.data());
    gather(
        b, shape.n, part.n, part.width, rows,
        [&](int64_t row) { return int64_t(numbers[row]); }, room.b.data());
    dnnl_status_t status = dnnl_sgemm(
        'T', 'N', height, across, rows, 1.0f, left.data(), spreadRows(height),
        right.data(), spreadRows(across), begun ? 1.0f : 0.0f, sums, stride);
    if (status != dnnl_success)
      return status;
    begun = true;
  }
  for (int64_t row = 0; !begun && row < height; ++row)
    std::fill_n(sums + row * stride, across, 0.0f);
  return dnnl_success;
}

/// A part of the matrix of one expert. Of f32 it is summed up in C, else in a
/// room, from which it is rounded once.
template <typename In, typename Out>
dnnl_status_t GroupedGemmLibrary::multiplyMatrix(const Step &step, const In *a,
                                                 const In *b, Out *c, bool add,
                                                 int64_t task, Room &room) {
  const fb::GroupedGemmStepT &shape = step.shape;
  int64_t cutsK = countBlocks(shape.k), cutsN = countBlocks(shape.n);
  int64_t expert = task / (cutsK * cutsN);
  int64_t k = task / cutsN % cutsK * kBlock, n = task % cutsN * kBlock;
  Extent part = {k, std::min(kBlock, shape.k - k), n,
                 std::min(kBlock, shape.n - n)};
  int64_t stride = shape.transposed ? shape.k : shape.n;
  Out *target = c + expert * shape.k * shape.n +
                (shape.transposed ? n * stride + k : k * stride + n);
  if constexpr (std::is_same_v<Out, float>)
    return sumRows(step, a, b, expert, part, add, target, stride, room);
  int64_t height = shape.transposed ? part.width : part.depth;
  int64_t across = shape.transposed ? part.depth : part.width;
  dnnl_status_t status = sumRows(step, a, b, expert, part, /*begun=*/false,
                                 room.c.data(), across, room);
  for (int64_t row = 0; row < height && status == dnnl_success; ++row)
    store(room.c.data() + row * across, across, add, target + row * stride);
  return status;
}

/// 1. Sort.
/// 2. Matrices: all parts of all experts, those without rows too.
/// 3. Rows: those of experts in blocks, and zeros for those of none.
template <typename In, typename Out>
Status GroupedGemmLibrary::runTyped(const Step &step,
                                    const GroupedGemmOperands &operands,
                                    bool add) {
  const fb::GroupedGemmStepT &shape = step.shape;
  auto *a = reinterpret_cast<const In *>(operands.a);
  auto *b = reinterpret_cast<const In *>(operands.b);
  auto *c = reinterpret_cast<Out *>(operands.c);
  // 1.
  sort(step, reinterpret_cast<const int32_t *>(operands.ids));
  // 2.
  if (shape.kind == fb::GroupedKind::Matrices)
    return forEachTask(shape.experts * countBlocks(shape.k) *
                           countBlocks(shape.n),
                       [&](int64_t task, Room &room) {
                         return multiplyMatrix(step, a, b, c, add, task, room);
                       });
  // 3.
  cutBlocks(step);
  for (int64_t place = begins[shape.experts]; !add && place < shape.rows;
       ++place)
    std::fill_n(c + order[place] * shape.n, shape.n, Out(0.0f));
  return forEachTask(int64_t(blocks.size()) * countBlocks(shape.n),
                     [&](int64_t task, Room &room) {
                       return multiplyRows(step, a, b, c, add, task, room);
                     });
}

Status GroupedGemmLibrary::run(uint32_t prepared,
                               const GroupedGemmOperands &operands, bool add) {
  const Step &step = steps[prepared];
  if (step.shape.dtype == fb::DType::F32)
    return runTyped<float, float>(step, operands, add);
  if (step.shape.c_dtype == fb::DType::F32)
    return runTyped<BFloat16, float>(step, operands, add);
  return runTyped<BFloat16, BFloat16>(step, operands, add);
}
