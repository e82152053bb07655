//===- Kernels.cpp - Check of generated kernels ---------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Loads the code of a plan's kernels and runs their trials (KernelTrial.h) in
// batches, each batch in a process of its own, so that code which crashes or
// does not end takes down only that process. Parent and child share what was
// looked at of the results; the parent compares.
// A kernel ends in one of four ways: right, wrong (an error), too long to
// evaluate, or without a known bound. The last two are counted in the
// certificate and fail nothing.
//
//===----------------------------------------------------------------------===//

#include "plait/Proof/Kernels.h"

#include "KernelTrial.h"
#include "plait/Dialect/NN/IR/NN.h"

#include <csignal>
#include <cstring>
#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace mlir;
using namespace plait;
using namespace plait::proof;

/// Of the trials that are in memory together. Each tensor of integers has two
/// mappings of its own, a process may have 65530, and the compiler has some.
static constexpr size_t kTensors = 16384;

/// For processor time, of all kernels of a batch: far more than they need.
static constexpr rlim_t kSeconds = 120;

/// Roots want numbers above 0, the first microbatch is another one, and numbers
/// that are drawn are never zero, for which some kernels have an answer of
/// their own.
///
/// The first is what each kernel is run on, the second also where another
/// microbatch behaves differently or the first told nothing; small kernels are
/// run on all.
static constexpr KernelTrial::Draw kDraws[] = {
    {.isPositive = false, .isFirst = false, .number = 0},
    {.isPositive = true, .isFirst = true, .number = 1},
    {.isPositive = true, .isFirst = false, .number = 2},
    {.isPositive = false, .isFirst = false, .number = 3},
    {.isPositive = true, .isFirst = false, .number = 4},
    {.isPositive = true, .isFirst = false, .number = 5},
    {.isPositive = true, .isFirst = false, .number = 6},
    {.isPositive = true, .isFirst = false, .number = 7},
    {.isPositive = true, .isFirst = false, .number = 8, .hasZeros = true}};

namespace {

/// A loaded shared object.
///
/// From a file in memory: nothing is left behind however the process ends. An
/// object that cannot be loaded finds no symbols.
class LoadedCode {
public:
  explicit LoadedCode(ArrayRef<uint8_t> bytes)
      : file(memfd_create("kernels", 0)) {
    if (file < 0 ||
        write(file, bytes.data(), bytes.size()) != ssize_t(bytes.size())) {
      error = strerror(errno);
      return;
    }
    // The loader takes a path that it has seen for what it loaded then, so
    // the descriptor stays open. And a run in this process may have loaded its
    // kernels from a descriptor of the same number: it spells the folder
    // otherwise (CPU/KernelLibrary.cpp).
    handle = dlopen(("/proc/self/./fd/" + std::to_string(file)).c_str(),
                    RTLD_NOW | RTLD_LOCAL);
    if (!handle)
      error = dlerror();
  }
  LoadedCode(const LoadedCode &) = delete;
  ~LoadedCode() {
    if (handle)
      dlclose(handle);
    if (file >= 0)
      close(file);
  }
  KernelTrial::Function find(const std::string &symbol) const {
    return handle ? reinterpret_cast<KernelTrial::Function>(
                        dlsym(handle, symbol.c_str()))
                  : nullptr;
  }

  /// Why it could not be loaded; empty: it was.
  const std::string &getError() const { return error; }

private:
  int file;
  void *handle = nullptr;
  std::string error;
};

/// All kernels of one plan. Kernels are named by their number in `kernels`.
class KernelCheck {
public:
  KernelCheck(ArrayRef<codegen::EmittedKernel> kernels, const LoadedCode &code)
      : kernels(kernels), code(code) {}
  LogicalResult run();
  std::string getText() const;

private:
  /// A trial that is to be made.
  struct Asked {
    size_t kernel;
    unsigned draw;
  };
  LogicalResult runAll(ArrayRef<Asked> asked);
  LogicalResult runBatch(MutableArrayRef<KernelTrial> batch);
  LogicalResult execute(MutableArrayRef<KernelTrial> batch);
  LogicalResult tellDeath(KernelTrial &trial, int status) const;

  ArrayRef<codegen::EmittedKernel> kernels;
  const LoadedCode &code;
  DrawnPages pages;
  ResultPages results;
  llvm::DenseSet<size_t> right, tooLong; // kernels, by number
  size_t held = 0;                       // elements
  std::string reason;                    // why nothing can be run
};

} // namespace

/// Always fails. SIGXCPU is the soft limit of processor time and SIGKILL the
/// hard one.
LogicalResult KernelCheck::tellDeath(KernelTrial &trial, int status) const {
  int signal = WTERMSIG(status);
  InFlightDiagnostic diag = trial.getCluster().emitError("the code of ")
                            << trial.getSymbol() << ", which computes this, ";
  if (signal == SIGXCPU || signal == SIGKILL)
    return diag << "does not end";
  return diag << "crashes: " << strsignal(signal);
}

