//===- GroupedGemmTest.cpp - Grouped GEMMs against sums in double ---------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CPU/GroupedGemm.h"
#include "CPU/Team.h"
#include "plait/Support/BFloat16.h"

#include <cmath>
#include <gtest/gtest.h>
#include <random>

using namespace plait;
using namespace plait::runtime;

namespace {

struct Sizes {
  int64_t rows, repeat, experts, k, n;
};

/// How tokens choose: anything, all one expert, or none that is here.
enum class Choice { Any, One, None };

/// A step with drawn operands.
template <typename In, typename Out> class Trial {
public:
  Trial(Sizes sizes, fb::GroupedKind kind, bool transposed, Choice choice)
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

  void run(bool add, unsigned threads) {
    flatbuffers::FlatBufferBuilder builder;
    builder.Finish(fb::GroupedGemmStep::Pack(builder, &shape));
    const auto &step =
        *flatbuffers::GetRoot<fb::GroupedGemmStep>(builder.GetBufferPointer());
    setTeamSize(threads);
    GroupedGemmLibrary library(threads);
    uint32_t number = library.prepare(step, first);
    auto at = [](auto &list) {
      return reinterpret_cast<std::byte *>(list.data());
    };
    ASSERT_TRUE(library.run(number, {at(a), at(b), at(ids), at(c)}, add).ok());
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

template <typename In, typename Out> void check(Sizes sizes) {
  for (auto kind : {fb::GroupedKind::Rows, fb::GroupedKind::Matrices})
    for (bool transposed : {false, true})
      for (Choice choice : {Choice::Any, Choice::One, Choice::None})
        for (int64_t limit : {0, 4}) {
          Trial<In, Out> trial(sizes, kind, transposed, choice);
          trial.shape.limit = limit;
          bool add = limit != 0;
          std::vector<double> sums = trial.compute(add);
          trial.run(add, 2);
          trial.expectNear(sums);
        }
}

} // namespace

/// One row; fewer rows than experts; more than a block of rows, of columns, of
/// what is summed.
constexpr Sizes kSizes[] = {
    {1, 1, 1, 1, 1}, {8, 2, 9, 5, 7}, {780, 2, 2, 5, 400}, {50, 1, 2, 2100, 5}};

TEST(GroupedGemm, F32) {
  for (Sizes sizes : kSizes)
    check<float, float>(sizes);
}

TEST(GroupedGemm, BF16) {
  for (Sizes sizes : kSizes) {
    check<BFloat16, BFloat16>(sizes);
    check<BFloat16, float>(sizes);
  }
}

/// The number of threads changes no bit.
TEST(GroupedGemm, DoesNotDependOnThreads) {
  for (auto kind : {fb::GroupedKind::Rows, fb::GroupedKind::Matrices}) {
    Trial<float, float> one({900, 3, 5, 400, 450}, kind, true, Choice::Any);
    auto two = one;
    one.run(false, 1);
    two.run(false, 2);
    EXPECT_EQ(one.c, two.c);
  }
}
