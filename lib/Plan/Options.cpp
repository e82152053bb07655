//===- Options.cpp - Numbers that a run sets of a plan --------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The table of options that an optimizer brings with it. Numbers of a step that
// every optimizer has stand in enum Scalar; options may be among those and
// behind them.
//
//===----------------------------------------------------------------------===//

#include "plait/Plan/Options.h"

#include "plait/Plan/Defaults.h"

#include <algorithm>
#include <set>

using namespace plait;
using namespace plait::plan;

uint32_t plan::countScalars(const fb::Plan &plan) {
  uint32_t count = uint32_t(fb::Scalar::Count);
  for (uint32_t i = 0; i < length(plan.options()); ++i) {
    const fb::OptimizerOption &option = *plan.options()->Get(i);
    count = std::max({count, option.scalar() + 1u, option.correction() + 1u});
  }
  return count;
}

/// Scalars that the trainer sets by itself are nobody's option. 0 is the
/// learning rate, so that a correction of 0 is none.
static bool isOwn(uint32_t scalar) {
  return scalar == uint32_t(fb::Scalar::LearningRate) ||
         scalar == uint32_t(fb::Scalar::MaxGradNorm);
}

Status plan::checkOptions(const fb::Plan &plan) {
  std::set<std::string_view> names;
  std::set<uint32_t> taken;
  for (uint32_t i = 0; i < length(plan.options()); ++i) {
    const fb::OptimizerOption &option = *plan.options()->Get(i);
    std::string_view name = option.name()->string_view();
    if (name.empty() || !names.insert(name).second)
      return fail("option ", i, " of the optimizer is called '", name,
                  "', as another one or as nothing is");
    if (option.shared() && option.shared()->size() == 0)
      return fail("option '", name,
                  "' of the optimizer is set by one without a name");
    for (uint32_t scalar : {option.scalar(), option.correction()}) {
      bool isNone =
          scalar == 0 && scalar == option.correction() && option.scalar() != 0;
      if (isNone)
        continue;
      if (scalar >= kMostScalars || isOwn(scalar) ||
          !taken.insert(scalar).second)
        return fail("option '", name, "' of the optimizer is scalar ", scalar,
                    ", which is another number's or not below ", kMostScalars);
    }
    // False of a NaN too.
    bool isWithin =
        option.least() <= option.value() && option.value() <= option.most();
    if (!isWithin)
      return fail("option '", name, "' of the optimizer is ", option.value(),
                  ", outside of ", option.least(), " to ", option.most());
  }
  return Status::success();
}
