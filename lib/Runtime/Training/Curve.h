//===- Curve.h - A curve of bounded length ----------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_TRAINING_CURVE_H
#define PLAIT_LIB_RUNTIME_TRAINING_CURVE_H

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace plait::runtime {

/// Some numbers of every step of a run of any length: a point is the mean of as
/// many steps as keeps them below a thousand or so. Numbers that are not finite
/// are left out of their mean.
template <size_t N> class Curve {
public:
  struct Point {
    uint64_t step = 0; // the last one
    uint64_t steps = 0;
    std::array<double, N> sums = {};
    std::array<uint64_t, N> counts = {};

    /// NaN where there was no finite number.
    double mean(size_t index) const {
      return sums[index] / double(counts[index]);
    }
  };

  static constexpr size_t mostPoints = 1024;

  void add(uint64_t step, const std::array<double, N> &values) {
    Point point = {step, 1, {}, {}};
    for (size_t i = 0; i < N; ++i)
      if (std::isfinite(values[i])) {
        point.sums[i] = values[i];
        point.counts[i] = 1;
      }
    if (!all.empty() && all.back().steps < stepsOfPoint)
      merge(all.back(), point);
    else
      all.push_back(point);
    if (all.size() == mostPoints && all.back().steps == stepsOfPoint)
      halve();
  }

  /// Adds a point that another curve had, whose points are of as many steps as
  /// perPoint() was. To be called before add().
  void restore(uint64_t step, const std::array<double, N> &means,
               uint64_t perPoint) {
    if (all.size() + 1 >= mostPoints)
      return;
    stepsOfPoint = perPoint;
    Point point = {step, perPoint, {}, {}};
    for (size_t i = 0; i < N; ++i)
      if (std::isfinite(means[i])) {
        point.sums[i] = means[i] * double(perPoint);
        point.counts[i] = perPoint;
      }
    all.push_back(point);
  }

  /// Steps of a point, but for the last one, which may have fewer.
  uint64_t perPoint() const { return stepsOfPoint; }

  const std::vector<Point> &points() const { return all; }

private:
  static void merge(Point &target, const Point &next) {
    target.step = next.step;
    target.steps += next.steps;
    for (size_t i = 0; i < N; ++i) {
      target.sums[i] += next.sums[i];
      target.counts[i] += next.counts[i];
    }
  }

  void halve() {
    for (size_t i = 0; i < all.size() / 2; ++i) {
      all[i] = all[2 * i];
      merge(all[i], all[2 * i + 1]);
    }
    all.resize(all.size() / 2);
    stepsOfPoint *= 2;
  }

  std::vector<Point> all;
  uint64_t stepsOfPoint = 1;
};

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_TRAINING_CURVE_H
