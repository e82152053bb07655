//===- CPULibrary.cpp - Kernels for x86-64
//------------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Kernels for processors: the signature that Kernel.h promises, how wide
// vectors are, and the way from a cluster to a shared object. A kernel is
// called for a range of parallel indices by each of a rank's threads.
//
//===----------------------------------------------------------------------===//

#include "CPULibrary.h"

#include "../Kernel/EmitKernel.h"
#include "../Kernel/SerialWorkers.h"
#include "KernelCache.h"
#include "Target.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/BLAKE3.h"
#include "llvm/Target/TargetMachine.h"

using namespace mlir;
using namespace plait;
using namespace plait::codegen;

/// Registers a value: enough independent chains to hide an addition's latency,
/// few enough that a dozen values stay in registers.
static constexpr int64_t kRegisters = 4;

/// A multiple of every number of lanes, and little enough for the first cache.
static constexpr int64_t kBlock = 4096;

CPULibrary::CPULibrary(MLIRContext *context, TargetCPU target)
    : KernelLibrary(context), machine(createMachine(target)),
      target(std::move(target)) {}

CPULibrary::~CPULibrary() = default;

/// Takes as many lanes as fit, but no more than the next power of two of the
/// extent. One sum over long rows takes wider blocks: longer runs of memory a
/// row. Several registers a vector: the chains of additions of one sum are
/// independent.
static int64_t chooseLanes(const IterationSpace &space, int64_t lanes,
                           bool columns) {
  int64_t extent =
      space.getInner() < 0 ? 1 : space.getGroups()[space.getInner()].extent;
  if (columns && space.getReductions().size() == 1 && extent >= 32 * lanes)
    lanes *= 4;
  return std::min<int64_t>(lanes, llvm::PowerOf2Ceil(extent));
}

/// (args, scalars, begin, end), see Kernel.h.
static func::FuncOp createFunction(plan::ClusterOp cluster, ModuleOp module,
                                   StringRef name) {
  OpBuilder builder = OpBuilder::atBlockEnd(module.getBody());
  Type pointer = LLVM::LLVMPointerType::get(builder.getContext());
  Type index = builder.getI64Type();
  auto function = func::FuncOp::create(
      builder, cluster.getLoc(), name,
      builder.getFunctionType({pointer, pointer, index, index}, {}));
  function.addEntryBlock();
  return function;
}

/// Returns what the arguments of `function` are to an emitter that stands at
/// the start.
static KernelFunction openFunction(func::FuncOp function, unsigned buffers) {
  Value args = function.getArgument(0), scalars = function.getArgument(1);
  KernelFunction opened;
  ImplicitLocOpBuilder builder(function.getLoc(), function.getContext());
  builder.setInsertionPointToStart(&function.front());
  Type pointer = args.getType();
  for (unsigned index = 0; index < buffers; ++index) {
    Value address = LLVM::GEPOp::create(builder, pointer, pointer, args,
                                        ArrayRef<LLVM::GEPArg>(index));
    opened.pointers.push_back(
        LLVM::LoadOp::create(builder, pointer, address, 8));
  }
  opened.getScalar = [scalars](ImplicitLocOpBuilder &builder,
                               unsigned index) -> Value {
    Type number = builder.getI64Type();
    Value address = LLVM::GEPOp::create(builder, scalars.getType(), number,
                                        scalars, ArrayRef<LLVM::GEPArg>(index));
    return LLVM::LoadOp::create(builder, number, address, 8);
  };
  // 0 in the call that has the first index.
  opened.first = function.getArgument(2);
  return opened;
}

