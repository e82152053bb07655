//===- Capabilities.cpp - Capabilities of GPU libraries -------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Which versions of driver and libraries this process has, and what follows for
// plans: below some versions NCCL launches one thing at a time, so that a
// pipeline that sends and receives in both directions waits for itself. Such a
// plan is refused here rather than left hanging; the table is in docs/GPU.md.
//
//===----------------------------------------------------------------------===//

#include "Capabilities.h"

#include "Core/Backend.h"
#include "CublasLt.h"
#include "Driver.h"
#include "Nccl.h"
#include "SharedLibrary.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <dlfcn.h>
#include <link.h>

using namespace plait;
using namespace plait::runtime;

namespace {

// NCCL launches in order from these on, before them one thing at a time.
constexpr int walksInOrder = 12030;   // driver and NCCL's CUDA
constexpr int recordsInOrder = 12090; // driver

/// CUDA counts 12.8 as 12080.
std::string cudaVersion(int version) {
  return std::to_string(version / 1000) + "." +
         std::to_string(version % 1000 / 10);
}

/// Three numbers of two digits each, as most libraries count.
/// cuDNN counts 9.16.0 as 91600, cuBLASLt 13.1.0 as 130100, NCCL 2.30.7 as
/// 23007.
std::string version(int number) {
  return number == 0 ? "none"
                     : std::to_string(number / 10000) + "." +
                           std::to_string(number / 100 % 100) + "." +
                           std::to_string(number % 100);
}

/// Looks through the memory of the library that has `function`.
/// The string is in the library's constants, which are mapped. First the
/// library whose loaded segments contain the function, then its readable
/// segments.
int findCudartOf(const void *function) {
  struct Search {
    uintptr_t function;
    int found = 0;
  } search = {reinterpret_cast<uintptr_t>(function)};
  dl_iterate_phdr(
      [](dl_phdr_info *library, size_t, void *data) {
        auto &search = *static_cast<Search *>(data);
        auto begin = [&](int i) {
          return library->dlpi_addr + library->dlpi_phdr[i].p_vaddr;
        };
        bool isIt = false;
        for (int i = 0; i < library->dlpi_phnum; ++i)
          // Unsigned: a function below the segment is far above its size.
          isIt |= library->dlpi_phdr[i].p_type == PT_LOAD &&
                  search.function - begin(i) < library->dlpi_phdr[i].p_memsz;
        for (int i = 0; isIt && !search.found && i < library->dlpi_phnum; ++i)
          if (library->dlpi_phdr[i].p_type == PT_LOAD &&
              library->dlpi_phdr[i].p_flags & PF_R)
            search.found = findCudart({reinterpret_cast<const char *>(begin(i)),
                                       library->dlpi_phdr[i].p_filesz});
        // Anything but 0 ends the walk.
        return int(isIt);
      },
      &search);
  return search.found;
}

} // namespace

std::string runtime::describeCudaLibraries() {
  return Capabilities::find().describe();
}

/// NCCL has no function that tells the CUDA it was built with, only a string of
/// its version ("NCCL version 2.x.y+cuda12.8"). Returns it as CUDA counts,
/// 0 where `bytes` has no such string.
int runtime::findCudart(std::span<const char> bytes) {
  constexpr std::string_view prefix = "NCCL version ";
  for (auto at = bytes.begin(); at != bytes.end(); ++at) {
    at = std::search(at, bytes.end(), prefix.begin(), prefix.end());
    if (at == bytes.end())
      break;
    std::string text(at, at + std::min<ptrdiff_t>(bytes.end() - at, 64));
    int major = 0, minor = 0;
    if (std::sscanf(text.c_str(), "NCCL version %*d.%*d.%*[^+]+cuda%d.%d",
                    &major, &minor) == 2)
      return major * 1000 + minor * 10;
  }
  return 0;
}

/// A library that cannot be opened stays 0: this is a report, and the failure
/// is said by who needs the library.
Capabilities Capabilities::find() {
  Capabilities found;
  if (auto driver = Driver::load(); driver.ok())
    (*driver)->cuDriverGetVersion(&found.driver);
  if (auto nccl = Nccl::load(); nccl.ok()) {
    (*nccl)->ncclGetVersion(&found.nccl);
    found.ncclCudart =
        findCudartOf(reinterpret_cast<const void *>((*nccl)->ncclGetVersion));
  }
  if (auto library = CublasLt::load(); library.ok())
    found.cublasLt = int((*library)->cublasLtGetVersion());
  if (auto library = SharedLibrary::open("libcudnn.so.9", "PLAIT_CUDNN");
      library.ok()) {
    size_t (*getVersion)() = nullptr;
    library->bindIfThere("cudnnGetVersion", getVersion);
    found.cudnn = getVersion ? int(getVersion()) : 0;
  }
  return found;
}

std::string Capabilities::describe() const {
  std::string text = "CUDA driver " +
                     (driver ? cudaVersion(driver) : std::string("none")) +
                     ", NCCL " + version(nccl);
  if (ncclCudart)
    text += " (CUDA " + cudaVersion(ncclCudart) + ")";
  return text + ", cuBLASLt " + version(cublasLt) + ", cuDNN " + version(cudnn);
}

/// Serial where the driver, or the CUDA that NCCL was built with, is too old
/// for NCCL to let communicators proceed side by side. An unknown CUDA of NCCL
/// (0) counts as new enough.
plan::LaunchOrder Capabilities::launchOrder(bool recorded) const {
  bool serial = (recorded && driver < recordsInOrder) ||
                driver < walksInOrder ||
                (ncclCudart && ncclCudart < walksInOrder);
  return serial ? plan::LaunchOrder::Serial : plan::LaunchOrder::Routes;
}

/// The message names the way out, if there is one: steps that are walked may be
/// in order where recorded ones are not.
Status Capabilities::checkLaunchOrder(const plan::fb::Plan &plan,
                                      bool recorded) const {
  if (launchOrder(recorded) == plan::LaunchOrder::Routes)
    return Status::success(); // which every plan is checked for
  Status status = plan::checkProgress(plan, plan::LaunchOrder::Serial);
  if (status.ok())
    return status;
  std::string who =
      "the driver supports CUDA " + cudaVersion(driver) + ", and before ";
  if (launchOrder(/*recorded=*/false) == plan::LaunchOrder::Routes)
    return fail(who, cudaVersion(recordsInOrder),
                " NCCL does one thing at a time in recorded steps, so that "
                "this plan would wait for ever; give `cuda-graph` off: ",
                status.message());
  if (driver < walksInOrder)
    who += cudaVersion(walksInOrder) + " NCCL";
  else
    who = "NCCL was built with CUDA " + cudaVersion(ncclCudart) +
          ", and before " + cudaVersion(walksInOrder) + " it";
  return fail(who,
              " does one thing at a time, so that this plan would wait "
              "for ever: ",
              status.message());
}
