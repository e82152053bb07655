//===- KernelCache.h - Machine code of earlier compilations -----*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_CODEGEN_CPU_KERNELCACHE_H
#define PLAIT_LIB_CODEGEN_CPU_KERNELCACHE_H

#include "plait/Support/Status.h"

#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringRef.h"

#include <optional>
#include <string>

namespace plait::codegen {

/// Files of machine code in the folder that the environment variable
/// PLAIT_KERNEL_CACHE names, one a kernel; none if it names no folder. Programs
/// may use one folder at the same time: files appear when they are complete.
class KernelCache {
public:
  /// Code is looked for that this build of plait and this LLVM have made for
  /// `target`.
  explicit KernelCache(llvm::StringRef target);

  /// The code that was kept for a kernel of that text; none, too, where its
  /// file is damaged.
  std::optional<llvm::SmallString<0>> find(llvm::StringRef text) const;

  /// Fails where the file cannot be written.
  Status keep(llvm::StringRef text, llvm::StringRef code) const;

private:
  std::string getPath(llvm::StringRef text) const;

  std::string folder; // empty: there is none
  std::string maker;
};

} // namespace plait::codegen

#endif // PLAIT_LIB_CODEGEN_CPU_KERNELCACHE_H
