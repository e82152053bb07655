//===- Attention.cpp - Attention by blocks of rows ------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A block is 64 queries of one head against all keys that any of them sees, so
// that memory for scores grows with the keys alone. Two GEMMs forward and five
// backward are oneDNN's, what is between them is RowMath's. Softmax is taken
// over whole rows, so that there is no running maximum to correct.
//
// Operands lie in the arena with the strides of the plan, [sequence, position,
// head, element]. Memory for scores is a room for each thread, allocated when
// the plan is loaded; a Worker takes from it like from a stack and starts over
// for each block.
//
//===----------------------------------------------------------------------===//

#include "Attention.h"

#include "RowMath.h"
#include "Team.h"
#include "plait/Support/ChunkOrder.h"
#include "plait/Support/DropoutMask.h"

#include <algorithm>
#include <cmath>
#include <dnnl.hpp>

using namespace plait;
using namespace plait::runtime;

namespace {

/// Queries whose scores exist at once. One block of scores a thread is what
/// attention needs beside its operands.
constexpr int64_t blockRows = 64;

/// Rows of one head as f32. `stride` in floats; elements of a row are
/// contiguous.
struct Rows {
  float *data = nullptr;
  int64_t stride = 0;

  float *operator[](int64_t row) const { return data + row * stride; }
};

/// Some queries of consecutive positions, and the keys that one of them sees.
/// `keyBegin` and `keyEnd` bound what all its queries see: within it rows may
/// see less.
struct Block {
  int64_t begin, end;       // queries
  int64_t keyBegin, keyEnd; // keys

  int64_t rows() const { return end - begin; }
  int64_t keys() const { return keyEnd - keyBegin; }
};

/// The work of one thread, for elements of type T in memory. Floats are used
/// where they lie, narrower ones through copies.
template <typename T> class Worker {
public:
  Worker(const fb::AttentionStepT &step, AttentionBegin first,
         const AttentionOperands &operands, float *room)
      : step(step), first(first), order{step.keys, step.chunks},
        operands(operands), room(room) {}

  /// `head` is a query head; `group` below is a key head, with all its query
  /// heads.
  void forward(int64_t sequence, int64_t head);
  void backward(int64_t sequence, int64_t group);
  dnnl_status_t status = dnnl_success;

private:
  /// Consecutive rows of one head.
  struct Span {
    int64_t sequence, head, row, count;
  };
  /// The same of one tensor, as they lie in memory.
  struct Stored {
    T *data;
    int64_t count, stride;

    T *operator[](int64_t row) const { return data + row * stride; }
  };
  static Stored at(const std::byte *base, const std::vector<int64_t> &strides,
                   const Span &span) {
    auto *data = reinterpret_cast<T *>(const_cast<std::byte *>(base));
    return {data + span.sequence * strides[0] + span.row * strides[1] +
                span.head * strides[2],
            span.count, strides[1]};
  }
  /// [sequence, query head, query], contiguous over queries.
  float *statistics(int64_t sequence, int64_t row, int64_t head) const {
    return reinterpret_cast<float *>(operands.stats) +
           (sequence * step.heads + head) * step.queries + row;
  }

  float *take(int64_t count) {
    room += count;
    return room - count;
  }
  /// Returns where rows like `stored` can be computed with. In f32 computing
  /// happens in place, and load() and store() do nothing.
  Rows place(Stored stored) {
    if constexpr (std::is_same_v<T, float>)
      return {stored.data, stored.stride};
    return {take(stored.count * step.head_size), step.head_size};
  }
  /// The same, holding what is there.
  Rows load(Stored source) {
    Rows rows = place(source);
    if constexpr (!std::is_same_v<T, float>)
      for (int64_t row = 0; row < source.count; ++row)
        widen(source[row], rows[row], step.head_size);
    return rows;
  }
  /// Moves what was computed at `rows` to `target`, for which they were placed.
  void store(Rows rows, Stored target) {
    if constexpr (!std::is_same_v<T, float>)
      for (int64_t row = 0; row < target.count; ++row)
        narrow(rows[row], target[row], step.head_size);
  }

  /// Returns what `query` of the rank is among the keys.
  int64_t positionOf(int64_t query) const {
    return order.getPosition(first.query + query);
  }
  Block blockAt(int64_t sequence, int64_t begin) const;
  std::pair<int64_t, int64_t> seenBy(int64_t sequence, int64_t query) const;
  Rows weigh(const Block &block, Rows q, Rows k, int64_t sequence, int64_t head,
             float *sums, Rows slopes);
  void sum(float *first, int64_t count, int64_t head, float &sum, float &saved);
  void drop(const Block &block, int64_t sequence, int64_t head, Rows rows);
  void backwardBlock(const Block &block, int64_t sequence, int64_t head, Rows k,
                     Rows v, Rows dk, Rows dv);
  void multiply(char transA, char transB, int64_t m, int64_t n, int64_t k,
                float alpha, Rows a, Rows b, float beta, Rows c);

  const fb::AttentionStepT &step;
  AttentionBegin first;
  ChunkOrder order; // of the queries of all ranks
  const AttentionOperands &operands;
  float *room;
};

} // namespace

