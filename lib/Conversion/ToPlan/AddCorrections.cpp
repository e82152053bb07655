//===- AddCorrections.cpp - What keeps sites from drifting apart ----------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Each step of a site goes along the gradient of its own samples. What that
// differs by from the gradient of all is learned when sites agree, from how far
// weights have moved, and added to the steps that follow: SCAFFOLD
// (Karimireddy et al. 2020) and gradient tracking (Nedić et al. 2017). Both
// keep the difference alone, and not the gradients that it is of: it is c - c_i
// of the one and g_i - y_i of the other. Over all sites it adds up to 0.
//
//===----------------------------------------------------------------------===//

#include "SiteBuilder.h"

using namespace plait;
using namespace plait::plan;

/// Counts buffers: tracking mixes what weights have moved by, too; a site that
/// keeps its own weights until they are averaged has one.
unsigned SiteBuilder::countBuffers() const {
  if (!outer.corrects())
    return 2;
  return outer.keepsBefore() ? 3 : 1;
}

void SiteBuilder::addCorrections() {
  fb::FunctionT &function = addCall();
  for (const SentRange &range : ranges)
    addOuter(function, fb::OuterKind::Correct, range.begin, range.elements())
        .correction = at(range.correction);
  addRounding(function);
}

/// All sites take part, so that the mean of what they have moved by is that of
/// their weights: the variates need no message of their own.
void SiteBuilder::addScaffold(fb::FunctionT &function, const SentRange &range) {
  addCopy(function, range.begin, scratch[0], range.elements());
  addSum(function, range.begin, range.elements());
  addOuter(function, fb::OuterKind::Mean, range.begin, range.elements());
  fb::OuterStepT &step =
      addOuter(function, fb::OuterKind::Learn, range.begin, range.elements());
  step.mixed = at(scratch[0]);
  step.correction = at(range.correction);
}

/// 1. What the weights have moved by is mixed; what that differs by from the
///    site's own is learned.
/// 2. The weights are mixed.
void SiteBuilder::track(const SentRange &range, uint32_t tensor,
                        uint32_t exchanges) {
  // 1. Steps.
  fb::OuterStepT &part =
      addOuter(addCall(), fb::OuterKind::Part, range.begin, range.elements());
  part.anchor = at(range.before);
  part.mixed = at(scratch[2]);
  mix(range, scratch[2], 2 * tensor, exchanges);
  fb::OuterStepT &learn =
      addOuter(addCall(), fb::OuterKind::Learn, scratch[2], range.elements());
  learn.mixed = at(scratch[0]);
  learn.correction = at(range.correction);
  // 2. Weights.
  agree(range, 2 * tensor + 1, exchanges);
  addOuter(addCall(), fb::OuterKind::Keep, range.begin, range.elements())
      .anchor = at(range.before);
}

/// Adapt while communicate: the weights that are mixed are those from before
/// the steps that these are added to.
void SiteBuilder::joinMixed(const SentRange &range, uint32_t tensor,
                            uint32_t exchanges) {
  mix(range, range.before, tensor, exchanges);
  fb::OuterStepT &join =
      addOuter(addCall(), fb::OuterKind::Join, range.begin, range.elements());
  join.mixed = at(scratch[0]);
  join.anchor = at(range.before);
  addOuter(addCall(), fb::OuterKind::Keep, range.begin, range.elements())
      .anchor = at(range.before);
}
