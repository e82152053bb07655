//===- Pipe.cpp - The pipe dialect ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Dialect/Pipe/IR/Pipe.h"

#include "mlir/IR/Builders.h"
#include "plait/Schedule/Verify.h"

#include <limits>

using namespace mlir;
using namespace plait;
using namespace plait::pipe;

#include "plait/Dialect/Pipe/IR/PipeDialect.cpp.inc"
#define GET_OP_CLASSES
#include "plait/Dialect/Pipe/IR/PipeOps.cpp.inc"

void PipeDialect::initialize() {
  addOperations<
#define GET_OP_LIST
#include "plait/Dialect/Pipe/IR/PipeOps.cpp.inc"
      >();
}

LogicalResult PipeDialect::verifyOperationAttribute(Operation *op,
                                                    NamedAttribute attribute) {
  auto isStage = [](Attribute value) {
    auto number = dyn_cast_or_null<IntegerAttr>(value);
    return number && number.getType().isSignlessInteger(64) &&
           number.getInt() >= 0;
  };
  if (attribute.getName() == kStageAttr && !isStage(attribute.getValue()))
    return op->emitError("has ") << kStageAttr << " = " << attribute.getValue()
                                 << ", expected an i64 of 0 or more";
  if (attribute.getName() != kPhaseAttr)
    return success();
  if (!isa<StringAttr>(attribute.getValue()))
    return op->emitError("has ") << kPhaseAttr << " = " << attribute.getValue()
                                 << ", expected a string";
  if (!isStage(op->getAttr(kStageAttr)))
    return op->emitError("has ") << kPhaseAttr << " = " << attribute.getValue()
                                 << " but no " << kStageAttr;
  return success();
}

Result<schedule::Schedule> pipe::parseSchedule(ScheduleOp op) {
  constexpr int64_t most = std::numeric_limits<uint32_t>::max();
  for (int64_t count : {op.getStages(), op.getMicrobatches()})
    if (count < 1 || count > most)
      return fail("count ", count, " is not in 1 … ", most);
  schedule::Problem problem;
  problem.stages = op.getStages();
  problem.microbatches = op.getMicrobatches();
  PLAIT_RETURN_IF_ERROR(problem.check());
  std::string text;
  for (auto rank : op.getActions().getAsRange<StringAttr>())
    text += rank.getValue().str() + "\n";
  return schedule::parseSchedule(problem, op.getKind().str(), text);
}

LogicalResult ScheduleOp::verify() {
  // (C1)
  Result<schedule::Schedule> parsed = parseSchedule(*this);
  if (!parsed.ok())
    return emitOpError("does not parse: ") << parsed.status().message();
  // (C2)
  if (Status sound = schedule::verify(*parsed); !sound.ok())
    return emitOpError("is not sound: ") << sound.message();
  return success();
}