/// The keys that a query sees, as a half-open range. Positions are those of the
/// whole sequence: `first.query` is where the rank's part of it begins. A query
/// sees itself whatever the starts are.
template <typename T>
std::pair<int64_t, int64_t> Worker<T>::seenBy(int64_t sequence,
                                              int64_t query) const {
  int64_t own = positionOf(query);
  int64_t reach = step.causal ? 1 : step.window ? step.window : step.keys;
  int64_t end = std::min(step.keys, own + reach);
  int64_t begin = step.window ? own + 1 - step.window : 0;
  if (operands.starts) {
    auto *starts = reinterpret_cast<const int32_t *>(operands.starts);
    int64_t start = starts[sequence * step.queries + query];
    begin = std::max(begin, std::min(start, own));
  }
  return {std::clamp<int64_t>(begin, 0, end), end};
}

/// The hull of what its queries see: keys outside of it are never multiplied,
/// those inside which a query does not see are set to 0.
///
/// A block ends where positions jump: the keys before the jump are not seen
/// from behind it, or the other way round.
template <typename T>
Block Worker<T>::blockAt(int64_t sequence, int64_t begin) const {
  int64_t end = std::min(begin + blockRows, step.queries);
  end = begin + order.getRun(first.query + begin, first.query + end);
  auto [keyBegin, keyEnd] = seenBy(sequence, begin);
  for (int64_t query = begin + 1; query < end; ++query) {
    auto seen = seenBy(sequence, query);
    keyBegin = std::min(keyBegin, seen.first);
    keyEnd = std::max(keyEnd, seen.second);
  }
  return {begin, end, keyBegin, keyEnd};
}

/// Row-major C = alpha op(A) op(B) + beta C. After a failure nothing more is
/// computed; who runs the Worker asks for it.
template <typename T>
void Worker<T>::multiply(char transA, char transB, int64_t m, int64_t n,
                         int64_t k, float alpha, Rows a, Rows b, float beta,
                         Rows c) {
  if (status == dnnl_success)
    status = dnnl_sgemm(transA, transB, m, n, k, alpha, a.data, a.stride,
                        b.data, b.stride, beta, c.data, c.stride);
}

/// Exponentiates the scores of a row that a query sees, less the largest of
/// them, and adds them up; a sink is one of them that is not stored.
template <typename T>
void Worker<T>::sum(float *first, int64_t count, int64_t head, float &sum,
                    float &saved) {
  float top = maximum(first, count), sink = 0;
  if (operands.sinks) {
    sink = reinterpret_cast<const float *>(operands.sinks)[head];
    top = std::max(top, sink);
  }
  sum = exponentiate(first, count, top);
  if (operands.sinks)
    sum += std::exp(sink - top);
  saved = top + std::log(sum);
}

