//===- FakeProfiler.cpp - A profiler that takes ranges --------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Attaches as NVTX asks of a tool (nvtxDetail/nvtxInit.h): NVTX opens the
// library that NVTX_INJECTION64_PATH names, calls one function of it, and takes
// the functions that this puts into its table.
//
//===----------------------------------------------------------------------===//

#include <map>
#include <mutex>
#include <nvtx3/nvToolsExt.h>
#include <string>
#include <thread>
#include <vector>

namespace {

/// The ranges of a thread, in the order in which they began.
struct Thread {
  std::vector<std::string> lines; // with a space for each range around
  size_t depth = 0;
};

struct Ranges {
  std::mutex mutex;
  bool isOn = false;
  std::map<std::thread::id, Thread> threads;
  std::string text; // of the last call of plaitFakeRanges()
  std::string domain;
  bool isBroken = false; // a range has ended that had not begun
} ranges;

nvtxDomainHandle_t createDomain(const char *name) {
  ranges.domain = name;
  return reinterpret_cast<nvtxDomainHandle_t>(&ranges);
}

int push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *attributes) {
  std::lock_guard lock(ranges.mutex);
  Thread &thread = ranges.threads[std::this_thread::get_id()];
  bool isKnown = domain == reinterpret_cast<nvtxDomainHandle_t>(&ranges) &&
                 attributes->version == NVTX_VERSION &&
                 attributes->messageType == NVTX_MESSAGE_TYPE_ASCII;
  ranges.isBroken |= !isKnown;
  if (ranges.isOn && isKnown)
    thread.lines.push_back(std::string(thread.depth, ' ') +
                           attributes->message.ascii);
  return static_cast<int>(thread.depth++);
}

int pop(nvtxDomainHandle_t) {
  std::lock_guard lock(ranges.mutex);
  Thread &thread = ranges.threads[std::this_thread::get_id()];
  ranges.isBroken |= thread.depth == 0;
  return static_cast<int>(--thread.depth);
}

} // namespace

extern "C" int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t getTable) {
  const auto *callbacks = static_cast<const NvtxExportTableCallbacks *>(
      getTable(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  if (!callbacks ||
      !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size))
    return 0;
  auto set = [&](NvtxCallbackIdCore2 id, auto *function) {
    *table[id] = reinterpret_cast<NvtxFunctionPointer>(function);
  };
  set(NVTX_CBID_CORE2_DomainCreateA, createDomain);
  set(NVTX_CBID_CORE2_DomainRangePushEx, push);
  set(NVTX_CBID_CORE2_DomainRangePop, pop);
  return 1;
}

// For tests. Threads must be at rest.

/// Forgets the ranges that there are, and keeps those that begin from now on.
extern "C" void plaitFakeBeginRanges() {
  std::lock_guard lock(ranges.mutex);
  ranges.threads.clear();
  ranges.isOn = true;
}

/// Ends that, and returns a block of lines for each thread; a line "broken" is
/// first where a range was not as it should be, or has not ended.
extern "C" const char *plaitFakeRanges() {
  std::lock_guard lock(ranges.mutex);
  bool isBroken = ranges.isBroken || ranges.domain != "plait";
  ranges.isOn = false;
  ranges.text.clear();
  for (const auto &[id, thread] : ranges.threads) {
    isBroken |= thread.depth != 0;
    for (const std::string &line : thread.lines)
      ranges.text += line + "\n";
  }
  if (isBroken)
    ranges.text = "broken\n" + ranges.text;
  return ranges.text.c_str();
}
