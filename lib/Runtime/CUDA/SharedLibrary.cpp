//===- SharedLibrary.cpp - Libraries that may be missing ------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SharedLibrary.h"

#include <cstdlib>
#include <dlfcn.h>

using namespace plait;
using namespace plait::runtime;

/// All symbols are resolved at once, so that what is missing shows here rather
/// than in a step.
Result<SharedLibrary> SharedLibrary::open(const char *name,
                                          const char *override) {
  const char *named = std::getenv(override);
  std::string path = named && *named ? named : name;
  if (void *handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL))
    return SharedLibrary(std::move(path), handle);
  // It names the file and what it lacks.
  const char *reason = dlerror();
  return fail("this plan is for CUDA; ", path,
              " cannot be loaded: ", reason ? reason : "unknown reason");
}

Result<void *> SharedLibrary::find(const char *symbol) const {
  if (void *address = dlsym(handle, symbol))
    return address;
  return fail("this plan is for CUDA; ", path, " is too old: it has no ",
              symbol);
}
