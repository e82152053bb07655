//===- PtxParser.h - The instructions of a kernel ---------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_TEST_UNIT_COMPILER_CODEGEN_PTXPARSER_H
#define PLAIT_TEST_UNIT_COMPILER_CODEGEN_PTXPARSER_H

#include "PtxInterpreter.h"

#include <span>

namespace plait::test {

/// The first word of an instruction's name.
enum class PtxOp {
  Abs,
  Add,
  And,
  Bar,
  Barrier,
  Bfe,
  Bfi,
  Bra,
  Brx,
  Copysign,
  Cvt,
  Cvta,
  Div,
  Ex2,
  Exit,
  Fma,
  Ld,
  Ldmatrix,
  Mad,
  Max,
  Min,
  Mma,
  Mov,
  Mul,
  Neg,
  Not,
  Or,
  Popc,
  Rcp,
  Rem,
  Ret,
  Selp,
  Setp,
  Shfl,
  Shl,
  Shr,
  Sqrt,
  St,
  Sub,
  Vote,
  Xor,
  Unknown
};

enum class PtxType {
  None,
  Pred,
  B16,
  B32,
  B64,
  U16,
  U32,
  U64,
  S32,
  S64,
  F32,
  BF16,
  BF16x2
};

/// Bytes of a value.
unsigned sizeOf(PtxType type);

struct PtxOperand {
  enum Kind { Register, Number, Param, Shared, Thread, Block, Label, Vector };
  Kind kind = Number;
  bool negated = false; // a predicate
  bool address = false; // in brackets
  unsigned reg = 0;     // of Register
  uint64_t number = 0;  // the value, byte offset or place in the code
  std::vector<PtxOperand> parts;
};

struct PtxInstruction {
  std::string text; // for messages
  PtxOp op = PtxOp::Unknown;
  std::string variant; // the second word of the name
  bool shared = false, param = false, high = false, wide = false, nan = false;
  PtxType type = PtxType::None; // the last of the name
  PtxType from = PtxType::None; // the last but one, if that is a type
  int guard = -1;               // a register
  bool guardNegated = false;
  std::vector<PtxOperand> operands;
};

/// The parts of a vector, or the operand itself.
inline std::span<const PtxOperand> partsOf(const PtxOperand &operand) {
  if (operand.kind == PtxOperand::Vector)
    return operand.parts;
  return {&operand, 1};
}

struct PtxModule::Kernel {
  unsigned threads = 0;
  unsigned registers = 0;
  uint64_t sharedBytes = 0;
  std::vector<uint64_t> paramBytes;
  std::vector<PtxInstruction> code;
};

/// Parses the body of one kernel, from its name on, up to the next kernel.
/// `shared` holds module-level shared memory. Returns what is wrong, or
/// nothing.
std::string parseKernel(const std::string &text,
                        const std::map<std::string, uint64_t> &shared,
                        std::string &name, PtxModule::Kernel &kernel);

} // namespace plait::test

#endif // PLAIT_TEST_UNIT_COMPILER_CODEGEN_PTXPARSER_H
