//===- CudaKernels.cpp - The loaded kernels of a plan ---------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Loads a plan's code on a GPU: the cubin that is made for it, or else PTX that
// the driver compiles. Which kernel is which is known by name when the plan is
// loaded, and by number in a step.
//
//===----------------------------------------------------------------------===//

#include "CudaKernels.h"

#include "plait/Plan/Defaults.h"

#include <algorithm>
#include <charconv>
#include <optional>

using namespace plait;
using namespace plait::runtime;
namespace fb = plait::plan::fb;

namespace {

/// 90 of "sm_90"; nothing for "sm_90a" and its like, whose code runs on no
/// other architecture.
std::optional<int> plainArchitecture(std::string_view cpu) {
  constexpr std::string_view prefix = "sm_";
  int number = 0;
  if (!cpu.starts_with(prefix))
    return std::nullopt;
  auto [end, error] = std::from_chars(cpu.data() + prefix.size(),
                                      cpu.data() + cpu.size(), number);
  if (error != std::errc() || end != cpu.data() + cpu.size())
    return std::nullopt;
  return number;
}

/// Whether PTX for architecture `cpu` can be compiled for `present`.
bool reaches(std::string_view cpu, int present) {
  if (std::optional<int> least = plainArchitecture(cpu))
    return *least <= present;
  // Features of one architecture ("sm_90a"): that one alone.
  return !cpu.empty() && plainArchitecture(cpu.substr(0, cpu.size() - 1)) ==
                             std::optional<int>(present);
}

} // namespace

/// A cubin runs on exactly its architecture here, though CUDA promises more
/// within a major version: for the others there is PTX. `seen` is for the
/// message.
Result<std::vector<const fb::CodeObject *>>
runtime::chooseCode(const fb::Plan &plan, int major, int minor,
                    const std::string &gpu) {
  int present = major * 10 + minor;
  std::string seen;
  std::vector<const fb::CodeObject *> found;
  for (uint32_t i = 0; i < plan::length(plan.code()); ++i) {
    const fb::CodeObject &code = *plan.code()->Get(i);
    std::string target = code.target()->str();
    std::string cpu = flatbuffers::GetString(code.cpu());
    // Ready-made code goes first, whatever the order in the plan.
    if (target == "cubin" && plainArchitecture(cpu) == present)
      found.insert(found.begin(), &code);
    if (target == "ptx" && reaches(cpu, present))
      found.push_back(&code);
    if (target == "ptx" || target == "cubin")
      seen += (seen.empty() ? "" : ", ") + target + " for " + cpu;
  }
  if (!found.empty())
    return found;
  return fail(gpu, " is sm_", present, ", the plan has ",
              seen.empty() ? "no code for GPUs" : seen);
}

uint64_t runtime::blocksOf(const fb::Kernel &kernel, int64_t extent) {
  uint64_t each = std::max(1u, kernel.indices_per_block());
  return (static_cast<uint64_t>(extent) + each - 1) / each;
}

/// Compiles where the image is PTX, which may take seconds, and whose errors
/// are in the log alone. Kernels are loaded with it rather than in their first
/// call.
Result<std::unique_ptr<CudaModule>>
CudaModule::load(std::shared_ptr<CudaContext> context, const void *image) {
  PLAIT_RETURN_IF_ERROR(context->use());
  std::unique_ptr<CudaModule> result(new CudaModule(std::move(context)));
  const Driver &driver = result->context->driver;
  char log[4096] = {};
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER,
                            CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void *values[] = {log, reinterpret_cast<void *>(sizeof(log) - 1)};
  Status status = driver.check(driver.cuModuleLoadDataEx(&result->handle, image,
                                                         std::size(options),
                                                         options, values),
                               "cuModuleLoadDataEx");
  if (status.ok())
    return result;
  // The compiler's log has several lines; messages have one.
  std::string reason = log;
  std::replace(reason.begin(), reason.end(), '\n', ' ');
  return fail(result->context->describe(),
              " cannot load the plan's code: ", status.message(),
              reason.empty() ? "" : ": ", reason);
}

CudaModule::~CudaModule() {
  if (handle && context->use().ok())
    context->driver.cuModuleUnload(handle);
}

/// A name that is missing is a plan that does not fit together, not a failure
/// of the driver.
Result<CUfunction> CudaModule::find(const char *symbol) const {
  CUfunction function = nullptr;
  CUresult result =
      context->driver.cuModuleGetFunction(&function, handle, symbol);
  if (result == CUDA_ERROR_NOT_FOUND)
    return fail("the plan's code does not define kernel '", symbol, "'");
  PLAIT_RETURN_IF_ERROR(context->driver.check(result, "cuModuleGetFunction"));
  return function;
}

/// Tries the code objects from the best on and takes the first that the driver
/// accepts; the failure that is reported is that of the last one.
Result<std::shared_ptr<const CudaKernels>>
CudaKernels::load(const fb::Plan &plan, std::shared_ptr<CudaContext> context) {
  auto result = std::make_shared<CudaKernels>();
  if (!plan.kernels() || plan.kernels()->size() == 0)
    return std::shared_ptr<const CudaKernels>(result);
  auto codes =
      chooseCode(plan, context->major, context->minor, context->describe());
  if (!codes.ok())
    return codes.status();
  // A driver of an older major version than the plan's assembler takes no
  // cubin of it, but the PTX.
  Status status = Status::success();
  for (const fb::CodeObject *code : *codes) {
    // PTX in a plan has no NUL at its end.
    const auto &data = *code->data();
    std::string image(reinterpret_cast<const char *>(data.data()), data.size());
    auto module = CudaModule::load(context, image.c_str());
    status = module.status();
    if (!status.ok())
      continue;
    result->module = std::move(*module);
    break;
  }
  PLAIT_RETURN_IF_ERROR(std::move(status));
  for (const fb::Kernel *kernel : *plan.kernels()) {
    auto function = result->module->find(kernel->symbol()->c_str());
    if (!function.ok())
      return function.status();
    result->functions.push_back(*function);
  }
  return std::shared_ptr<const CudaKernels>(result);
}
