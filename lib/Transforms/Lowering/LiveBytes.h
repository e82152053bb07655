//===- LiveBytes.h - What a workspace holds, step by step -------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Ops are moved where the most that a workspace holds at once stays what it is.
// That is judged by the bytes that live, which packing comes close to, and not
// by packing again for each op.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_TRANSFORMS_LOWERING_LIVEBYTES_H
#define PLAIT_LIB_TRANSFORMS_LOWERING_LIVEBYTES_H

#include "PlaceValues.h"

#include <vector>

namespace plait {

class LiveBytes {
public:
  /// Counts the bytes of `workspace` at each of `steps`.
  LiveBytes(const Workspace &workspace, size_t steps);

  /// Has each of `more` live at its steps, too, or, where that would be too
  /// much, none. Linear in the steps.
  bool add(llvm::ArrayRef<Lifetime> more);

private:
  bool change(llvm::ArrayRef<Lifetime> more, int64_t sign);

  std::vector<int64_t> live; // by step
  int64_t peak;
};

} // namespace plait

#endif // PLAIT_LIB_TRANSFORMS_LOWERING_LIVEBYTES_H
