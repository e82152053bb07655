//===- CompressionFacts.h - What compressors need ---------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_CONFIGURATION_COMPRESSIONFACTS_H
#define PLAIT_CONFIGURATION_COMPRESSIONFACTS_H

#include "plait/Configuration/Compressors.h"

namespace plait {

/// Whether what replicas send depends on random numbers, another one in each
/// step.
bool drawsNumbers(const Compression &compression);

/// The number of the step, from 1 on, as `nn.step_scalar` has it.
inline constexpr std::string_view kStepNumber = "StepNumber";

/// Whether messages are of the difference of a gradient from what was sent of
/// it so far (Richtarik et al. 2021, "EF21").
bool sendsDifferences(const Compression &compression);

/// Whether messages are of the momentum that a replica makes of its gradient,
/// and the optimizer's variance stays as it is (Tang et al. 2021, "1-bit
/// Adam"). Errors are always fed back.
bool sendsMomentum(const Compression &compression);

/// The part of a replica's gradient that all others know, where differences are
/// sent: as kErrorState is.
inline constexpr std::string_view kEstimateState = "estimate";
/// The sum of these over all replicas, which all of them know.
inline constexpr std::string_view kEstimateSumState = "estimate_sum";

/// Whether gradients are sent as two factors of whole matrices (Vogels et al.
/// 2019, "PowerSGD"), of which Compression::keep is the rank.
bool sendsFactors(const Compression &compression);
/// Whether the gradient of a parameter with so many dimensions is compressed:
/// of numbers it is not, nor that of vectors where factors are sent.
bool compresses(const Compression &compression, size_t dims);

/// A tensor as a matrix: dimensions before `cut` are rows, the others columns.
struct MatrixSides {
  size_t cut;
  int64_t rows, columns;
};
/// The sides of a tensor of at least two dimensions, with the least sum of all
/// cuts, and of equal ones the first.
MatrixSides getMatrixSides(std::span<const int64_t> shape);

/// Whether replicas keep a tensor of that name because of what they send.
bool isCompressionState(std::string_view name);
/// Whether each replica has another one.
bool isOwnState(std::string_view name);
/// Whether replicas keep what sums have not sent (kSumErrorState).
bool keepsSumError(const Compression &compression);
/// The highest stage of ZeRO that takes it. 0: each replica gets all of a sum.
/// 1: it gets the rows that it updates. 3: nor has it a gradient of its own,
/// since micro-batches add theirs to what is fed back, nor all values.
int getMostZero(const Compression &compression);
/// Fails where a compression, which may be off, does not take a stage of ZeRO.
Status checkZero(const Compression &compression, int zero);
/// Fails likewise beside an optimizer of whole matrices, as Muon is: ranks
/// divide these by dimensions, not by the rows of packs that they send.
Status checkZeroOfMatrices(const Compression &compression, int zero);
/// Names what is kept of a parameter.
std::span<const std::string_view>
getCompressionStates(const Compression &compression);

} // namespace plait

#endif // PLAIT_CONFIGURATION_COMPRESSIONFACTS_H
