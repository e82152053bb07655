//===- PtxArithmetic.cpp - What instructions compute ----------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "PtxArithmetic.h"

#include "plait/Support/BFloat16.h"

#include <bit>
#include <cmath>
#include <limits>

using namespace plait;
using namespace plait::test;

using Inputs = PtxInputs;
using Computed = std::optional<uint64_t>;

static float asFloat(uint64_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits));
}
static uint64_t bitsOf(float value) { return std::bit_cast<uint32_t>(value); }

static bool isSigned(PtxType type) {
  return type == PtxType::S32 || type == PtxType::S64;
}

/// The number that bits stand for, widened to 64 bits.
static int64_t asInteger(uint64_t bits, PtxType type) {
  unsigned shift = 64 - 8 * sizeOf(type);
  return isSigned(type) ? static_cast<int64_t>(bits << shift) >> shift
                        : static_cast<int64_t>(bits << shift >> shift);
}

//===----------------------------------------------------------------------===//
// Floats
//===----------------------------------------------------------------------===//

static Computed computeFloat(const PtxInstruction &instruction,
                             const Inputs &in) {
  PtxOp op = instruction.op;
  float a = asFloat(in.bits[0]), b = in.count > 1 ? asFloat(in.bits[1]) : 0;
  if (op == PtxOp::Add)
    return bitsOf(a + b);
  if (op == PtxOp::Sub)
    return bitsOf(a - b);
  if (op == PtxOp::Mul)
    return bitsOf(a * b);
  if (op == PtxOp::Div)
    return bitsOf(a / b);
  if (op == PtxOp::Fma)
    return bitsOf(std::fma(a, b, asFloat(in.bits[2])));
  if (op == PtxOp::Ex2) // as far off as the manual allows, to either side
    return bitsOf(float(std::exp2(double(a)) *
                        (1 + (in.bits[0] & 1 ? 0x1.6ap-23 : -0x1.6ap-23))));
  if (op == PtxOp::Rcp)
    return bitsOf(1 / a);
  if (op == PtxOp::Sqrt)
    return bitsOf(std::sqrt(a));
  if (op == PtxOp::Neg)
    return in.bits[0] ^ 0x80000000u;
  if (op == PtxOp::Abs)
    return in.bits[0] & 0x7fffffffu;
  if (op == PtxOp::Copysign)
    return (in.bits[0] & 0x80000000u) | (in.bits[1] & 0x7fffffffu);
  if (op != PtxOp::Min && op != PtxOp::Max)
    return std::nullopt;
  if (std::isnan(a) || std::isnan(b)) {
    if (instruction.nan)
      return bitsOf(std::numeric_limits<float>::quiet_NaN());
    return std::isnan(a) ? in.bits[1] : in.bits[0];
  }
  // Minus zero is below zero.
  bool first =
      std::signbit(a) != std::signbit(b) && a == b ? std::signbit(a) : a < b;
  return (op == PtxOp::Min) == first ? in.bits[0] : in.bits[1];
}

//===----------------------------------------------------------------------===//
// Integers
//===----------------------------------------------------------------------===//

/// Products of two numbers, whole or one half.
static Computed computeProduct(const PtxInstruction &instruction,
                               const Inputs &in) {
  PtxType type = instruction.type;
  __int128 product =
      isSigned(type)
          ? __int128(asInteger(in.bits[0], type)) * asInteger(in.bits[1], type)
          : __int128(static_cast<unsigned __int128>(
                         static_cast<uint64_t>(asInteger(in.bits[0], type))) *
                     static_cast<uint64_t>(asInteger(in.bits[1], type)));
  if (instruction.high)
    product >>= 8 * sizeOf(type);
  uint64_t result = static_cast<uint64_t>(product);
  return instruction.op == PtxOp::Mad ? result + in.bits[2] : result;
}

static uint64_t shift(const PtxInstruction &instruction, const Inputs &in) {
  PtxType type = instruction.type;
  unsigned bits = 8 * sizeOf(type);
  uint64_t distance =
      std::min<uint64_t>(static_cast<uint32_t>(in.bits[1]), bits);
  if (instruction.op == PtxOp::Shl)
    return distance >= 64 ? 0 : in.bits[0] << distance;
  if (isSigned(type))
    return asInteger(in.bits[0], type) >> std::min<uint64_t>(distance, 63);
  return distance >= 64
             ? 0
             : static_cast<uint64_t>(asInteger(in.bits[0], type)) >> distance;
}

