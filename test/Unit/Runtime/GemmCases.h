//===- GemmCases.h - GEMMs against a plain loop -----------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_TEST_UNIT_RUNTIME_GEMMCASES_H
#define PLAIT_TEST_UNIT_RUNTIME_GEMMCASES_H

#include "plait/Plan/Plan_generated.h"
#include "plait/Support/BFloat16.h"
#include "plait/Support/Status.h"

#include <array>
#include <cmath>
#include <functional>
#include <gtest/gtest.h>
#include <span>
#include <vector>

namespace plait::test {

namespace fb = plan::fb;

inline std::vector<float> valuesOf(size_t count, int salt) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i)
    values[i] = float((i * 7919 + salt) % 1001) / 500.0f - 1.0f;
  return values;
}

/// Calls `visit(a, b, c offsets)` for every GEMM of the batch.
template <typename Visit>
void forEachGemm(const fb::GemmStepT &shape, size_t dim, int64_t a, int64_t b,
                 int64_t c, Visit visit) {
  if (dim == shape.batch.size())
    return visit(a, b, c);
  for (int64_t i = 0; i < shape.batch[dim]; ++i)
    forEachGemm(shape, dim + 1, a + i * shape.a_batch[dim],
                b + i * shape.b_batch[dim], c + i * shape.c_batch[dim], visit);
}

/// By Plan.fbs, in double precision.
inline void multiply(const fb::GemmStepT &shape, const std::vector<float> &a,
                     const std::vector<float> &b, std::vector<float> &c,
                     bool add) {
  forEachGemm(shape, 0, 0, 0, 0, [&](int64_t atA, int64_t atB, int64_t atC) {
    for (int64_t i = 0; i < shape.m; ++i)
      for (int64_t j = 0; j < shape.n; ++j) {
        float &target = c[atC + i * shape.c_row + j];
        double sum = add ? target : 0;
        for (int64_t k = 0; k < shape.k; ++k)
          sum += double(a[atA + i * shape.a_row + k * shape.a_col]) *
                 b[atB + k * shape.b_row + j * shape.b_col];
        target = float(sum);
      }
  });
}

/// A matrix in memory; `values` are rounded if it is of halves.
class Operand {
public:
  Operand(fb::DType type, std::vector<float> &values)
      : narrow(type == fb::DType::BF16) {
    if (!narrow) {
      floats = values;
      return;
    }
    halves = {values.begin(), values.end()};
    values.assign(halves.begin(), halves.end());
  }

  std::span<std::byte> bytes() {
    return narrow ? std::as_writable_bytes(std::span(halves))
                  : std::as_writable_bytes(std::span(floats));
  }
  float operator[](size_t i) const { return narrow ? halves[i] : floats[i]; }

private:
  bool narrow;
  std::vector<float> floats;
  std::vector<BFloat16> halves;
};

/// The operands of a GEMM in the host's memory; empty: the step has none.
struct GemmMemory {
  std::span<std::byte> a, b, c, bias = {}, geluInput = {};
};

/// C = A B and the step's epilogue or, with `add`, C += A B.
using Multiply = std::function<Status(const fb::GemmStep &step,
                                      const GemmMemory &memory, bool add)>;

/// Compares all of C, so that what lies between its rows must stay.
inline void expectGemm(fb::GemmStepT shape, const Multiply &run,
                       size_t elements = 100000) {
  for (auto *ref : {&shape.a, &shape.b, &shape.c})
    *ref = std::make_unique<fb::Ref>(0, -1);
  flatbuffers::FlatBufferBuilder builder;
  builder.Finish(fb::GemmStep::Pack(builder, &shape));
  const auto &step =
      *flatbuffers::GetRoot<fb::GemmStep>(builder.GetBufferPointer());
  std::vector<float> a = valuesOf(elements, 1), b = valuesOf(elements, 2);
  Operand memoryA(shape.dtype, a), memoryB(shape.dtype, b);
  bool narrow = shape.c_dtype == fb::DType::BF16;
  for (bool add : {false, true}) {
    std::vector<float> expected = valuesOf(elements, 3);
    Operand found(shape.c_dtype, expected);
    multiply(shape, a, b, expected, add);
    Status status =
        run(step, {memoryA.bytes(), memoryB.bytes(), found.bytes()}, add);
    ASSERT_TRUE(status.ok()) << status.message();
    // The roundings of sums of up to a thousand products of about 1; of a
    // result of 8 bits, half of the last.
    for (size_t i = 0; i < expected.size(); ++i)
      ASSERT_NEAR(found[i], expected[i],
                  1e-4 + (narrow ? 0x1p-8 * std::abs(expected[i]) : 0))
          << "element " << i;
  }
}

/// The same of halves, into floats and into halves.
inline void expectHalfGemms(fb::GemmStepT shape, const Multiply &run,
                            size_t elements = 100000) {
  shape.dtype = fb::DType::BF16;
  for (fb::DType type : {fb::DType::F32, fb::DType::BF16}) {
    shape.c_dtype = type;
    expectGemm(shape, run, elements);
  }
}

/// x Φ(x) with the tanh for Φ that Plan.fbs names.
inline double gelu(double x) {
  return x / 2 *
         (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * std::pow(x, 3))));
}

/// By differences, so that it shares no formula with the code under test; off
/// by at most 1e-9.
inline double geluSlope(double x) {
  constexpr double step = 1e-5;
  return (gelu(x + step) - gelu(x - step)) / (2 * step);
}

