//===- Attention.h - How attention is compiled ------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_DRIVER_ATTENTION_H
#define PLAIT_LIB_DRIVER_ATTENTION_H

#include "plait/Codegen/Kernel.h"
#include "plait/Driver/Driver.h"

#include "mlir/IR/BuiltinOps.h"

namespace plait {

/// Fails where CompileOptions::attention is no kind of attention.
Status checkAttentionOption(const CompileOptions &options);

/// The ops of attention that lowering is to leave whole in `module`, which is
/// partitioned: each becomes one step. All or none. Where `flash` is asked for
/// and the target cannot compute an attention that way, the error has been
/// reported at it; where nothing is asked for, there are none then.
mlir::FailureOr<std::vector<std::string>>
findWholeAttention(mlir::ModuleOp module, const CompileOptions &options,
                   const codegen::Target &target);

} // namespace plait

#endif // PLAIT_LIB_DRIVER_ATTENTION_H
