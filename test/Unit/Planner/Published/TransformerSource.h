//===- TransformerSource.h - A transformer for the search -------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_TEST_UNIT_PLANNER_TRANSFORMERSOURCE_H
#define PLAIT_TEST_UNIT_PLANNER_TRANSFORMERSOURCE_H

#include "TransformerWork.h"

#include <map>

namespace plait::planner {

/// Serves TransformerWork.h; splits heads evenly only.
class TransformerSource : public WorkSource {
public:
  explicit TransformerSource(const TransformerShape &shape) : shape(shape) {}

  const Work *get(const Degrees &degrees, double /*sequences*/,
                  std::string &reason) override {
    auto [tensor, experts, sequenceParallel, exchange] = degrees;
    if (shape.heads % tensor != 0) {
      reason = "tp=" + std::to_string(tensor) + " does not divide the " +
               std::to_string(shape.heads) + " heads";
      return nullptr;
    }
    auto [entry, isNew] = works.try_emplace(degrees);
    if (isNew) {
      entry->second =
          buildTransformerWork(shape, tensor, sequenceParallel, experts);
      entry->second.expertExchange = exchange;
    }
    return &entry->second;
  }

private:
  TransformerShape shape;
  std::map<Degrees, Work> works;
};

} // namespace plait::planner

#endif // PLAIT_TEST_UNIT_PLANNER_TRANSFORMERSOURCE_H
