//===- FakeModules.cpp - Kernels of a GPU, on the CPU ---------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CUDA/ChecksumKernel.h"
#include "CUDA/CollectiveKernels.h"
#include "CUDA/EpilogueKernels.h"
#include "FakeContexts.h"
#include "FakeGrouped.h"
#include "FakeRows.h"
#include "FakeStreams.h"
#include "plait/Support/BFloat16.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <dlfcn.h>
#include <sstream>
#include <string>

using namespace plait::fake;
using plait::runtime::ChecksumParams;
using plait::runtime::EpilogueParams;
using plait::runtime::ReduceParams;

/// A kernel: compiled for the CPU, or one of the runtime's own.
struct CUfunc_st {
  int gpu = currentGpu();
  using Code = void (*)(char *const *, const int64_t *, int64_t, int64_t);
  Code code = nullptr;
  size_t args = 0, scalars = 0;
  int64_t extent = 0, each = 1;
  void (*reduction)(const ReduceParams &params) = nullptr;
  void (*epilogue)(const EpilogueParams &params) = nullptr;
  GroupedKernel grouped;
  bool checksum = false;
};

struct CUmod_st {
  void *library = nullptr;
  std::map<std::string, CUfunc_st> functions;
};

namespace {

/// Whether the driver's compiler knows the version of PTX that `text` names:
/// CUDA 13.x has 9.x, 12.x has 8.x up to 12.5, and 8.(x - 1) from 12.6 on.
bool knowsPtx(const char *text) {
  int cuda = int(setting("PLAIT_FAKE_CUDA_VERSION", 13000)) / 10;
  int minor = cuda % 100, newest = (cuda / 100 - 4) * 10 + minor;
  newest -= cuda / 100 == 12 && minor > 5;
  int major = 0;
  const char *version = std::strstr(text, ".version ");
  return version &&
         std::sscanf(version, ".version %d.%d", &major, &minor) == 2 &&
         major * 10 + minor <= newest;
}

/// By Plan.fbs, after the product.
template <typename Element> void finish(const EpilogueParams &params) {
  enum { Bias = 1, Gelu, BiasGelu, GeluGradient };
  auto slope = [](double x) { // σ(x) for 1 + tanh, and the product's rule
    double v = 2 * std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
    double s = 1 / (1 + std::exp(-v));
    double dv = 2 * std::sqrt(2 / M_PI) * (1 + 0.134145 * x * x);
    return std::pair(x * s, s + x * s * (1 - s) * dv);
  };
  for (int64_t row = 0; row < params.rows; ++row)
    for (int64_t column = 0; column < params.columns; ++column) {
      int64_t place = row * params.stride + column;
      Element &c = static_cast<Element *>(params.c)[place];
      auto *input = static_cast<Element *>(params.geluInput);
      double value = float(c);
      if (params.kind == Bias || params.kind == BiasGelu)
        value += float(static_cast<const Element *>(params.bias)[column]);
      if (params.kind == GeluGradient)
        value *= slope(float(input[place])).second;
      else if (input)
        input[place] = Element(float(value));
      bool bends = params.kind == Gelu || params.kind == BiasGelu;
      c = Element(float(bends ? slope(value).first : value));
    }
}

/// Of bytes and places, in an order of its own.
void addUp(const ChecksumParams &params) {
  for (uint64_t i = params.units; i-- > 0;)
    *params.sum += plait::runtime::mixBits(i << 16 | params.data[i]);
}

template <typename Element, bool maximum>
void reduce(const ReduceParams &params) {
  for (int64_t i = 0; i < params.outer * params.chunk; ++i) {
    int64_t row = i / params.chunk, column = i % params.chunk;
    int64_t from = row * params.inputStride + column;
    auto input = [&](int member) -> float {
      return static_cast<const Element *>(params.inputs[member])[from];
    };
    float value = input(0);
    for (int j = 1; j < params.inputCount; ++j) {
      float next = input(j);
      value = !maximum ? value + next : value < next ? next : value;
    }
    for (int j = 0; j < params.outputCount; ++j)
      static_cast<Element *>(
          params.outputs[j])[row * params.outputStride + column] =
          Element(value);
  }
}

} // namespace