/// exp(S - shift) for the scores S of a block, 0 where a key is not seen.
/// Backward the shift is the saved statistics; forward it is the largest score
/// of a row, and `sums` gets the sum of each row. A row of the statistics is
/// written forward.
/// 1. Scores of the block, scaled in the GEMM, and capped; `slopes`, if there
/// are
///    any, get the slopes of that.
/// 2. Each row is exponentiated over the keys it sees; the largest score is
///    taken off first, so that no power overflows. log Σ exp is what backward
///    needs, one float a row.
/// 3. What the row does not see becomes 0, so that GEMMs may run over the hull.
template <typename T>
Rows Worker<T>::weigh(const Block &block, Rows q, Rows k, int64_t sequence,
                      int64_t head, float *sums, Rows slopes) {
  int64_t keys = block.keys();
  // 1. Q Kᵀ.
  Rows scores = {take(block.rows() * keys), keys};
  multiply('N', 'T', block.rows(), keys, step.head_size, step.scale, q,
           {k[block.keyBegin], k.stride}, 0, scores);
  if (step.soft_cap != 0)
    softCap(scores.data, block.rows() * keys, step.soft_cap, slopes.data);
  for (int64_t row = 0; row < block.rows(); ++row) {
    // Within the block's keys, by blockAt().
    auto [begin, end] = seenBy(sequence, block.begin + row);
    float *first = scores[row] + (begin - block.keyBegin);
    float *last = scores[row] + (end - block.keyBegin);
    float *saved = statistics(sequence, block.begin + row, head);
    // 2. Powers, and their sum.
    if (sums)
      sum(first, last - first, head, sums[row], *saved);
    else
      exponentiate(first, last - first, *saved);
    // 3. Hidden keys.
    std::fill(scores[row], first, 0.0f);
    std::fill(last, scores[row] + keys, 0.0f);
  }
  return scores;
}

/// Rows of a block like its scores go through the softmax's dropout, if there
/// is one. Only the elements of keys that a query sees mean something
/// afterwards. The hash is extended by site, key head, query head of the group,
/// query and key, all counted in the whole tensor: ranks and backward draw the
/// same mask.
template <typename T>
void Worker<T>::drop(const Block &block, int64_t sequence, int64_t head,
                     Rows rows) {
  if (!step.dropout)
    return;
  int64_t shared = step.heads / step.kv_heads;
  double probability = step.dropout->probability;
  uint64_t threshold = getMaskThreshold(probability);
  float scale = getMaskScale(probability);
  MaskWords words;
  auto extend = [&](uint32_t hash, int64_t number) {
    return extendMaskHash(words, hash, static_cast<uint32_t>(number));
  };
  uint32_t hash =
      reinterpret_cast<const uint32_t *>(operands.dropoutKeys)[sequence];
  for (int64_t number : {int64_t(step.dropout->site),
                         first.group + head / shared, head % shared})
    hash = extend(hash, number);
  for (int64_t row = 0; row < block.rows(); ++row)
    runtime::drop(rows[row], block.keys(),
                  extend(hash, positionOf(block.begin + row)),
                  static_cast<uint32_t>(block.keyBegin), threshold, scale);
}

/// One head of one sequence, by blocks of queries: O = softmax(scale Q Kᵀ) V.
/// Rows are divided by their sums after the product with V, over head_size
/// elements rather than over all keys. The sums are those before dropout, which
/// applies to normalised weights. K and V of the head are widened once, for all
/// blocks of queries.
template <typename T> void Worker<T>::forward(int64_t sequence, int64_t head) {
  int64_t group = head / (step.heads / step.kv_heads);
  Span all = {sequence, group, 0, step.keys};
  Rows k = load(at(operands.k, step.k_strides, all));
  Rows v = load(at(operands.v, step.v_strides, all));
  float *start = room;
  for (int64_t begin = 0; begin < step.queries;) {
    room = start;
    Block block = blockAt(sequence, begin);
    int64_t rows = block.rows();
    Span span = {sequence, head, begin, rows};
    begin = block.end;
    Rows q = load(at(operands.q, step.q_strides, span));
    Stored target = at(operands.o, step.out_strides, span);
    Rows o = place(target);
    // Divided by at the end, when the row has head_size elements.
    float sums[blockRows];
    Rows weights = weigh(block, q, k, sequence, head, sums, {});
    drop(block, sequence, head, weights);
    multiply('N', 'N', rows, step.head_size, block.keys(), 1, weights,
             {v[block.keyBegin], v.stride}, 0, o);
    for (int64_t row = 0; row < rows; ++row)
      scale(o[row], step.head_size, 1.0f / sums[row]);
    store(o, target);
  }
}

