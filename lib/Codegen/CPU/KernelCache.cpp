//===- KernelCache.cpp - Machine code of earlier compilations -------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Most of a small compilation is LLVM's code generator, and most of what it is
// given it has been given before: other meshes and schedules of a model have
// the same kernels. A file's name is a hash of all that its code depends on. A
// file begins with a hash of the rest, since a damaged one would be run.
//
//===----------------------------------------------------------------------===//

#include "KernelCache.h"

#include "plait/Plan/Files.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/BLAKE3.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"

#include <cstdlib>
#include <dlfcn.h>
#include <link.h>

using namespace plait;
using namespace plait::codegen;

static constexpr size_t kHashBytes = 16;

static std::string hash(llvm::StringRef text) {
  auto bytes =
      llvm::BLAKE3::hash<kHashBytes>(llvm::arrayRefFromStringRef(text));
  return std::string(reinterpret_cast<const char *>(bytes.data()), kHashBytes);
}

/// Names the file that has the code at `address`, as it was when it was built:
/// what emits kernels may be another thing in the next build. Empty: unknown.
static std::string describeBuild(const void *address) {
  Dl_info info;
  link_map *map = nullptr;
  if (!dladdr1(address, &info, reinterpret_cast<void **>(&map),
               RTLD_DL_LINKMAP))
    return "";
  // A program's own name is as it was typed, and empty here.
  std::string path = *map->l_name ? map->l_name : "/proc/self/exe";
  llvm::sys::fs::file_status status;
  if (llvm::sys::fs::status(path, status))
    return "";
  auto time = status.getLastModificationTime().time_since_epoch().count();
  return path + " " + std::to_string(status.getSize()) + " " +
         std::to_string(time) + "\n";
}

KernelCache::KernelCache(llvm::StringRef target) {
  const char *given = std::getenv("PLAIT_KERNEL_CACHE");
  if (!given || !*given)
    return;
  std::string plait = describeBuild(reinterpret_cast<void *>(&describeBuild)),
              llvm = describeBuild(
                  reinterpret_cast<void *>(&llvm::sys::fs::current_path));
  // Code of an unknown build may be anybody's.
  if (plait.empty() || llvm.empty())
    return;
  folder = given;
  maker = plait + llvm + target.str() + "\n";
}

std::string KernelCache::getPath(llvm::StringRef text) const {
  llvm::SmallString<128> path(folder);
  llvm::sys::path::append(path, llvm::toHex(hash(maker + text.str())));
  return path.str().str();
}

std::optional<llvm::SmallString<0>>
KernelCache::find(llvm::StringRef text) const {
  if (folder.empty())
    return std::nullopt;
  auto file = llvm::MemoryBuffer::getFile(getPath(text));
  if (!file || (*file)->getBufferSize() < kHashBytes)
    return std::nullopt;
  llvm::StringRef code = (*file)->getBuffer().drop_front(kHashBytes);
  if (!(*file)->getBuffer().starts_with(hash(code)))
    return std::nullopt;
  return llvm::SmallString<0>(code);
}

Status KernelCache::keep(llvm::StringRef text, llvm::StringRef code) const {
  if (folder.empty())
    return Status::success();
  if (std::error_code error = llvm::sys::fs::create_directories(folder))
    return Status::failure("cannot make folder '" + folder +
                           "': " + error.message());
  return writeTextFile(getPath(text), hash(code) + code.str());
}
