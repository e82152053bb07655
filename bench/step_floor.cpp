//===- step_floor.cpp - The least time that a plan's step takes -----------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What no step on this processor can go below: all GEMMs of the plan
// by oneDNN, each as fast as it is with plain operands, with rows that lie
// apart or with packed operands, and all bytes of the other steps at the
// bandwidth of memory. For each line of its input it measures everything once
// more and prints a line of JSON, so that it can take turns with what it is
// compared with:
//
//   step_floor PLAN THREADS [processor]
//
// The last word counts the time of the processor, of the first thread, and not
// what other work on it takes.
//
//===----------------------------------------------------------------------===//

#include "CPU/GemmShape.h"
#include "CPU/Team.h"
#include "plait/Plan/Check.h"
#include "plait/Plan/Container.h"
#include "plait/Plan/Defaults.h"
#include "plait/Plan/Messages.h"

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <dnnl.hpp>
#include <iostream>
#include <map>
#include <string_view>
#include <unordered_map>
#include <vector>

using namespace plait;
namespace fb = plait::plan::fb;
using plan::length;

namespace {

/// What seconds are counted by: CLOCK_MONOTONIC, or this thread's own time.
clockid_t countedClock = CLOCK_MONOTONIC;

double now() {
  timespec time;
  clock_gettime(countedClock, &time);
  return double(time.tv_sec) + 1e-9 * double(time.tv_nsec);
}

/// What makes two GEMMs equally fast.
struct Shape {
  int64_t batch, m, n, k;
  bool aTransposed, bTransposed, narrow, narrowResult;
  auto operator<=>(const Shape &) const = default;
};

/// What a step executes.
struct Work {
  std::map<Shape, uint64_t> gemms; // and how often
  double bytes = 0;                // of all else
};

/// Sizes of attention in terms of its GEMMs.
void addAttention(Work &work, const fb::AttentionStep &step, uint64_t calls) {
  bool narrow = step.dtype() == fb::DType::BF16;
  bool forward = step.kind() == fb::AttentionKind::Forward;
  int64_t batch = int64_t(step.batch()) * step.heads();
  int64_t queries = step.queries(), keys = step.keys(), size = step.head_size();
  work.gemms[{batch, queries, keys, size, false, true, narrow, narrow}] +=
      calls * (forward ? 1 : 2);
  work.gemms[{batch, queries, size, keys, false, false, narrow, narrow}] +=
      calls * (forward ? 1 : 3);
}

/// As if all experts had equally many rows.
void addGrouped(Work &work, const fb::GroupedGemmStep &step, uint64_t calls) {
  bool narrow = step.dtype() == fb::DType::BF16;
  bool narrowResult = step.c_dtype() == fb::DType::BF16;
  int64_t rows = (step.rows() + step.experts() - 1) / step.experts();
  Shape shape = {step.experts(),    rows,   step.n(),    step.k(), false,
                 step.transposed(), narrow, narrowResult};
  if (step.kind() == fb::GroupedKind::Matrices)
    shape = {step.experts(), step.k(), step.n(), rows,
             true,           false,    narrow,   narrowResult};
  work.gemms[shape] += calls;
}

void addStep(Work &work, const fb::Step &step, uint64_t calls) {
  if (const auto *kernel = step.step_as_KernelStep())
    work.bytes += double(calls) * double(kernel->traffic());
  // What goes to the memory of hosts, or comes from there, goes beside the
  // step.
  if (const auto *copy = step.step_as_CopyStep();
      copy && copy->kind() == fb::CopyKind::Within)
    work.bytes += 2.0 * double(calls) * double(copy->bytes());
  if (const auto *attention = step.step_as_AttentionStep())
    addAttention(work, *attention, calls);
  if (const auto *grouped = step.step_as_GroupedGemmStep())
    addGrouped(work, *grouped, calls);
  const auto *gemm = step.step_as_GemmStep();
  if (!gemm)
    return;
  int64_t batch = 1;
  for (uint32_t i = 0; i < length(gemm->batch()); ++i)
    batch *= gemm->batch()->Get(i);
  work.gemms[{batch, gemm->m(), gemm->n(), gemm->k(), gemm->a_col() != 1,
              gemm->b_col() != 1, gemm->dtype() == fb::DType::BF16,
              gemm->c_dtype() == fb::DType::BF16}] += calls;
}

Work countWork(const fb::Plan &plan) {
  Work work;
  const fb::Program &program = *plan.programs()->Get(0);
  std::vector<uint64_t> calls(length(program.functions()), 0);
  for (uint32_t i = 0; i < length(program.actions()); ++i)
    if (const fb::Action &action = *program.actions()->Get(i);
        !plan::isTransfer(action))
      ++calls[action.function()];
  for (uint32_t i = 0; i < calls.size(); ++i) {
    const auto *steps = program.functions()->Get(i)->steps();
    for (uint32_t j = 0; j < length(steps); ++j)
      addStep(work, *steps->Get(j), calls[i]);
  }
  return work;
}

/// Rows one after the other, apart as the cache likes them, or as oneDNN does.
enum class Layout { Plain, Spread, Packed };

/// One GEMM in one layout of its operands.
class Gemm {
public:
  Gemm(const Shape &shape, Layout layout, dnnl::engine &engine)
      : stream(engine) {
    using dims = dnnl::memory::dims;
    using type = dnnl::memory::data_type;
    type in = shape.narrow ? type::bf16 : type::f32;
    type out = shape.narrowResult ? type::bf16 : type::f32;
    auto describe = [&](int64_t rows, int64_t columns, bool transposed,
                        bool any) {
      int64_t width = transposed ? rows : columns;
      int64_t stride =
          layout == Layout::Spread ? runtime::spreadRows(width) : width;
      dims sizes{rows, columns}, strides{stride, 1};
      if (transposed)
        strides = {1, stride};
      if (shape.batch > 1) {
        sizes.insert(sizes.begin(), shape.batch);
        strides.insert(strides.begin(), rows * columns / width * stride);
      }
      return any ? dnnl::memory::desc(sizes, in, dnnl::memory::format_tag::any)
                 : dnnl::memory::desc(sizes, in, strides);
    };
    auto a = describe(shape.m, shape.k, shape.aTransposed, false);
    auto b =
        describe(shape.k, shape.n, shape.bTransposed, layout == Layout::Packed);
    dims sizes{shape.m, shape.n}, strides{shape.n, 1};
    if (shape.batch > 1) {
      sizes.insert(sizes.begin(), shape.batch);
      strides.insert(strides.begin(), shape.m * shape.n);
    }
    dnnl::memory::desc c(sizes, out, strides);
#if DNNL_VERSION_MAJOR >= 3
    dnnl::matmul::primitive_desc chosen(engine, a, b, c);
#else
    dnnl::matmul::primitive_desc chosen({a, b, c}, engine);
#endif
    code = dnnl::matmul(chosen);
    auto make = [&](const dnnl::memory::desc &desc) {
      dnnl::memory memory(desc, engine);
      fill(memory);
      return memory;
    };
    arguments = {{DNNL_ARG_SRC, make(chosen.src_desc())},
                 {DNNL_ARG_WEIGHTS, make(chosen.weights_desc())},
                 {DNNL_ARG_DST, make(chosen.dst_desc())}};
  }

