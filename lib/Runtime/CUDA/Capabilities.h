//===- Capabilities.h - Capabilities of GPU libraries -----------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CUDA_CAPABILITIES_H
#define PLAIT_LIB_RUNTIME_CUDA_CAPABILITIES_H

#include "plait/Plan/Check.h"

#include <span>
#include <string>

namespace plait::runtime {

/// The versions of what this process would run a CUDA plan with, as the
/// libraries number them. 0: it is not there, or does not say.
struct Capabilities {
  int driver = 0; // the CUDA that libcuda supports: 12080 is 12.8
  int nccl = 0;
  int ncclCudart = 0; // the CUDA that libnccl was built with
  int cublasLt = 0;
  int cudnn = 0;

  /// Opens the libraries that there are.
  static Capabilities find();

  /// "CUDA driver 13.0, NCCL 2.30.7 (CUDA 13.0), cuBLASLt 13.1.0, cuDNN
  /// 9.16.0"; "none" for what is not there.
  std::string describe() const;

  /// How NCCL orders what it launches, in recorded steps or in walked ones:
  /// getImplicitOrder() in its enqueue.cc.
  plan::LaunchOrder launchOrder(bool recorded) const;
  /// Refuses a plan whose ranks would wait for one another in that order.
  Status checkLaunchOrder(const plan::fb::Plan &plan, bool recorded) const;
};

/// The CUDA version in NCCL's text "NCCL version 2.30.7+cuda13.0", of which
/// there is one in every library; 0: there is none in `bytes`.
int findCudart(std::span<const char> bytes);

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CUDA_CAPABILITIES_H
