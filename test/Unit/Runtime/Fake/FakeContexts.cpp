//===- FakeContexts.cpp - Which GPU a call goes to ------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "FakeContexts.h"

#include "FakeStreams.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <utility>

using namespace plait::fake;

namespace {

struct Contexts {
  std::map<int, int> holders;          // by GPU
  std::map<int, int> made;             // by GPU, how often
  std::set<std::pair<int, int>> peers; // from, to
};

Contexts &contexts() {
  static Contexts all;
  return all;
}

thread_local int current = -1;

/// Contexts are the numbers of GPUs, from 1 on.
int gpuOf(CUcontext context) { return int(intptr_t(context)) - 1; }

} // namespace

void plait::fake::refuse(const char *why) {
  std::fprintf(stderr, "the fake GPU objects: %s\n", why);
  std::abort();
}

bool plait::fake::isHeld(int gpu) {
  std::lock_guard guard(lock());
  auto found = contexts().holders.find(gpu);
  return found != contexts().holders.end() && found->second > 0;
}

int plait::fake::contextOf(int gpu) {
  std::lock_guard guard(lock());
  return contexts().made[gpu];
}

int plait::fake::currentGpu() { return isHeld(current) ? current : -1; }

extern "C" {

CUresult cuDeviceCanAccessPeer(int *can, CUdevice, CUdevice) {
  *can = !setting("PLAIT_FAKE_NO_PEERS", 0);
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
  std::lock_guard guard(lock());
  if (contexts().holders[device]++ == 0)
    ++contexts().made[device];
  *context = reinterpret_cast<CUcontext>(intptr_t(device) + 1);
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  std::lock_guard guard(lock());
  if (!isHeld(device))
    refuse("a context is released that nobody holds");
  if (--contexts().holders[device] == 0)
    std::erase_if(contexts().peers, [&](const std::pair<int, int> &way) {
      return way.first == device || way.second == device;
    });
  return CUDA_SUCCESS;
}
CUresult cuCtxSetCurrent(CUcontext context) {
  if (!isHeld(gpuOf(context)))
    return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  current = gpuOf(context);
  return CUDA_SUCCESS;
}
CUresult cuCtxEnablePeerAccess(CUcontext other, unsigned) {
  std::lock_guard guard(lock());
  if (currentGpu() < 0 || !isHeld(gpuOf(other)) || gpuOf(other) == current)
    return CUDA_ERROR_INVALID_CONTEXT;
  return contexts().peers.insert({current, gpuOf(other)}).second
             ? CUDA_SUCCESS
             : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
}

} // extern "C"
