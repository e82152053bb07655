//===- AttentionReference.h - Attention as the formulas say -----*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Writes out all scores, in double.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_TEST_UNIT_RUNTIME_ATTENTIONREFERENCE_H
#define PLAIT_TEST_UNIT_RUNTIME_ATTENTIONREFERENCE_H

#include "plait/Plan/Plan_generated.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>

namespace plait::test {

namespace fb = plan::fb;

using Numbers = std::vector<double>;

struct Shape {
  int64_t batch, heads, kvHeads, queries, keys, size;
  int64_t window = 0;
  bool causal = true;
  int64_t firstQuery = 0; // the position of query 0 among the keys
  double dropout = 0;     // the probability
  int64_t firstGroup = 0; // the index of key head 0 among all ranks'
  int64_t document = 0;   // positions of a document; 0: all are one
  int64_t chunks = 0;     // of queries in zig-zag order; 0: in their own
  double softCap = 0;     // 0: none
  bool sinks = false;     // one a head, sinkOf()

  /// The position of query i among the keys, from a list of the chunks.
  int64_t positionOf(int64_t i) const {
    i += firstQuery;
    if (!chunks)
      return i;
    std::vector<int64_t> order;
    for (int64_t first = 0, last = chunks - 1; first < last; ++first, --last) {
      order.push_back(first);
      order.push_back(last);
    }
    int64_t size = keys / chunks;
    return order[i / size] * size + i % size;
  }

  /// Where the document of a position begins; of sequence b the first one ends
  /// b positions early.
  int64_t startOf(int64_t b, int64_t position) const {
    return document
               ? std::max(int64_t(0), (position + b) / document * document - b)
               : 0;
  }
};

/// Of dropout.
inline constexpr uint32_t kSite = 5;
inline uint32_t keyOf(int64_t sequence) {
  return 0x89abcdefu + 77777u * uint32_t(sequence);
}

/// The sinks of some heads are above all scores, and those of others below.
inline double sinkOf(int64_t head) { return 1.5 * double(head % 3) - 1; }

/// Tensors are [batch][position][head][size], statistics [batch][head][query].
struct Tensors {
  Numbers q, k, v, o, stats, gradient, dq, dk, dv;
};

inline Numbers valuesOf(int64_t count, int salt) {
  Numbers values(count);
  for (int64_t i = 0; i < count; ++i)
    values[i] = double((i * 7919 + salt * 104729) % 1009) / 504.0 - 1.0;
  return values;
}

class Reference {
public:
  explicit Reference(const Shape &shape) : shape(shape) {}

  double scale() const { return 1.0 / std::sqrt(double(shape.size)); }
  int64_t at(int64_t b, int64_t row, int64_t head, bool isKey) const {
    int64_t rows = isKey ? shape.keys : shape.queries;
    int64_t heads = isKey ? shape.kvHeads : shape.heads;
    return ((b * rows + row) * heads + head) * shape.size;
  }
  bool sees(int64_t b, int64_t query, int64_t key) const {
    query = shape.positionOf(query);
    return (!shape.causal || key <= query) && key >= shape.startOf(b, query) &&
           (!shape.window ||
            (key > query - shape.window && key < query + shape.window));
  }
  double product(const Numbers &x, int64_t i, const Numbers &y,
                 int64_t j) const {
    double sum = 0;
    for (int64_t c = 0; c < shape.size; ++c)
      sum += x[i + c] * y[j + c];
    return sum;
  }

  /// Calls visit(b, h, g, i) for every row of scores.
  template <typename Visit> void forEachRow(Visit visit) const {
    for (int64_t b = 0; b < shape.batch; ++b)
      for (int64_t h = 0; h < shape.heads; ++h)
        for (int64_t i = 0; i < shape.queries; ++i)
          visit(b, h, h / (shape.heads / shape.kvHeads), i);
  }

  void forward(Tensors &t) const {
    t.o.assign(t.q.size(), 0);
    t.stats.assign(shape.batch * shape.heads * shape.queries, 0);
    forEachRow([&](int64_t b, int64_t h, int64_t g, int64_t i) {
      double sum = shape.sinks ? std::exp(sinkOf(h)) : 0;
      for (int64_t j = 0; j < shape.keys; ++j)
        sum += weight(t, b, h, g, i, j, 0);
      double &saved = t.stats[(b * shape.heads + h) * shape.queries + i];
      saved = std::log(sum);
      for (int64_t j = 0; j < shape.keys; ++j) {
        double p = weight(t, b, h, g, i, j, saved) * kept(b, h, i, j);
        for (int64_t c = 0; c < shape.size; ++c)
          t.o[at(b, i, h, false) + c] += p * t.v[at(b, j, g, true) + c];
      }
    });
  }

