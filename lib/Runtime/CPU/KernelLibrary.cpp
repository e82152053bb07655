//===- KernelLibrary.cpp - The code of a plan -----------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The code of a plan is an ELF object, which the system's loader maps as it
// does any library. What processors it needs is in the plan, and compared
// before a byte of it is mapped: an instruction that is missing would end the
// process with a signal.
//
//===----------------------------------------------------------------------===//

#include "KernelLibrary.h"

#include <atomic>
#include <cerrno>
#include <cstring>
#include <dlfcn.h>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>

using namespace plait;
using namespace plait::runtime;
namespace fb = plait::plan::fb;

namespace {

/// The flags of the first processor; all of a machine are taken to be equal.
/// The plan names features as /proc/cpuinfo does.
std::set<std::string> machineFeatures() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (!line.starts_with("flags"))
      continue;
    std::istringstream words(line.substr(line.find(':') + 1));
    return {std::istream_iterator<std::string>(words), {}};
  }
  return {};
}

/// Names the first feature that is missing.
Status checkFeatures(const fb::CodeObject &code) {
  if (!code.features())
    return Status::success();
  std::set<std::string> present = machineFeatures();
  for (const flatbuffers::String *feature : *code.features())
    if (!present.count(feature->str()))
      return fail("plan needs cpu feature ", feature->str(),
                  ", which this machine lacks");
  return Status::success();
}

/// A plan may hold code for several targets; null: none of them is this one.
const fb::CodeObject *findCode(const fb::Plan &plan) {
  if (plan.code())
    for (const fb::CodeObject *code : *plan.code())
      if (code->target()->str() == "x86_64")
        return code;
  return nullptr;
}

/// The dynamic loader wants a file: an anonymous one in memory. The file has no
/// name in any directory, so that nothing is left behind and nobody can
/// exchange it; the descriptor may be closed once the loader has mapped it.
/// Symbols stay local: two plans in one process, as a plan and its reference,
/// may define the same names.
Result<void *> loadObject(const flatbuffers::Vector<uint8_t> &data) {
  int descriptor = memfd_create("plait-kernels", MFD_CLOEXEC);
  if (descriptor < 0)
    return fail("cannot map the plan's code: ", std::strerror(errno));
  // The loader takes a path that it has seen for the object it has loaded, and
  // descriptors are used again: no two objects may have one spelling.
  static std::atomic<int> objects = 0;
  std::string path = "/proc/self/fd/";
  for (int i = objects++; i > 0; --i)
    path += "./";
  path += std::to_string(descriptor);
  size_t written = 0;
  while (written < data.size()) {
    ssize_t count =
        write(descriptor, data.data() + written, data.size() - written);
    if (count <= 0)
      break;
    written += static_cast<size_t>(count);
  }
  void *handle = written == data.size()
                     ? dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)
                     : nullptr;
  const char *error = handle ? nullptr : dlerror();
  std::string reason = error ? error : std::strerror(errno);
  close(descriptor);
  if (!handle)
    return fail("cannot load the plan's code: ", reason);
  return handle;
}

} // namespace

/// Looks all symbols up now: a step calls through the table, by the kernel's
/// number.
Result<KernelLibrary> KernelLibrary::load(const fb::Plan &plan) {
  KernelLibrary library;
  if (!plan.kernels() || plan.kernels()->size() == 0)
    return library;
  const fb::CodeObject *code = findCode(plan);
  if (!code)
    return Status::failure("plan has kernels but no code for x86_64");
  PLAIT_RETURN_IF_ERROR(checkFeatures(*code));
  Result<void *> handle = loadObject(*code->data());
  if (!handle.ok())
    return handle.status();
  library.handle = *handle;
  // In the order of the plan, by whose numbers steps call.
  for (const fb::Kernel *kernel : *plan.kernels()) {
    void *symbol = dlsym(library.handle, kernel->symbol()->c_str());
    if (!symbol)
      return fail("the plan's code does not define kernel '",
                  kernel->symbol()->str(), "'");
    library.kernels.push_back(reinterpret_cast<KernelFunction>(symbol));
  }
  return library;
}

/// The handle moves, so that the object is unloaded once.
KernelLibrary::KernelLibrary(KernelLibrary &&other) noexcept
    : handle(std::exchange(other.handle, nullptr)),
      kernels(std::move(other.kernels)) {}

KernelLibrary::~KernelLibrary() {
  if (handle)
    dlclose(handle);
}