/// Runs all in another process, which they may take down.
///
/// 1. `running` is shared memory, so that the parent knows which kernel the
///    child died in.
/// 2. The child limits its time, leaves no core file, and resets the signal
///    handlers: those of LLVM would print a stack trace of plaitc. What a
///    kernel reads is mapped when it does.
/// 3. It runs the batch and leaves by _exit(), without destructors: the parent
///    owns all objects.
/// 4. The parent waits, and blames the kernel that ran last for a signal.
/// No process is no error of a kernel: `reason` says so, and the certificate
/// has it.
LogicalResult KernelCheck::execute(MutableArrayRef<KernelTrial> batch) {
  // 1. Who runs.
  auto *running = static_cast<volatile size_t *>(
      mmap(nullptr, sizeof(size_t), PROT_READ | PROT_WRITE,
           MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  pid_t child = running == MAP_FAILED ? -1 : fork();
  if (child == 0) {
    // 2. Limits.
    rlimit limit{kSeconds, kSeconds}, noCore{0, 0};
    setrlimit(RLIMIT_CPU, &limit);
    setrlimit(RLIMIT_CORE, &noCore);
    for (int signal : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGXCPU})
      ::signal(signal, SIG_DFL);
    pages.serve();
    // 3. The kernels.
    for (size_t index = 0; index < batch.size(); ++index) {
      *running = index;
      batch[index].execute();
    }
    _exit(0);
  }
  if (child < 0) {
    reason = strerror(errno);
    if (running != MAP_FAILED)
      munmap(const_cast<size_t *>(running), sizeof(size_t));
    return success();
  }
  // 4. The end. waitpid() may be interrupted by a signal that is for the
  //    compiler.
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR)
    ;
  size_t last = *running;
  munmap(const_cast<size_t *>(running), sizeof(size_t));
  return WIFSIGNALED(status) ? tellDeath(batch[last], status) : success();
}

/// A kernel is right once one of its draws told something of each result and
/// none was wrong.
LogicalResult KernelCheck::runBatch(MutableArrayRef<KernelTrial> batch) {
  if (batch.empty())
    return success();
  if (failed(execute(batch)))
    return failure();
  if (!reason.empty())
    return success(); // nothing was run
  for (KernelTrial &trial : batch) {
    FailureOr<bool> isTold = trial.compare();
    if (failed(isTold))
      return failure();
    held += trial.countHeld();
    if (*isTold)
      right.insert(trial.getNumber());
  }
  return success();
}

/// Trials are prepared until their tensors are as many as kTensors, then run
/// and given back. A kernel that is too long on the first draw is so on all,
/// since that does not depend on the numbers.
LogicalResult KernelCheck::runAll(ArrayRef<Asked> asked) {
  std::vector<KernelTrial> batch;
  size_t tensors = 0;
  for (auto [number, draw] : asked) {
    const codegen::EmittedKernel &kernel = kernels[number];
    KernelTrial trial(kernel, number, code.find(kernel.info.symbol));
    if (!trial.prepare(pages, results, kDraws[draw])) {
      if (draw == 0)
        tooLong.insert(number);
      continue;
    }
    tensors += trial.countTensors();
    batch.push_back(std::move(trial));
    if (tensors < kTensors)
      continue;
    if (failed(runBatch(batch)))
      return failure();
    batch.clear();
    tensors = 0;
  }
  return runBatch(batch);
}

/// Another process takes as long to start as many kernels to run, so that what
/// is known to want several draws gets them at once.
///
/// The second pass is for kernels of which nothing could be told, mostly
/// because a root or a logarithm was taken of negative numbers: they get
/// positive ones.
LogicalResult KernelCheck::run() {
  std::vector<Asked> first, second;
  std::vector<size_t> once; // had the first draw alone
  for (auto [number, kernel] : llvm::enumerate(kernels)) {
    KernelTrial trial(kernel, number, nullptr);
    unsigned draws = trial.isSmall()               ? std::size(kDraws)
                     : trial.dependsOnMicrobatch() ? 2
                                                   : 1;
    for (unsigned draw = 0; draw < draws; ++draw)
      if (!kDraws[draw].hasZeros || trial.comparesWithZero())
        first.push_back({number, draw});
    if (draws == 1)
      once.push_back(number);
  }
  if (failed(runAll(first)))
    return failure();
  for (size_t number : once)
    if (!right.contains(number) && !tooLong.contains(number))
      second.push_back({number, 1});
  return runAll(second);
}

/// The plan's certificate has this text, and plait-run prints it; the tests
/// match its words.
std::string KernelCheck::getText() const {
  if (!reason.empty())
    return "not run: " + reason;
  std::string all = std::to_string(kernels.size()),
              text = right.size() == kernels.size()
                         ? "all " + all
                         : std::to_string(right.size()) + " of " + all;
  text += " ran and gave what their ops define in " + std::to_string(held) +
          " elements";
  if (!tooLong.empty())
    text += "; " + std::to_string(tooLong.size()) + " too long to evaluate";
  size_t open = kernels.size() - right.size() - tooLong.size();
  if (open)
    text += "; of " + std::to_string(open) + " no bound is known";
  return text;
}

/// Whether this machine can run it.
///
/// Only for the two levels that the code generator aims at. A list of single
/// features is not decoded: the answer is no, and the certificate says that
/// nothing was run.
static bool canRun(const codegen::TargetCPU &target) {
#ifdef __x86_64__
  if (target.features.empty() && target.name == "x86-64-v3")
    return __builtin_cpu_supports("x86-64-v3");
  if (target.features.empty() && target.name == "x86-64-v4")
    return __builtin_cpu_supports("x86-64-v4");
#endif
  return false;
}

FailureOr<std::string>
proof::checkKernels(ArrayRef<codegen::EmittedKernel> kernels,
                    const codegen::TargetCPU &target, ArrayRef<uint8_t> code) {
  if (kernels.empty())
    return std::string("there are none");
  if (!canRun(target))
    return "not run: they are for " + target.name;
  LoadedCode loaded(code);
  if (!loaded.getError().empty())
    return "not run: " + loaded.getError();
  if (!loaded.find(kernels.front().info.symbol))
    return "not run: " + std::string(dlerror());
  KernelCheck check(kernels, loaded);
  if (failed(check.run()))
    return failure();
  return check.getText();
}