  double run() {
    double start = now();
    code.execute(stream, arguments);
    stream.wait();
    return now() - start;
  }

private:
  /// Ones: zeros and denormals have speeds of their own.
  static void fill(dnnl::memory &memory) {
    auto *words = static_cast<uint16_t *>(memory.get_data_handle());
    for (size_t i = 0; i < memory.get_desc().get_size() / 2; ++i)
      words[i] = 0x3f80;
  }

  dnnl::stream stream;
  dnnl::matmul code;
  std::unordered_map<int, dnnl::memory> arguments;
};

/// The fastest of all layouts; memory for one GEMM at a time.
double measureGemm(const Shape &shape, dnnl::engine &engine) {
  double best = 1e300;
  for (Layout layout : {Layout::Plain, Layout::Spread, Layout::Packed}) {
    Gemm gemm(shape, layout, engine);
    gemm.run();
    for (int repeat = 0; repeat < 3; ++repeat)
      best = std::min(best, gemm.run());
  }
  return best;
}

/// Bytes a second that are read and written by all threads together.
double measureBandwidth(unsigned threads) {
  constexpr int64_t count = 1 << 25;
  static std::vector<float> from(count, 1.0f), to(count, 2.0f);
  double best = 1e300;
  for (int repeat = 0; repeat < 4; ++repeat) {
    double start = now();
    runtime::parallelFor(threads, count, 1 << 16,
                         [](int64_t begin, int64_t end) {
                           for (int64_t i = begin; i < end; ++i)
                             to[i] += 0.5f * from[i];
                         });
    best = std::min(best, now() - start);
  }
  return 3.0 * sizeof(float) * count / best;
}

} // namespace

int main(int argc, char **argv) {
  bool countsProcessor = argc == 4 && argv[3] == std::string_view("processor");
  if (argc != 3 && !countsProcessor) {
    std::cerr << "usage: step_floor PLAN THREADS [processor]\n";
    return 1;
  }
  if (countsProcessor)
    countedClock = CLOCK_THREAD_CPUTIME_ID;
  unsigned threads = std::max(1, std::atoi(argv[2]));
  runtime::setTeamSize(threads);
  auto file = plan::PlanFile::open(argv[1]);
  if (!file.ok()) {
    std::cerr << "error: " << file.status().message() << "\n";
    return 1;
  }
  Work work = countWork(file->plan());
  dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  for (std::string line; std::getline(std::cin, line);) {
    double gemms = 0;
    for (auto [shape, count] : work.gemms)
      gemms += double(count) * measureGemm(shape, engine);
    double bandwidth = measureBandwidth(threads),
           memory = work.bytes / bandwidth;
    std::printf("{\"seconds\": %g, \"gemm\": %g, \"memory\": %g, "
                "\"bandwidth\": %g}\n",
                gemms + memory, gemms, memory, bandwidth);
    std::fflush(stdout);
  }
  return 0;
}
