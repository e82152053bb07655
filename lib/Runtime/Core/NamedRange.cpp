//===- NamedRange.cpp - Names for profilers -------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// NVTX is a header: it opens the library that a profiler names in the
// environment. Without one it makes no domain, which is how its absence shows.
//
//===----------------------------------------------------------------------===//

#include "NamedRange.h"

#if PLAIT_HAS_NVTX
#include <nvtx3/nvToolsExt.h>
#endif

using namespace plait::runtime;

#if PLAIT_HAS_NVTX

static nvtxDomainHandle_t getDomain() {
  static const nvtxDomainHandle_t domain = nvtxDomainCreateA("plait");
  return domain;
}

bool NamedRange::areWanted() { return getDomain(); }

void NamedRange::begin(const std::string &name) {
  nvtxEventAttributes_t attributes = {};
  attributes.version = NVTX_VERSION;
  attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
  attributes.message.ascii = name.c_str();
  nvtxDomainRangePushEx(getDomain(), &attributes);
}

void NamedRange::end() { nvtxDomainRangePop(getDomain()); }

#else

bool NamedRange::areWanted() { return false; }
void NamedRange::begin(const std::string &) {}
void NamedRange::end() {}

#endif