/// An unknown processor is noticed here rather than in the constructor: only
/// here is an op that the error can be reported at.
LogicalResult CPULibrary::emit(plan::ClusterOp cluster, KernelInfo &info) {
  if (!machine)
    return cluster.emitOpError("cannot be compiled: unknown processor '")
           << target.name << "'";
  int64_t width = getVectorWidth(*machine);
  if (width == 0)
    return cluster.emitOpError("cannot be compiled for '")
           << target.name << "': kernels need avx2 and fma";
  FailureOr<IterationSpace> space = analyzeCluster(cluster);
  if (failed(space))
    return failure();
  ShapeLimits limits;
  limits.block = kBlock;
  FailureOr<KernelShape> shape = chooseShape(cluster, *space, limits);
  if (failed(shape))
    return failure();
  func::FuncOp function =
      createFunction(cluster, cast<ModuleOp>(*module), info.symbol);
  KernelFunction opened = openFunction(function, cluster.getNumOperands() +
                                                     cluster.getNumResults());
  OpBuilder builder = OpBuilder::atBlockEnd(&function.front());
  Emitter emitter(cluster, *space, builder, opened, info,
                  chooseLanes(*space, kRegisters * width,
                              std::holds_alternative<ColumnShape>(*shape)));
  SerialWorkers workers(emitter, function.getArgument(2),
                        function.getArgument(3));
  emitLoops(emitter, workers, *shape, info);
  finishFunction(function);
  return success();
}

/// Prints what a function computes, whatever its name.
static std::string describe(func::FuncOp function) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  function.setSymName("kernel");
  function->print(stream,
                  OpPrintingFlags().useLocalScope().printGenericOpForm());
  return text;
}

/// Names each function by what it computes, and leaves one of each name.
/// Returns the texts in the functions' order, and adds to `kernels`.
static std::vector<std::string> unify(ModuleOp module,
                                      std::vector<ExportedKernel> &kernels) {
  std::vector<std::string> texts;
  llvm::StringSet<> seen;
  for (auto function :
       llvm::make_early_inc_range(module.getOps<func::FuncOp>())) {
    std::string symbol = function.getSymName().str(), text = describe(function);
    auto bytes = llvm::arrayRefFromStringRef(text);
    std::string name = "k" + llvm::toHex(llvm::BLAKE3::hash<16>(bytes));
    kernels.push_back({symbol, name});
    function.setSymName(name);
    if (seen.insert(name).second)
      texts.push_back(std::move(text));
    else
      function.erase();
  }
  return texts;
}

/// Compiles the functions of `module` but those that the cache has, and
/// returns an object each, in their order.
static FailureOr<std::vector<llvm::SmallString<0>>>
compile(ModuleOp module, ArrayRef<std::string> texts,
        llvm::TargetMachine &machine) {
  KernelCache cache(
      (machine.getTargetCPU() + machine.getTargetFeatureString()).str());
  auto functions = llvm::to_vector(module.getOps<func::FuncOp>());
  std::vector<std::optional<llvm::SmallString<0>>> found;
  for (auto [function, text] : llvm::zip_equal(functions, texts)) {
    found.push_back(cache.find(text));
    if (found.back())
      function.erase();
  }
  auto compiled = compileFunctions(module, machine);
  if (failed(compiled))
    return failure();
  std::vector<llvm::SmallString<0>> objects;
  auto next = compiled->begin();
  Status kept = Status::success();
  for (auto [object, text] : llvm::zip_equal(found, texts)) {
    if (!object && kept.ok())
      kept = cache.keep(text, *next);
    objects.push_back(std::move(object ? *object : *next++));
  }
  if (!kept.ok())
    emitWarning(module.getLoc(),
                "kernels are not kept for other compilations: ")
        << kept.message();
  return objects;
}

/// Kernels are compiled one by one, so that the cache may have each, and linked
/// once.
FailureOr<std::vector<CodeObject>> CPULibrary::finish() {
  MLIRContext *context = module.get()->getContext();
  if (!machine)
    return emitError(UnknownLoc::get(context), "unknown processor '")
           << target.name << "'";
  std::vector<ExportedKernel> exported;
  std::vector<std::string> texts = unify(cast<ModuleOp>(*module), exported);
  auto objects = compile(cast<ModuleOp>(*module), texts, *machine);
  if (failed(objects))
    return failure();
  FailureOr<std::vector<char>> linked =
      linkObjects(*objects, exported, context);
  if (failed(linked))
    return failure();
  return std::vector<CodeObject>{
      {"x86_64", target.name, listFeatures(*machine), std::move(*linked)}};
}
