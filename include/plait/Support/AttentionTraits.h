//===- AttentionTraits.h - Variants of attention ----------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Which variants of attention each library computes in one step. A causal mask,
// windows under it, any scale and groups of heads are not listed: all can. What
// a library cannot is computed by matmuls and kernels, which can everything;
// sinks by kernels behind its step. Who asks: the compiler (nn.attention), the
// planner for a whole model, and a device for a step of a plan.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_SUPPORT_ATTENTIONTRAITS_H
#define PLAIT_SUPPORT_ATTENTIONTRAITS_H

#include "plait/Support/Status.h"

#include <cstdint>

namespace plait {

/// A variant of attention; its row below has its number.
enum class AttentionTrait : uint8_t {
  Dropout,
  Documents,
  WindowOnBothSides,
  SoftCap,
  Sinks
};

/// Some variants.
class AttentionTraits {
public:
  /// Adds a variant where `condition` holds.
  AttentionTraits &add(AttentionTrait trait, bool condition) {
    bits |= uint32_t(condition) << unsigned(trait);
    return *this;
  }
  AttentionTraits &add(AttentionTraits other) {
    bits |= other.bits;
    return *this;
  }
  bool has(AttentionTrait trait) const { return bits >> unsigned(trait) & 1; }

private:
  uint32_t bits = 0;
};

/// Who computes attention in one step: plait's own library on processors, and
/// cuDNN on GPUs.
enum class FusedBy : uint8_t { Processors, Cudnn };

/// Whether attention that `library` can compute in one step is that step where
/// the user says nothing. On processors it takes half of the time of matmuls
/// and kernels at 1,024 keys and 3/4 at 256; below it gains nothing
/// (bench/Measurements.md).
inline bool isFusedByDefault(FusedBy library, int64_t keys) {
  return library == FusedBy::Cudnn || keys >= 256;
}

/// The facts of a variant.
struct AttentionTraitFacts {
  AttentionTrait trait;
  const char *name; // "it has …"
  const char *hint; // what may be done about it, behind the name
  bool onProcessors, byCudnn;
};

inline constexpr AttentionTraitFacts attentionTraits[] = {
    // cuDNN draws other masks than the ones that are meant.
    {AttentionTrait::Dropout, "dropout", "; `dropout` off allows flash", true,
     false},
    {AttentionTrait::Documents, "a document mask", "", true, false},
    {AttentionTrait::WindowOnBothSides, "a window on both sides of a query", "",
     true, false},
    {AttentionTrait::SoftCap, "a soft cap of its scores", "", true, false},
    {AttentionTrait::Sinks, "sinks", "", true, false},
};

/// Finds a variant among `traits` that `library` does not compute. Null: it
/// computes all.
inline const AttentionTraitFacts *findUncomputed(AttentionTraits traits,
                                                 FusedBy library) {
  for (const AttentionTraitFacts &facts : attentionTraits)
    if (traits.has(facts.trait) &&
        !(library == FusedBy::Cudnn ? facts.byCudnn : facts.onProcessors))
      return &facts;
  return nullptr;
}

/// Fails with what `library` does not compute of a model's attention.
inline Status checkAttentionTraits(AttentionTraits traits, FusedBy library) {
  if (const AttentionTraitFacts *facts = findUncomputed(traits, library))
    return fail("it has ", facts->name, facts->hint);
  return Status::success();
}

} // namespace plait

#endif // PLAIT_SUPPORT_ATTENTIONTRAITS_H