/// Some of the bits of a number: from one on, so many, all of them inside. Of a
/// signed number the last of them is the sign.
static Computed extractField(const PtxInstruction &instruction,
                             const Inputs &in) {
  uint64_t first = in.bits[1], count = in.bits[2];
  if (count == 0 || first + count > 8 * sizeOf(instruction.type))
    return std::nullopt;
  uint64_t above = 64 - first - count;
  uint64_t number = in.bits[0] << above;
  if (isSigned(instruction.type))
    return static_cast<int64_t>(number) >> (64 - count);
  return number >> (64 - count);
}

/// The first bits of one number in the place of some of another: from one on,
/// so many.
static Computed insertField(const PtxInstruction &instruction,
                            const Inputs &in) {
  uint64_t first = in.bits[2], count = in.bits[3];
  if (count == 0 || first + count > 8 * sizeOf(instruction.type))
    return std::nullopt;
  uint64_t mask = (~uint64_t(0) >> (64 - count)) << first;
  return (in.bits[0] << first & mask) | (in.bits[1] & ~mask);
}

static Computed computeInteger(const PtxInstruction &instruction,
                               const Inputs &in) {
  PtxOp op = instruction.op;
  PtxType type = instruction.type;
  int64_t a = asInteger(in.bits[0], type);
  int64_t b = in.count > 1 ? asInteger(in.bits[1], type) : 0;
  if (op == PtxOp::Mul || op == PtxOp::Mad)
    return computeProduct(instruction, in);
  if (op == PtxOp::Shl || op == PtxOp::Shr)
    return shift(instruction, in);
  if (op == PtxOp::Bfe)
    return extractField(instruction, in);
  if (op == PtxOp::Bfi)
    return insertField(instruction, in);
  if (op == PtxOp::Add)
    return in.bits[0] + in.bits[1];
  if (op == PtxOp::Sub)
    return in.bits[0] - in.bits[1];
  if (op == PtxOp::Neg)
    return -in.bits[0];
  if (op == PtxOp::And)
    return in.bits[0] & in.bits[1];
  if (op == PtxOp::Or)
    return in.bits[0] | in.bits[1];
  if (op == PtxOp::Xor)
    return in.bits[0] ^ in.bits[1];
  if (op == PtxOp::Not)
    return type == PtxType::Pred ? !in.bits[0] : ~in.bits[0];
  if (op == PtxOp::Popc)
    return std::popcount(static_cast<uint64_t>(asInteger(
        in.bits[0], sizeOf(type) == 8 ? PtxType::U64 : PtxType::U32)));
  if (op == PtxOp::Min || op == PtxOp::Max) {
    bool less = isSigned(type)
                    ? a < b
                    : static_cast<uint64_t>(a) < static_cast<uint64_t>(b);
    return (op == PtxOp::Min) == less ? a : b;
  }
  if ((op != PtxOp::Div && op != PtxOp::Rem) || b == 0)
    return std::nullopt;
  if (isSigned(type))
    return op == PtxOp::Div ? a / b : a % b;
  uint64_t x = a, y = b;
  return op == PtxOp::Div ? x / y : x % y;
}

//===----------------------------------------------------------------------===//
// Comparisons and conversions
//===----------------------------------------------------------------------===//

template <typename T>
static Computed compareAs(const std::string &how, T a, T b) {
  if (how == "eq" || how == "equ")
    return a == b;
  if (how == "ne" || how == "neu")
    return a != b;
  if (how == "lt" || how == "lo" || how == "ltu")
    return a < b;
  if (how == "le" || how == "ls" || how == "leu")
    return a <= b;
  if (how == "gt" || how == "hi" || how == "gtu")
    return a > b;
  if (how == "ge" || how == "hs" || how == "geu")
    return a >= b;
  return std::nullopt;
}