/// What an epilogue makes of the sum of element (row, column), with the element
/// of GELU's input.
inline double finish(fb::Epilogue kind, double sum, double bias, float &input) {
  switch (kind) {
  case fb::Epilogue::Bias:
    return sum + bias;
  case fb::Epilogue::Gelu:
    return gelu(input = float(sum));
  case fb::Epilogue::BiasGelu:
    return gelu(input = float(sum + bias));
  case fb::Epilogue::GeluGradient:
    return sum * geluSlope(input);
  default:
    return sum;
  }
}

/// Compares all of C and of GELU's input; forward, the latter is kept only with
/// `keeps`.
inline void expectEpilogue(fb::GemmStepT shape, fb::Epilogue kind, bool keeps,
                           const Multiply &run, size_t elements = 20000) {
  bool biased = kind == fb::Epilogue::Bias || kind == fb::Epilogue::BiasGelu;
  bool hasInput = kind == fb::Epilogue::GeluGradient ||
                  (keeps && kind != fb::Epilogue::Bias);
  shape.epilogue = kind;
  for (auto *ref : {&shape.a, &shape.b, &shape.c})
    *ref = std::make_unique<fb::Ref>(0, -1);
  if (biased && !shape.bias)
    shape.bias = std::make_unique<fb::Ref>(0, -1);
  if (hasInput)
    shape.gelu_input = std::make_unique<fb::Ref>(0, -1);
  flatbuffers::FlatBufferBuilder builder;
  builder.Finish(fb::GemmStep::Pack(builder, &shape));
  const auto &step =
      *flatbuffers::GetRoot<fb::GemmStep>(builder.GetBufferPointer());

  std::vector<float> a = valuesOf(elements, 1), b = valuesOf(elements, 2);
  std::vector<float> c = valuesOf(elements, 3), bias = valuesOf(shape.n, 4);
  std::vector<float> input = valuesOf(elements, 5);
  Operand memoryA(shape.dtype, a), memoryB(shape.dtype, b);
  Operand memoryC(shape.c_dtype, c), memoryBias(shape.c_dtype, bias);
  Operand memoryInput(shape.c_dtype, input);
  GemmMemory memory = {memoryA.bytes(), memoryB.bytes(), memoryC.bytes()};
  if (biased)
    memory.bias = memoryBias.bytes();
  if (hasInput)
    memory.geluInput = memoryInput.bytes();
  std::vector<float> sums = c, inputs = input;
  multiply(shape, a, b, sums, /*add=*/false);
  Status status = run(step, memory, /*add=*/false);
  ASSERT_TRUE(status.ok()) << status.message();

  for (int64_t row = 0; row < shape.m; ++row)
    for (int64_t column = 0; column < shape.n; ++column) {
      int64_t place = row * shape.c_row + column;
      c[place] = float(finish(kind, sums[place], bias[column], inputs[place]));
    }
  // Sums as in expectGemm; of 8 bits, the sum and what is stored are rounded
  // by half of the last each, and GELU is at most 1.13 times as steep as x.
  float rounding = shape.c_dtype == fb::DType::BF16 ? 1.13f * 0x1p-8f : 0;
  for (size_t i = 0; i < c.size(); ++i) {
    float tolerance = 1e-4f + rounding * (std::abs(sums[i]) + std::abs(c[i]) +
                                          std::abs(inputs[i]));
    ASSERT_NEAR(memoryC[i], c[i], tolerance) << "element " << i;
    float kept = hasInput ? inputs[i] : input[i];
    ASSERT_NEAR(memoryInput[i], kept, tolerance) << "GELU's input " << i;
  }
}

/// All epilogues, of floats and of halves.
inline void expectEpilogues(const fb::GemmStepT &shape, const Multiply &run) {
  for (fb::DType type : {fb::DType::F32, fb::DType::BF16})
    for (fb::Epilogue kind : fb::EnumValuesEpilogue())
      for (bool keeps : {false, true}) {
        if (kind == fb::Epilogue::None)
          continue;
        SCOPED_TRACE(testing::Message()
                     << fb::EnumNameDType(type) << " "
                     << fb::EnumNameEpilogue(kind) << ", keeps " << keeps);
        fb::GemmStepT copy = shape;
        copy.dtype = copy.c_dtype = type;
        expectEpilogue(std::move(copy), kind, keeps, run);
      }
}

/// A GEMM with rows longer than necessary by `slack`.
inline fb::GemmStepT makeShape(int64_t m, int64_t n, int64_t k, bool transposeA,
                               bool transposeB, int64_t slack) {
  fb::GemmStepT shape;
  shape.m = m, shape.n = n, shape.k = k;
  shape.a_row = transposeA ? 1 : k + slack;
  shape.a_col = transposeA ? m + slack : 1;
  shape.b_row = transposeB ? 1 : n + slack;
  shape.b_col = transposeB ? k + slack : 1;
  shape.c_row = n + slack;
  return shape;
}

/// Calls `check` with a GEMM of each of `sizes` (m, n, k), of matrices as
/// they are and transposed, and with each of `slacks`.
template <typename Check>
void forEachLayout(const std::vector<std::array<int64_t, 3>> &sizes,
                   const std::vector<int64_t> &slacks, Check check) {
  for (auto [m, n, k] : sizes)
    for (bool transposeA : {false, true})
      for (bool transposeB : {false, true})
        for (int64_t slack : slacks)
          check(makeShape(m, n, k, transposeA, transposeB, slack));
}

} // namespace plait::test

#endif // PLAIT_TEST_UNIT_RUNTIME_GEMMCASES_H
