//===- Utilization.h - Utilization of devices -------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Model FLOP utilisation (Chowdhery et al. 2022, "PaLM", appendix B): what the
// model needs in a step, whatever is computed again, over what the devices of
// all ranks could do in the time that the step took. Both figures are the
// plan's: nothing is measured but time.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_RUNTIME_UTILIZATION_H
#define PLAIT_RUNTIME_UTILIZATION_H

#include "plait/Plan/Plan_generated.h"

#include <string>

namespace plait::runtime {

class Utilization {
public:
  explicit Utilization(const plan::fb::Plan &plan);

  /// FLOP/s of the model on all ranks, at `seconds` a step. 0 where the plan
  /// does not say what the model needs.
  double rate(double seconds) const { return flops / seconds; }
  /// Returns the part of the peak that is reached; 0 where the plan does not
  /// say which devices it is for.
  double mfu(double seconds) const {
    return peak > 0 ? rate(seconds) / peak : 0;
  }

  /// Tells people what is known of it: ", 12.3 TFLOP/s, MFU 41.2 %".
  std::string print(double seconds) const;
  /// And for a JSON object: `, "model_flops_per_second": 1.23e13, "mfu":
  /// 0.412`.
  std::string printFields(double seconds) const;

private:
  double flops; // of a step
  double peak = 0;
};

} // namespace plait::runtime

#endif // PLAIT_RUNTIME_UTILIZATION_H
