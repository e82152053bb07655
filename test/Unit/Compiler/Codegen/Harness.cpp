//===- Harness.cpp - Compiling and calling a cluster ----------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Harness.h"

#include "ReindexOp.h"
#include "plait/Dialect/Dist/IR/Dist.h"
#include "plait/Dialect/NN/IR/NN.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Parser/Parser.h"
#include "gtest/gtest.h"

#include <cstring>
#include <dlfcn.h>
#include <random>
#include <regex>
#include <sys/mman.h>
#include <unistd.h>

using namespace plait;
using namespace plait::test;

Buffer::Buffer(size_t count, bool half) : count(count), half(half) {
  size_t page = sysconf(_SC_PAGESIZE);
  size_t need = (bytes() + 63) / 64 * 64;
  size_t pages = (need + page - 1) / page * page;
  mapped = pages + page;
  map = mmap(nullptr, mapped, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  mprotect(static_cast<char *>(map) + pages, page, PROT_NONE);
  start = static_cast<char *>(map) + pages - need;
}

Buffer::~Buffer() { munmap(map, mapped); }

void Buffer::randomize(unsigned seed, float low, float high) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<float> numbers(low, high);
  for (size_t index = 0; index < count; ++index)
    floats()[index] = numbers(generator);
}

void Buffer::fill(float value) { std::fill_n(floats(), count, value); }

std::string test::sized(std::string text, int64_t rows, int64_t columns) {
  text = std::regex_replace(text, std::regex("([<x])R"),
                            "$01" + std::to_string(rows));
  return std::regex_replace(text, std::regex("([<x])C"),
                            "$01" + std::to_string(columns));
}

static std::string join(const std::vector<std::string> &parts,
                        const std::string &prefix = "") {
  std::string text;
  for (size_t index = 0; index < parts.size(); ++index)
    text += (index ? ", " : "") +
            (prefix.empty() ? "" : prefix + std::to_string(index) + ": ") +
            parts[index];
  return text;
}

static std::string write(const Cluster &cluster) {
  std::string operands;
  for (size_t index = 0; index < cluster.inputs.size(); ++index)
    operands += (index ? ", %a" : "%a") + std::to_string(index);
  std::vector<std::string> arguments = cluster.inputs;
  if (cluster.sorted)
    arguments[1] +=
        " {plan.sorted = " + std::to_string(cluster.sorted) + " : i64}";
  std::string text = "dist.mesh @mesh [\"tp\"] = [2]\nfunc.func @f(" +
                     join(arguments, "%a") + ") {\n";
  if (!cluster.results.empty())
    text += "%r:" + std::to_string(cluster.results.size()) + " = ";
  text += "plan.cluster(" + operands + ") ";
  if (!cluster.accumulate.empty())
    text += "accumulate [" + cluster.accumulate + "] ";
  text += ": (" + join(cluster.inputs) + ") -> (" + join(cluster.results) +
          ") {\n^bb0(" + join(cluster.inputs, "%") + "):\n" + cluster.body +
          "\n}\nreturn\n}\n";
  return text;
}

HostCode::~HostCode() {
  if (handle)
    dlclose(handle);
  if (file >= 0)
    close(file);
}

std::string HostCode::load(const std::vector<char> &bytes) {
  file = memfd_create("kernels", 0);
  bool written = write(file, bytes.data(), bytes.size()) ==
                 static_cast<ssize_t>(bytes.size());
  if (written)
    handle = dlopen(("/proc/self/fd/" + std::to_string(file)).c_str(),
                    RTLD_NOW | RTLD_LOCAL);
  return handle ? "" : dlerror();
}

void HostCode::call(const std::string &symbol, const std::vector<void *> &args,
                    const std::vector<int64_t> &scalars, int64_t begin,
                    int64_t end) {
  using Function = void (*)(void *const *, const int64_t *, int64_t, int64_t);
  auto function = reinterpret_cast<Function>(dlsym(handle, symbol.c_str()));
  ASSERT_TRUE(function) << symbol;
  function(args.data(), scalars.data(), begin, end);
}

