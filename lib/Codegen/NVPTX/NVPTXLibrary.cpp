//===- NVPTXLibrary.cpp - Kernels for NVIDIA GPUs -------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Kernels for NVIDIA's GPUs: which architectures there are, the signature of a
// kernel, and the way from a cluster to PTX and, where there is a ptxas, to a
// cubin. How loops run on teams of threads is in ChooseTeams.cpp and
// TeamWorkers.cpp.
//
//===----------------------------------------------------------------------===//

#include "NVPTXLibrary.h"

#include "../LowerModule.h"
#include "Exponentials.h"
#include "Teams.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "llvm/IR/Function.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"

using namespace mlir;
using namespace plait;
using namespace plait::codegen;

//===----------------------------------------------------------------------===//
// The architectures
//===----------------------------------------------------------------------===//

/// An architecture, and the first version of PTX that has it and lets kernels
/// have more than 4 KiB of arguments (8.1); drivers refuse versions that are
/// newer than they are.
struct Architecture {
  llvm::StringLiteral name, features;
};
static constexpr Architecture kArchitectures[] = {
    {"sm_80", "+ptx81"}, {"sm_90", "+ptx81"}, {"sm_100", "+ptx86"}};

ArrayRef<StringRef> TargetGPU::getNames() {
  static const SmallVector<StringRef> names = [] {
    SmallVector<StringRef> names;
    for (const Architecture &one : kArchitectures)
      names.push_back(one.name);
    return names;
  }();
  return names;
}

std::optional<TargetGPU> TargetGPU::get(StringRef name) {
  if (!llvm::is_contained(getNames(), name))
    return std::nullopt;
  return TargetGPU{name.str(), name.str()};
}

int TargetGPU::getArchitecture() const {
  StringRef digits = ptx;
  int number = 0;
  if (digits.consume_front("sm_"))
    digits.getAsInteger(10, number);
  return number;
}

/// Initialising the target again does no harm. Null for an architecture that
/// the table lacks.
static std::unique_ptr<llvm::TargetMachine> createMachine(StringRef name) {
  LLVMInitializeNVPTXTargetInfo();
  LLVMInitializeNVPTXTarget();
  LLVMInitializeNVPTXTargetMC();
  LLVMInitializeNVPTXAsmPrinter();
  llvm::Triple triple("nvptx64-nvidia-cuda");
  std::string error;
  const llvm::Target *nvptx = llvm::TargetRegistry::lookupTarget(triple, error);
  const auto *found = llvm::find_if(
      kArchitectures, [&](const auto &one) { return one.name == name; });
  if (!nvptx || found == std::end(kArchitectures))
    return nullptr;
  return std::unique_ptr<llvm::TargetMachine>(nvptx->createTargetMachine(
      triple, found->name, found->features, llvm::TargetOptions(), std::nullopt,
      std::nullopt, llvm::CodeGenOptLevel::Aggressive));
}

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

/// A function of one pointer a buffer; scalars are added as they are asked for.
static func::FuncOp createFunction(plan::ClusterOp cluster, ModuleOp module,
                                   StringRef name) {
  OpBuilder builder = OpBuilder::atBlockEnd(module.getBody());
  SmallVector<Type> types(cluster.getNumOperands() + cluster.getNumResults(),
                          LLVM::LLVMPointerType::get(builder.getContext()));
  auto function = func::FuncOp::create(builder, cluster.getLoc(), name,
                                       builder.getFunctionType(types, {}));
  function.addEntryBlock();
  return function;
}

/// A scalar is a parameter of the kernel, appended when it is first asked for;
/// the function's type is brought up to date when all are known. There is a
/// dense numbering: parameter `buffers` + i is scalar i.
static KernelFunction openFunction(func::FuncOp function) {
  KernelFunction opened;
  llvm::append_range(opened.pointers, function.getArguments());
  unsigned buffers = function.getNumArguments();
  Block *entry = &function.front();
  opened.getScalar = [entry, buffers](ImplicitLocOpBuilder &builder,
                                      unsigned index) -> Value {
    while (entry->getNumArguments() <= buffers + index)
      entry->addArgument(builder.getI64Type(), builder.getLoc());
    return entry->getArgument(buffers + index);
  };
  return opened;
}