/// Computes, with P = exp(S - stats), dP = dO Vᵀ and D = rows of dO · O:
/// dV += Pᵀ dO, dS = P (dP - D), dQ = scale dS K, dK += scale dSᵀ Q. With
/// dropout, M times: dV += (M P)ᵀ dO, dP = M (dO Vᵀ), and D as it is. With a
/// soft cap, dS times its slopes. Sinks are in the statistics.
/// 1. Weights P again, from the statistics.
/// 2. dO Vᵀ, and with dropout the mask M, drawn by dropping ones.
/// 3. dV, with the weights that forward multiplied with.
/// 4. dS, which overwrites dP. D = dO · O holds with dropout as well, as O is
///    what came out of it.
/// 5. dQ, complete here, and dK, added up over blocks and heads.
template <typename T>
void Worker<T>::backwardBlock(const Block &block, int64_t sequence,
                              int64_t head, Rows k, Rows v, Rows dk, Rows dv) {
  int64_t rows = block.rows(), keys = block.keys(), size = step.head_size;
  Span span = {sequence, head, block.begin, rows};
  Rows q = load(at(operands.q, step.q_strides, span));
  Rows o = load(at(operands.o, step.out_strides, span));
  Rows gradient = load(at(operands.gradient, step.out_strides, span));
  Stored target = at(operands.dq, step.q_strides, span);
  Rows dq = place(target);
  auto from = [&](Rows tensor) {
    return Rows{tensor[block.keyBegin], tensor.stride};
  };
  // 1. P.
  Rows slopes;
  if (step.soft_cap != 0)
    slopes = {take(rows * keys), keys};
  Rows weights = weigh(block, q, k, sequence, head, nullptr, slopes);
  Rows ds = {take(rows * keys), keys}, kept = weights;
  // 2. dP.
  multiply('N', 'T', rows, keys, size, 1, gradient, from(v), 0, ds);
  if (step.dropout) {
    kept = {take(rows * keys), keys};
    std::fill_n(kept.data, rows * keys, 1.0f);
    drop(block, sequence, head, kept);
    runtime::multiply(ds.data, kept.data, rows * keys);
    runtime::multiply(kept.data, weights.data, rows * keys);
  }
  // 3. dV += Pᵀ dO.
  multiply('T', 'N', keys, size, rows, 1, kept, gradient, 1, from(dv));
  // 4. dS.
  for (int64_t row = 0; row < rows; ++row)
    runtime::weigh(ds[row], weights[row], keys,
                   dot(gradient[row], o[row], size));
  if (slopes.data)
    runtime::multiply(ds.data, slopes.data, rows * keys);
  // 5. dQ and dK.
  multiply('N', 'N', rows, size, keys, step.scale, ds, from(k), 0, dq);
  multiply('T', 'N', keys, size, rows, step.scale, ds, q, 1, from(dk));
  store(dq, target);
}

