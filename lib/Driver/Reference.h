//===- Reference.h - The unpartitioned model beside a plan ------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_DRIVER_REFERENCE_H
#define PLAIT_LIB_DRIVER_REFERENCE_H

#include "plait/Driver/Session.h"

#include "mlir/IR/BuiltinOps.h"

namespace plait {

/// The options of the reference of a plan that is compiled with these options,
/// as `configuration`: one rank, attention in its parts, and microbatches of
/// the same size. One microbatch is in flight.
CompileOptions getReferenceOptions(CompileOptions options,
                                   const TrainingConfiguration &configuration);

/// What one rank holds of the parameters of a model, at least, with what its
/// configuration keeps of them: known before anything is compiled.
uint64_t countParameterBytes(mlir::ModuleOp model);

/// Fails where a reference that needs `bytes` on its one rank is left out: it
/// could not be run where plans are checked.
Status checkReferenceSize(uint64_t bytes);

} // namespace plait

#endif // PLAIT_LIB_DRIVER_REFERENCE_H
