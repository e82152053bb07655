//===- DropoutMask.h - Random masks of dropout ------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The hash of nn.dropout, written once: generated kernels emit it, processors
// compute it (flash attention), and neither can differ from the other. An
// element is kept or not by its indices in the whole tensor, so that ranks
// which hold blocks of it, and passes that compute it again, agree without
// storing a mask ("counter-based": Salmon et al., "Parallel random numbers: as
// easy as 1, 2, 3", SC 2011).
//
// `Arithmetic` computes with words of 32 bits that wrap:
//
//   Word add(Word a, Word b)            Word multiply(Word a, uint32_t b)
//   Word exclusiveOr(Word a, Word b)    Word shiftRight(Word a, unsigned bits)
//
// The shift is unsigned. MaskWords is that of the processor.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_SUPPORT_DROPOUTMASK_H
#define PLAIT_SUPPORT_DROPOUTMASK_H

#include <cmath>
#include <cstdint>
#include <type_traits>

namespace plait {

struct MaskWords {
  using Word = uint32_t;

  Word add(Word a, Word b) const { return a + b; }
  Word multiply(Word a, uint32_t b) const { return a * b; }
  Word exclusiveOr(Word a, Word b) const { return a ^ b; }
  Word shiftRight(Word a, unsigned bits) const { return a >> bits; }
};

/// `hash` and one number more, a site or an index: mix(hash + number · C) with
/// C = 2^32 / φ, the odd number next to it, and mix = lowbias32 (C. Wellons,
/// "Prospecting for hash functions", 2018), a bijection in which a flipped bit
/// of the input flips every bit of the output with a probability close to a
/// half.
template <typename Arithmetic>
auto extendMaskHash(Arithmetic &&with,
                    typename std::decay_t<Arithmetic>::Word hash,
                    typename std::decay_t<Arithmetic>::Word number) {
  auto word = with.add(hash, with.multiply(number, 0x9e3779b9u));
  word = with.exclusiveOr(word, with.shiftRight(word, 16));
  word = with.multiply(word, 0x7feb352du);
  word = with.exclusiveOr(word, with.shiftRight(word, 15));
  word = with.multiply(word, 0x846ca68bu);
  return with.exclusiveOr(word, with.shiftRight(word, 16));
}

/// Elements whose hash is below this are kept; 2^32: all are.
inline uint64_t getMaskThreshold(double probability) {
  return static_cast<uint64_t>(std::llround((1.0 - probability) * 0x1p32));
}

/// Returns what an element that is kept is multiplied with.
inline float getMaskScale(double probability) {
  return static_cast<float>(1.0 / (1.0 - probability));
}

} // namespace plait

#endif // PLAIT_SUPPORT_DROPOUTMASK_H
