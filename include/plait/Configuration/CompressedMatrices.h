//===- CompressedMatrices.h - Compression beside whole matrices -*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_CONFIGURATION_COMPRESSEDMATRICES_H
#define PLAIT_CONFIGURATION_COMPRESSEDMATRICES_H

#include "plait/Support/Status.h"

namespace plait {

struct Compression;

/// Fails where a compression, which may be off, does not take a stage of ZeRO
/// beside an optimizer of whole matrices, as Muon is: ranks divide these by
/// dimensions, not by the rows of packs that they send.
Status checkZeroOfMatrices(const Compression &compression, int zero);

} // namespace plait

#endif // PLAIT_CONFIGURATION_COMPRESSEDMATRICES_H
