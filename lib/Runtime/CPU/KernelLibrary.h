//===- KernelLibrary.h - The code of a plan ---------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CPU_KERNELLIBRARY_H
#define PLAIT_LIB_RUNTIME_CPU_KERNELLIBRARY_H

#include "plait/Plan/Plan_generated.h"
#include "plait/Support/Status.h"

#include <cstdint>
#include <vector>

namespace plait::runtime {

/// The function that Plan.fbs calls symbol(args, scalars, begin, end).
using KernelFunction = void (*)(std::byte *const *args, const int64_t *scalars,
                                int64_t begin, int64_t end);

/// The loaded x86_64 code object of a plan. Unloaded on destruction.
class KernelLibrary {
public:
  /// A plan without kernels needs no code object. `plan` must have been
  /// verified: this maps its code.
  static Result<KernelLibrary> load(const plan::fb::Plan &plan);

  KernelLibrary(KernelLibrary &&other) noexcept;
  KernelLibrary &operator=(KernelLibrary &&) = delete;
  ~KernelLibrary();

  KernelFunction operator[](uint32_t kernel) const { return kernels[kernel]; }

private:
  KernelLibrary() = default;

  void *handle = nullptr;
  std::vector<KernelFunction> kernels;
};

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CPU_KERNELLIBRARY_H