extern "C" {

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned,
                            CUjit_option *, void **) {
  if (currentGpu() < 0)
    return CUDA_ERROR_INVALID_CONTEXT;
  std::istringstream text(static_cast<const char *>(image));
  std::string word, path;
  auto made = std::make_unique<CUmod_st>();
  text >> word;
  if (word == "plait-fake") {
    text >> path;
    made->library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!made->library)
      return CUDA_ERROR_INVALID_PTX;
    std::string name, code;
    CUfunc_st function;
    while (text >> name >> code >> function.args >> function.scalars >>
           function.extent >> function.each) {
      function.code =
          reinterpret_cast<CUfunc_st::Code>(dlsym(made->library, code.c_str()));
      if (function.code)
        made->functions[name] = function;
    }
  } else if (knowsPtx(static_cast<const char *>(image))) {
    using plait::BFloat16;
    auto &functions = made->functions;
    functions[PLAIT_REDUCE_SUM].reduction = reduce<float, false>;
    functions[PLAIT_REDUCE_MAX].reduction = reduce<float, true>;
    functions[PLAIT_REDUCE_SUM_BF16].reduction = reduce<BFloat16, false>;
    functions[PLAIT_REDUCE_MAX_BF16].reduction = reduce<BFloat16, true>;
    functions[PLAIT_CHECKSUM].checksum = true;
    functions[PLAIT_EPILOGUE].epilogue = finish<float>;
    functions[PLAIT_EPILOGUE_BF16].epilogue = finish<BFloat16>;
    for (const auto *kernels : {&groupedKernels(), &rowKernels()})
      for (const auto &[name, grouped] : *kernels)
        functions[name].grouped = grouped;
  } else {
    return CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
  }
  *module = made.release();
  return CUDA_SUCCESS;
}
CUresult cuModuleUnload(CUmodule module) {
  if (currentGpu() < 0)
    return CUDA_ERROR_INVALID_CONTEXT;
  delete module;
  return CUDA_SUCCESS;
}
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module,
                             const char *name) {
  auto found = module->functions.find(name);
  if (found == module->functions.end())
    return CUDA_ERROR_NOT_FOUND;
  *function = &found->second;
  return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction function, unsigned blocks, unsigned,
                        unsigned, unsigned threads, unsigned, unsigned,
                        unsigned, CUstream stream, void **params, void **) {
  if (blocks == 0 || threads == 0 || threads > 1024)
    return CUDA_ERROR_INVALID_VALUE;
  if (function->gpu != stream->gpu)
    return CUDA_ERROR_INVALID_HANDLE;
  if (setting("PLAIT_FAKE_BROKEN_GPU", -1) == stream->gpu)
    return CUDA_ERROR_ILLEGAL_ADDRESS;
  if (function->epilogue)
    return enqueue(stream, [params = *static_cast<EpilogueParams *>(params[0]),
                            epilogue = function->epilogue] {
      epilogue(params);
      return true;
    });
  if (function->grouped) {
    std::function<void()> work = function->grouped(params, blocks);
    if (!work)
      return CUDA_ERROR_INVALID_VALUE;
    return enqueue(stream, [work] {
      work();
      return true;
    });
  }
  if (function->checksum) {
    auto what = *static_cast<ChecksumParams *>(params[0]);
    if (!allocated(what.data, what.units * 2))
      return CUDA_ERROR_INVALID_VALUE;
    return enqueue(stream, [what] {
      addUp(what);
      return true;
    });
  }
  if (!function->code)
    return enqueue(stream, [params = *static_cast<ReduceParams *>(params[0]),
                            reduction = function->reduction] {
      reduction(params);
      return true;
    });
  std::vector<char *> args;
  std::vector<int64_t> scalars;
  for (size_t i = 0; i < function->args; ++i)
    args.push_back(*static_cast<char **>(params[i]));
  for (size_t i = 0; i < function->scalars; ++i)
    scalars.push_back(*static_cast<int64_t *>(params[function->args + i]));
  for (char *arg : args)
    if (!allocated(arg, 0))
      return CUDA_ERROR_INVALID_VALUE;
  return enqueue(stream, [=, function = *function] {
    for (int64_t block = 0; block < blocks; ++block)
      function.code(args.data(), scalars.data(), block * function.each,
                    std::min(function.extent, (block + 1) * function.each));
    return true;
  });
}

} // extern "C"