/// dK and dV begin as zeros: blocks add to the rows that they see.
template <typename T>
void Worker<T>::backward(int64_t sequence, int64_t group) {
  Span all = {sequence, group, 0, step.keys};
  Rows k = load(at(operands.k, step.k_strides, all));
  Rows v = load(at(operands.v, step.v_strides, all));
  Stored targetK = at(operands.dk, step.k_strides, all);
  Stored targetV = at(operands.dv, step.v_strides, all);
  Rows dk = place(targetK), dv = place(targetV);
  for (int64_t row = 0; row < step.keys; ++row) {
    std::fill_n(dk[row], step.head_size, 0.0f);
    std::fill_n(dv[row], step.head_size, 0.0f);
  }
  float *start = room;
  // A group of query heads shares dK and dV: one thread adds them up, in the
  // order of the heads, however many threads there are.
  int64_t shared = step.heads / step.kv_heads;
  for (int64_t head = group * shared; head < (group + 1) * shared; ++head)
    for (int64_t begin = 0; begin < step.queries;) {
      room = start;
      Block block = blockAt(sequence, begin);
      backwardBlock(block, sequence, head, k, v, dk, dv);
      begin = block.end;
    }
  store(dk, targetK);
  store(dv, targetV);
}

/// The floats that a Worker takes at most. Forward a block of scores, backward
/// two, and one more for each of dropout and a soft cap; where elements are not
/// floats, copies of the rows as well. Each take() of a Worker is counted here.
static int64_t roomFor(const fb::AttentionStepT &step) {
  bool backward = step.kind == fb::AttentionKind::Backward;
  int64_t rows = std::min(blockRows, step.queries);
  int64_t blocks = backward ? 2 + bool(step.dropout) + (step.soft_cap != 0) : 1;
  int64_t room = rows * step.keys * blocks;
  if (step.dtype != fb::DType::F32)
    room += step.head_size *
            (backward ? 4 * step.keys + 4 * rows : 2 * step.keys + 2 * rows);
  return room;
}

/// Rooms are as large as the largest step needs: steps run one after the other.
uint32_t AttentionLibrary::prepare(const fb::AttentionStep &step,
                                   AttentionBegin begin) {
  Prepared &prepared = steps.emplace_back();
  step.UnPackTo(&prepared.step);
  prepared.begin = begin;
  rooms.resize(threads);
  results.resize(threads, Status::success());
  for (std::vector<float> &room : rooms)
    room.resize(std::max<size_t>(room.size(), roomFor(prepared.step)));
  return static_cast<uint32_t>(steps.size() - 1);
}

/// Heads [begin, end) of all sequences' heads. A Worker for each head, on the
/// same room.
template <typename T>
static dnnl_status_t compute(const fb::AttentionStepT &step,
                             AttentionBegin first,
                             const AttentionOperands &operands, int64_t begin,
                             int64_t end, float *room) {
  bool backward = step.kind == fb::AttentionKind::Backward;
  int64_t heads = backward ? step.kv_heads : step.heads;
  for (int64_t index = begin; index < end; ++index) {
    Worker<T> worker(step, first, operands, room);
    if (backward)
      worker.backward(index / heads, index % heads);
    else
      worker.forward(index / heads, index % heads);
    if (worker.status != dnnl_success)
      return worker.status;
  }
  return dnnl_success;
}

/// Parts are cut here and not by parallelFor(), since each needs a room of its
/// own.
Status AttentionLibrary::run(uint32_t prepared,
                             const AttentionOperands &operands) {
  const auto &[step, first] = steps[prepared];
  bool backward = step.kind == fb::AttentionKind::Backward;
  // Backward an item is a key head with its whole group, forward a query head:
  // no two items write to the same place.
  int64_t items = step.batch * (backward ? step.kv_heads : step.heads);
  int64_t parts = std::min<int64_t>(threads, items);
  auto work =
      step.dtype == fb::DType::BF16 ? compute<BFloat16> : compute<float>;
  std::fill(results.begin(), results.end(), Status::success());
  parallelFor(threads, parts, 1,
              [&, &step = step, begin = first](int64_t from, int64_t to) {
                for (int64_t part = from; part < to; ++part) {
                  dnnl_status_t status =
                      work(step, begin, operands, items * part / parts,
                           items * (part + 1) / parts, rooms[part].data());
                  if (status != dnnl_success)
                    results[part] = fail("oneDNN failed with status ", status);
                }
              });
  for (const Status &result : results)
    PLAIT_RETURN_IF_ERROR(result);
  return Status::success();
}
