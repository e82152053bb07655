//===- FakeGrouped.cpp - Grouped GEMMs of a GPU, on the CPU ---------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What CUDA/GroupedKernels.h says of its kernels, in sums of double. That the
// kernels do the same is for PlaitCodegenPtxTests, which execute their PTX.
//
//===----------------------------------------------------------------------===//

#include "FakeGrouped.h"

#include "CUDA/GroupedKernels.h"
#include "plait/Support/BFloat16.h"

#include <algorithm>
#include <numeric>
#include <vector>

using namespace plait;
using namespace plait::fake;
using namespace plait::runtime;

namespace {

std::function<void()> groupRows(void **params, unsigned blocks) {
  LaunchParams next(params);
  int *order = next, *begins = next;
  const int *ids = next;
  int64_t rows = next, first = next, limit = next, experts = next;
  if (blocks != experts + 1)
    return nullptr;
  return [=] {
    auto groupOf = [&](int row) {
      int64_t expert = ids[row] - first;
      bool isHere = expert >= 0 && expert < experts;
      return isHere && (!limit || ids[row] < limit) ? expert : experts;
    };
    std::iota(order, order + rows, 0);
    std::stable_sort(order, order + rows,
                     [&](int a, int b) { return groupOf(a) < groupOf(b); });
    for (int64_t group = 0; group <= experts; ++group)
      begins[group] = int(std::count_if(
          order, order + rows, [&](int row) { return groupOf(row) < group; }));
  };
}

template <typename Out> void put(Out &c, double sum, bool add) {
  c = Out(float(add ? sum + float(c) : sum));
}

template <typename In, typename Out, bool Transposed>
std::function<void()> multiplyRows(void **params, unsigned blocks) {
  LaunchParams next(params);
  Out *c = next;
  const In *a = next, *b = next;
  const int *order = next, *begins = next;
  int64_t rows = next, repeat = next, experts = next, k = next, n = next,
          add = next;
  if (blocks != groupedRowBlocks(rows, experts, n))
    return nullptr;
  return [=] {
    for (int64_t group = 0; group <= experts; ++group)
      for (int64_t i = begins[group];
           i < (group == experts ? rows : begins[group + 1]); ++i)
        for (int64_t j = 0; j < n; ++j) {
          const In *row = a + order[i] / repeat * k,
                   *matrix = b + group * k * n;
          double sum = 0;
          for (int64_t m = 0; group < experts && m < k; ++m)
            sum += double(float(row[m])) *
                   float(matrix[Transposed ? j * k + m : m * n + j]);
          put(c[order[i] * n + j], sum, add);
        }
  };
}

template <typename In, typename Out>
std::function<void()> makeMatrices(void **params, unsigned blocks) {
  LaunchParams next(params);
  Out *c = next;
  const In *left = next, *right = next;
  const int *order = next, *begins = next;
  [[maybe_unused]] int64_t rows = next;
  int64_t leftRepeat = next, rightRepeat = next, experts = next,
          leftColumns = next, rightColumns = next, add = next;
  if (blocks != groupedMatrixBlocks(experts, leftColumns, rightColumns))
    return nullptr;
  return [=] {
    std::vector<double> sums(leftColumns * rightColumns);
    for (int64_t expert = 0; expert < experts; ++expert) {
      std::fill(sums.begin(), sums.end(), 0);
      for (int64_t i = begins[expert]; i < begins[expert + 1]; ++i)
        for (int64_t m = 0; m < leftColumns; ++m)
          for (int64_t j = 0; j < rightColumns; ++j)
            sums[m * rightColumns + j] +=
                double(float(left[order[i] / leftRepeat * leftColumns + m])) *
                float(right[order[i] / rightRepeat * rightColumns + j]);
      for (size_t i = 0; i < sums.size(); ++i)
        put(c[expert * sums.size() + i], sums[i], add);
    }
  };
}

template <typename In, typename Out>
void addKernels(std::map<std::string, GroupedKernel> &kernels,
                const std::string &types) {
  kernels[PLAIT_GROUPED_ROWS + types] = multiplyRows<In, Out, false>;
  kernels[PLAIT_GROUPED_ROWS PLAIT_GROUPED_TRANSPOSED + types] =
      multiplyRows<In, Out, true>;
  kernels[PLAIT_GROUPED_MATRICES + types] = makeMatrices<In, Out>;
}

} // namespace

const std::map<std::string, GroupedKernel> &fake::groupedKernels() {
  static const std::map<std::string, GroupedKernel> kernels = [] {
    std::map<std::string, GroupedKernel> made = {{PLAIT_GROUP_ROWS, groupRows}};
    addKernels<float, float>(made, PLAIT_GROUPED_F32);
    addKernels<BFloat16, BFloat16>(made, PLAIT_GROUPED_BF16);
    addKernels<BFloat16, float>(made, PLAIT_GROUPED_WIDE);
    return made;
  }();
  return kernels;
}
