//===- Modules.cpp - Modules that link libraries of messages --------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// plait-run starts on machines that have neither MPI nor UCX, and does not wait
// for them to load where it runs alone.
//
//===----------------------------------------------------------------------===//

#include "Modules.h"

#include <dlfcn.h>
#include <filesystem>

using namespace plait;
using namespace plait::runtime;

/// The folder of the library that this is a part of, else of the program.
static std::filesystem::path findOwnFolder() {
  std::error_code error;
  Dl_info own = {};
  if (dladdr(reinterpret_cast<void *>(&findOwnFolder), &own) &&
      std::string_view(own.dli_fname).find(".so") != std::string_view::npos)
    return std::filesystem::canonical(own.dli_fname, error).parent_path();
  return std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
}

/// Never closed: MPI cannot be initialised a second time.
Result<void *> runtime::openModule(const std::string &name,
                                   const char *symbol) {
  std::string file = "plait-" + name + ".so";
  std::error_code error;
  std::filesystem::path folder = findOwnFolder();
  std::filesystem::path path = folder / file;
  if (!std::filesystem::exists(path, error))
    path = folder.parent_path() / PLAIT_LIBRARY_FOLDER / file;
  // Libraries that MPI opens by itself look for its symbols.
  void *handle = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  void *found = handle ? dlsym(handle, symbol) : nullptr;
  if (!found)
    return fail("cannot open the module for ", name, ": ", dlerror());
  return found;
}