static Computed compare(const PtxInstruction &instruction, const Inputs &in) {
  const std::string &how = instruction.variant;
  if (instruction.type == PtxType::F32) {
    float a = asFloat(in.bits[0]), b = asFloat(in.bits[1]);
    if (how == "num" || how == "nan")
      return (std::isnan(a) || std::isnan(b)) == (how == "nan");
    // Unordered comparisons hold for NaN, all others do not.
    if (std::isnan(a) || std::isnan(b))
      return how.size() == 3;
    return compareAs(how, a, b);
  }
  int64_t a = asInteger(in.bits[0], instruction.type);
  int64_t b = asInteger(in.bits[1], instruction.type);
  if (isSigned(instruction.type))
    return compareAs(how, a, b);
  return compareAs(how, static_cast<uint64_t>(a), static_cast<uint64_t>(b));
}

/// To the nearest bf16; a NaN becomes the canonical one.
static uint64_t roundHalf(float value) {
  return std::isnan(value) ? 0x7fff : BFloat16(value).bits;
}

/// cvt.<rounding>.<to>.<from>
static Computed convert(const PtxInstruction &instruction,
                        const Inputs &inputs) {
  uint64_t in = inputs.bits[0];
  PtxType from = instruction.type, to = instruction.from;
  const std::string &rounding = instruction.variant;
  if (from == PtxType::F32 && to == PtxType::BF16 && rounding == "rn")
    return roundHalf(asFloat(in));
  // The first operand becomes the upper half.
  if (from == PtxType::F32 && to == PtxType::BF16x2 && rounding == "rn")
    return roundHalf(asFloat(in)) << 16 | roundHalf(asFloat(inputs.bits[1]));
  if (from == PtxType::F32 && to == PtxType::F32)
    return bitsOf(rounding == "rmi"   ? std::floor(asFloat(in))
                  : rounding == "rpi" ? std::ceil(asFloat(in))
                  : rounding == "rzi" ? std::trunc(asFloat(in))
                                      : std::nearbyint(asFloat(in)));
  if (from == PtxType::F32) {
    float value = asFloat(in);
    if (to != PtxType::S32 || rounding != "rzi")
      return std::nullopt;
    // Out of range goes to the nearest number there is, NaN to 0.
    if (std::isnan(value))
      return 0;
    if (value >= 2147483648.0f)
      return 0x7fffffffu;
    return static_cast<uint32_t>(
        value <= -2147483648.0f ? INT32_MIN : static_cast<int32_t>(value));
  }
  int64_t value = asInteger(in, from);
  if (to != PtxType::F32)
    return value;
  return bitsOf(isSigned(from)
                    ? static_cast<float>(value)
                    : static_cast<float>(static_cast<uint64_t>(value)));
}

//===----------------------------------------------------------------------===//
// All
//===----------------------------------------------------------------------===//

PtxType test::resultType(const PtxInstruction &instruction) {
  PtxOp op = instruction.op;
  if (op == PtxOp::Setp)
    return PtxType::Pred;
  if (op == PtxOp::Cvt)
    return instruction.from;
  if (op == PtxOp::Popc)
    return PtxType::B32;
  if (instruction.wide)
    return PtxType::B64;
  return instruction.type;
}

/// mov.<type> x, {low, high}
static uint64_t join(PtxType type, const Inputs &in) {
  unsigned half = 4 * sizeOf(type);
  uint64_t mask = (uint64_t(1) << half) - 1;
  return (in.bits[0] & mask) | in.bits[1] << half;
}

Computed test::computePtx(const PtxInstruction &instruction, const Inputs &in) {
  PtxOp op = instruction.op;
  if (in.count == 0)
    return std::nullopt;
  // Addresses are the same in all spaces here.
  if (op == PtxOp::Mov || op == PtxOp::Cvta)
    return in.count == 2 ? join(instruction.type, in) : in.bits[0];
  if (op == PtxOp::Selp)
    return in.bits[2] ? in.bits[0] : in.bits[1];
  if (op == PtxOp::Setp)
    return compare(instruction, in);
  if (op == PtxOp::Cvt)
    return convert(instruction, in);
  if (instruction.type == PtxType::F32)
    return computeFloat(instruction, in);
  return computeInteger(instruction, in);
}