Kernel::Kernel(const Cluster &cluster, codegen::Target target)
    : inputs(cluster.inputs.size()) {
  context.loadDialect<nn::NNDialect, dist::DistDialect, plan::PlanDialect,
                      mlir::func::FuncDialect, TestDialect>();
  mlir::ScopedDiagnosticHandler handler(
      &context, [&](mlir::Diagnostic &diag) { errors += diag.str() + "\n"; });
  auto module =
      mlir::parseSourceString<mlir::ModuleOp>(write(cluster), &context);
  if (!module)
    return;
  auto library = codegen::KernelLibrary::create(&context, target);
  bool failed = false;
  module->walk([&](plan::ClusterOp op) {
    auto result = library->add(op);
    failed |= mlir::failed(result);
    if (!failed)
      info = *result;
  });
  if (failed)
    return;
  auto objects = library->finish();
  if (mlir::failed(objects))
    return;
  const codegen::CodeObject &object = objects->front();
  if (object.target == "x86_64") {
    auto loaded = std::make_unique<HostCode>();
    errors += loaded->load(object.data);
    if (errors.empty())
      code = std::move(loaded);
    return;
  }
  ptx.assign(object.data.begin(), object.data.end());
  this->module = std::make_unique<PtxModule>();
  errors += this->module->parse(ptx);
}

void Kernel::call(std::vector<Buffer *> args, std::vector<int64_t> scalars,
                  int64_t begin, int64_t end) {
  std::vector<void *> pointers;
  for (Buffer *buffer : args)
    pointers.push_back(buffer->start);
  code->call(info.symbol, pointers, scalars, begin, end);
}

std::vector<PtxBuffer> Kernel::describe(const std::vector<Buffer *> &args) {
  std::vector<PtxBuffer> buffers;
  for (Buffer *buffer : args)
    buffers.push_back(
        {buffer->start, buffer->bytes(), buffers.size() >= inputs});
  return buffers;
}

void Kernel::launch(std::vector<Buffer *> args, std::vector<int64_t> scalars,
                    bool reversed) {
  EXPECT_EQ(module->launch(info.symbol, countBlocks(), describe(args), scalars,
                           reversed),
            "")
      << ptx;
}

int64_t Kernel::countBlocks() const {
  return (info.extent + info.indicesPerBlock - 1) / info.indicesPerBlock;
}

std::string Kernel::runBlocks(const std::vector<int64_t> &blocks,
                              const std::vector<Buffer *> &args) {
  return module->launchSome(info.symbol, blocks, describe(args), {});
}

void Kernel::operator()(std::vector<Buffer *> args,
                        std::vector<int64_t> scalars) {
  ASSERT_TRUE(valid()) << errors;
  if (module)
    launch(args, scalars, /*reversed=*/false);
  else
    call(args, scalars, 0, info.extent);
}

void Kernel::expectSplit(std::vector<Buffer *> args, size_t firstResult,
                         std::vector<int64_t> scalars) {
  ASSERT_TRUE(valid()) << errors;
  std::vector<std::unique_ptr<Buffer>> copies;
  std::vector<Buffer *> others = args;
  for (size_t index = firstResult; index < args.size(); ++index) {
    copies.push_back(
        std::make_unique<Buffer>(args[index]->size(), args[index]->isHalf()));
    others[index] = copies.back().get();
  }
  if (module)
    launch(others, scalars, /*reversed=*/true);
  else
    for (int64_t index = info.extent - 1; index >= 0; --index)
      call(others, scalars, index, index + 1);
  for (size_t index = firstResult; index < args.size(); ++index)
    EXPECT_EQ(0, std::memcmp(args[index]->start, others[index]->start,
                             args[index]->bytes()))
        << "result " << index - firstResult << " depends on the split";
}