NVPTXLibrary::NVPTXLibrary(MLIRContext *context, TargetGPU target)
    : KernelLibrary(context), target(std::move(target)) {}

/// 1. Choose: the widths, the shape within their limits, wider access where
///    rows have room between them, and the team.
/// 2. Emit the loops into a new function.
/// 3. Set the function's type, as scalars have become parameters meanwhile.
/// 4. Say how it is to be launched.
LogicalResult NVPTXLibrary::emit(plan::ClusterOp cluster, KernelInfo &info) {
  FailureOr<IterationSpace> space = analyzeCluster(cluster);
  if (failed(space))
    return failure();
  // 1.
  VectorAccess access = chooseAccess(cluster, *space);
  FailureOr<KernelShape> shape =
      chooseShape(cluster, *space, getGPULimits(access));
  if (failed(shape))
    return failure();
  widenAccess(cluster, *space, *shape, access);
  Teams teams = chooseTeams(*space, *shape, access);
  // 2.
  func::FuncOp function =
      createFunction(cluster, cast<ModuleOp>(*module), info.symbol);
  OpBuilder builder = OpBuilder::atBlockEnd(&function.front());
  Emitter emitter(cluster, *space, builder, openFunction(function), info,
                  access.lanes);
  emitter.aligned = emitter.roundsPairs = true;
  TeamWorkers workers(emitter, function, teams, info);
  workers.readsBeyondRows = access.beyondRows;
  emitter.function.first = workers.getFirst();
  emitLoops(emitter, workers, *shape, info);
  if (access.bytes == 2)
    shortenExponentials(function);
  // 3.
  function.setFunctionType(
      builder.getFunctionType(function.front().getArgumentTypes(), {}));
  finishFunction(function);
  // 4. Sums over all rows have one block, whatever its teams.
  info.blockThreads = teams.threads;
  auto *rows = std::get_if<RowShape>(&*shape);
  info.indicesPerBlock = rows && !rows->totals.empty() ? 1 : teams.perBlock();
  return success();
}

//===----------------------------------------------------------------------===//
// Code
//===----------------------------------------------------------------------===//

FailureOr<std::vector<CodeObject>> NVPTXLibrary::finish() {
  MLIRContext *context = module.get()->getContext();
  std::unique_ptr<llvm::TargetMachine> machine = createMachine(target.ptx);
  if (!machine)
    return emitError(UnknownLoc::get(context),
                     "kernels cannot be compiled for '")
           << target.ptx << "'";
  llvm::StringMap<int64_t> threads;
  for (const auto &entry : kernels)
    // With the exact number the assembler knows how many registers a thread may
    // have.
    threads[entry.second.symbol] = entry.second.blockThreads;
  if (failed(expandExponentials(cast<ModuleOp>(*module))))
    return emitError(UnknownLoc::get(context), "cannot expand exponentials");
  FailureOr<llvm::SmallString<0>> ptx = lowerModule(
      cast<ModuleOp>(*module), *machine, llvm::CodeGenFileType::AssemblyFile,
      [&](llvm::Function &function) {
        function.setCallingConv(llvm::CallingConv::PTX_Kernel);
        function.addFnAttr("nvvm.reqntid",
                           std::to_string(threads.lookup(function.getName())));
      });
  if (failed(ptx))
    return failure();
  std::vector<CodeObject> code;
  code.push_back({"ptx", target.ptx, {}, {ptx->begin(), ptx->end()}});
  FailureOr<std::optional<std::vector<char>>> cubin =
      assemble(*ptx, target.cubin, context);
  if (failed(cubin))
    return failure();
  if (*cubin)
    code.push_back({"cubin", target.cubin, {}, std::move(**cubin)});
  return code;
}