  void backward(Tensors &t) const {
    t.dq.assign(t.q.size(), 0);
    t.dk.assign(t.k.size(), 0);
    t.dv.assign(t.v.size(), 0);
    forEachRow([&](int64_t b, int64_t h, int64_t g, int64_t i) {
      double saved = t.stats[(b * shape.heads + h) * shape.queries + i];
      int64_t query = at(b, i, h, false);
      double mean = product(t.gradient, query, t.o, query);
      for (int64_t j = 0; j < shape.keys; ++j) {
        int64_t key = at(b, j, g, true);
        double p = weight(t, b, h, g, i, j, saved);
        double mask = kept(b, h, i, j);
        double dp = mask * product(t.gradient, query, t.v, key);
        double ds = p * (dp - mean) * scale() * slope(t, query, key);
        for (int64_t c = 0; c < shape.size; ++c) {
          t.dv[key + c] += mask * p * t.gradient[query + c];
          t.dq[query + c] += ds * t.k[key + c];
          t.dk[key + c] += ds * t.q[query + c];
        }
      }
    });
  }

  /// What dropout multiplies the softmax with, as nn.dropout describes it.
  double kept(int64_t b, int64_t h, int64_t i, int64_t j) const {
    if (!shape.dropout)
      return 1;
    int64_t shared = shape.heads / shape.kvHeads;
    uint32_t hash = keyOf(b);
    for (int64_t number : {int64_t(kSite), shape.firstGroup + h / shared,
                           h % shared, shape.positionOf(i), j}) {
      hash += 0x9e3779b9u * uint32_t(number);
      hash = (hash ^ hash >> 16) * 0x7feb352du;
      hash = (hash ^ hash >> 15) * 0x846ca68bu;
      hash ^= hash >> 16;
    }
    return hash < (1 - shape.dropout) * 4294967296.0 ? 1 / (1 - shape.dropout)
                                                     : 0;
  }

private:
  double weight(const Tensors &t, int64_t b, int64_t h, int64_t g, int64_t i,
                int64_t j, double shift) const {
    if (!sees(b, i, j))
      return 0;
    double score =
        scale() * product(t.q, at(b, i, h, false), t.k, at(b, j, g, true));
    if (shape.softCap)
      score = shape.softCap * std::tanh(score / shape.softCap);
    return std::exp(score - shift);
  }

  /// The slope of a soft cap.
  double slope(const Tensors &t, int64_t query, int64_t key) const {
    if (!shape.softCap)
      return 1;
    double bent =
        std::tanh(scale() * product(t.q, query, t.k, key) / shape.softCap);
    return 1 - bent * bent;
  }

  Shape shape;
};

inline Tensors makeTensors(const Shape &shape) {
  int64_t rows = shape.batch * shape.size;
  Tensors t;
  t.q = valuesOf(rows * shape.queries * shape.heads, 1);
  t.k = valuesOf(rows * shape.keys * shape.kvHeads, 2);
  t.v = valuesOf(rows * shape.keys * shape.kvHeads, 3);
  t.gradient = valuesOf(t.q.size(), 4);
  return t;
}

inline fb::AttentionStepT makeStep(const Shape &shape, fb::DType dtype,
                                   fb::AttentionKind kind) {
  fb::AttentionStepT step;
  step.kind = kind;
  step.dtype = dtype;
  step.batch = shape.batch;
  step.heads = shape.heads;
  step.kv_heads = shape.kvHeads;
  step.queries = shape.queries;
  step.keys = shape.keys;
  step.head_size = shape.size;
  auto strides = [&](int64_t rows, int64_t heads) {
    int64_t row = heads * shape.size;
    return std::vector<int64_t>{rows * row, row, shape.size};
  };
  step.q_strides = step.out_strides = strides(shape.queries, shape.heads);
  step.k_strides = step.v_strides = strides(shape.keys, shape.kvHeads);
  step.scale = float(Reference(shape).scale());
  step.causal = shape.causal;
  step.window = shape.window;
  step.chunks = shape.chunks;
  step.soft_cap = float(shape.softCap);
  if (shape.sinks && kind == fb::AttentionKind::Forward)
    step.sinks = std::make_unique<fb::Ref>(0, -1);
  if (shape.document)
    step.starts = std::make_unique<fb::Ref>(0, -1);
  if (shape.dropout) {
    step.dropout = std::make_unique<fb::AttentionDropoutT>();
    step.dropout->keys = std::make_unique<fb::Ref>(0, -1);
    step.dropout->probability = shape.dropout;
    step.dropout->site = kSite;
  }
  return step;
}

/// `tolerance` is relative to the largest number.
inline void expectNear(const Numbers &found, const Numbers &expected,
                       double tolerance, const char *what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  double largest = 1;
  for (double x : expected)
    largest = std::max(largest, std::abs(x));
  for (size_t i = 0; i < found.size(); ++i)
    ASSERT_NEAR(found[i], expected[i], tolerance * largest)
        << what << ", element " << i;
}

} // namespace plait::test

#endif // PLAIT_TEST_UNIT_RUNTIME_ATTENTIONREFERENCE_H
