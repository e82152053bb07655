//===- GroupedCases.h - Grouped GEMMs against sums in double ----*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What the schema says of a grouped GEMM, for everything that computes one.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_TEST_UNIT_RUNTIME_GROUPEDCASES_H
#define PLAIT_TEST_UNIT_RUNTIME_GROUPEDCASES_H

#include "plait/Plan/Plan_generated.h"
#include "plait/Support/BFloat16.h"
#include "plait/Support/Status.h"

#include <cmath>
#include <functional>
#include <gtest/gtest.h>
#include <random>
#include <span>

namespace plait::test {

namespace fb = plait::plan::fb;

struct GroupedSizes {
  int64_t rows, repeat, experts, k, n;
};

/// How tokens choose: anything, all one expert, or none that is here.
enum class Choice { Any, One, None };

/// The tensors of a step.
struct GroupedMemory {
  std::span<std::byte> a, b, ids, c;
};

/// Computes a step on a rank whose first expert is the number.
using MultiplyGroups =
    std::function<Status(const fb::GroupedGemmStep &step, int64_t first,
                         const GroupedMemory &memory, bool add)>;

/// A step with drawn operands.
template <typename In, typename Out> class GroupedTrial {
public:
  GroupedTrial(GroupedSizes sizes, fb::GroupedKind kind, bool transposed,
               Choice choice)
      : generator(sizes.rows + sizes.k) {
    shape.kind = kind;
    shape.rows = sizes.rows, shape.repeat = sizes.repeat;
    shape.experts = sizes.experts, shape.k = sizes.k, shape.n = sizes.n;
    shape.transposed = transposed;
    shape.dtype = getType<In>(), shape.c_dtype = getType<Out>();
    int64_t matrices = sizes.experts * sizes.k * sizes.n;
    bool makes = kind == fb::GroupedKind::Matrices;
    draw(a, sizes.rows / sizes.repeat * sizes.k);
    draw(b, makes ? sizes.rows * sizes.n : matrices);
    draw(c, makes ? matrices : sizes.rows * sizes.n);
    for (int64_t row = 0; row < sizes.rows; ++row) {
      int any = int(generator() % (sizes.experts + 4)) + int(first) - 2;
      ids.push_back(choice == Choice::Any   ? any
                    : choice == Choice::One ? int(first)
                                            : INT32_MAX);
    }
  }

  Status run(bool add, const MultiplyGroups &multiply) {
    flatbuffers::FlatBufferBuilder builder;
    builder.Finish(fb::GroupedGemmStep::Pack(builder, &shape));
    const auto &step =
        *flatbuffers::GetRoot<fb::GroupedGemmStep>(builder.GetBufferPointer());
    auto at = [](auto &list) {
      return std::as_writable_bytes(std::span(list));
    };
    return multiply(step, first, {at(a), at(b), at(ids), at(c)}, add);
  }

  /// The sums as the schema has them.
  std::vector<double> compute(bool add) {
    std::vector<double> sums(c.size());
    for (size_t i = 0; add && i < c.size(); ++i)
      sums[i] = float(c[i]);
    for (int64_t row = 0; row < shape.rows; ++row) {
      int64_t expert = ids[row] - first;
      if (expert < 0 || expert >= shape.experts ||
          (shape.limit && ids[row] >= shape.limit))
        continue;
      for (int64_t k = 0; k < shape.k; ++k)
        for (int64_t n = 0; n < shape.n; ++n) {
          int64_t w = shape.transposed ? (expert * shape.n + n) * shape.k + k
                                       : (expert * shape.k + k) * shape.n + n;
          double x = float(a[row / shape.repeat * shape.k + k]);
          int64_t y = row * shape.n + n;
          if (shape.kind == fb::GroupedKind::Matrices)
            sums[w] += x * double(float(b[y]));
          else
            sums[y] += x * double(float(b[w]));
        }
    }
    return sums;
  }

  /// Products are of numbers of order 1, hence a sum of n is of order √n; it is
  /// rounded once to the type of the result.
  void expectNear(const std::vector<double> &sums) {
    double rounding = std::is_same_v<Out, float> ? 2e-6 : 0x1p-8;
    double size = std::sqrt(double(shape.rows + shape.k));
    for (size_t i = 0; i < c.size(); ++i)
      ASSERT_NEAR(float(c[i]), sums[i], rounding * (std::abs(sums[i]) + size))
          << "element " << i;
  }

  fb::GroupedGemmStepT shape;
  std::vector<In> a, b;
  std::vector<Out> c;
  std::vector<int32_t> ids;
  int64_t first = 3;

private:
  template <typename T> static fb::DType getType() {
    return std::is_same_v<T, float> ? fb::DType::F32 : fb::DType::BF16;
  }
  template <typename T> void draw(std::vector<T> &list, int64_t count) {
    for (int64_t i = 0; i < count; ++i)
      list.push_back(T(normal(generator)));
  }

  std::mt19937 generator;
  std::normal_distribution<float> normal;
};

template <typename In, typename Out>
void expectGroups(GroupedSizes sizes, const MultiplyGroups &multiply) {
  for (auto kind : {fb::GroupedKind::Rows, fb::GroupedKind::Matrices})
    for (bool transposed : {false, true})
      for (Choice choice : {Choice::Any, Choice::One, Choice::None})
        for (int64_t limit : {0, 4}) {
          GroupedTrial<In, Out> trial(sizes, kind, transposed, choice);
          trial.shape.limit = limit;
          bool add = limit != 0;
          std::vector<double> sums = trial.compute(add);
          Status status = trial.run(add, multiply);
          ASSERT_TRUE(status.ok()) << status.message();
          trial.expectNear(sums);
        }
}

} // namespace plait::test

#endif // PLAIT_TEST_UNIT_RUNTIME_GROUPEDCASES_H
