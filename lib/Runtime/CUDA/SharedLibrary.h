//===- SharedLibrary.h - Libraries that may be missing ----------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The libraries of a GPU are opened when the first CUDA plan runs, so that one
// binary starts on machines that have none. Each of them has a table of
// function pointers (Driver.h, CublasLt.h, Nccl.h), whose types come from the
// toolkit's headers at build time.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CUDA_SHAREDLIBRARY_H
#define PLAIT_LIB_RUNTIME_CUDA_SHAREDLIBRARY_H

#include "plait/Support/Status.h"

#include <string>

namespace plait::runtime {

/// An open library. Never closed: the drivers of GPUs do not survive that.
class SharedLibrary {
public:
  /// Opens `name`, or the file that the environment variable `override` names.
  static Result<SharedLibrary> open(const char *name, const char *override);

  /// Sets `function` to the address of `symbol`; fails when this version lacks
  /// it.
  template <typename Function>
  Status bind(const char *symbol, Function *&function) const {
    Result<void *> address = find(symbol);
    if (address.ok())
      function = reinterpret_cast<Function *>(*address);
    return address.status();
  }
  /// Returns what dlopen returned, for libraries that look functions up
  /// themselves.
  void *native() const { return handle; }

  /// The same, but null when this version lacks it.
  template <typename Function>
  void bindIfThere(const char *symbol, Function *&function) const {
    Result<void *> address = find(symbol);
    function = address.ok() ? reinterpret_cast<Function *>(*address) : nullptr;
  }

private:
  Result<void *> find(const char *symbol) const;

  SharedLibrary(std::string path, void *handle)
      : path(std::move(path)), handle(handle) {}

  std::string path;
  void *handle;
};

} // namespace plait::runtime

/// The name of a function after the headers' renaming to its current version
/// (cuMemAlloc is cuMemAlloc_v2).
#define PLAIT_SYMBOL_NAME_OF(function) #function
#define PLAIT_SYMBOL_NAME(function) PLAIT_SYMBOL_NAME_OF(function)

#endif // PLAIT_LIB_RUNTIME_CUDA_SHAREDLIBRARY_H
