//===- CudnnGraph.cpp - Attention as a graph of cuDNN ---------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Translates an AttentionStep to a graph of cuDNN's front end: one operation,
// scaled dot-product attention or its backward pass, on tensors given by sizes
// and strides. The mask and the statistics are the operation's own: the graph
// has no tensor of queries times keys.
//
// The front end throws where libcudnn lacks a function, so that every call of
// it is guarded. A graph is built in the order that the front end wants:
// validate, operations, engines, plans.
//
//===----------------------------------------------------------------------===//

#include "CudnnGraph.h"

#include "SharedLibrary.h"

#include <algorithm>
#include <cstdlib>
#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <exception>
#include <unordered_map>
#include <vector>

// The library is opened at run time, by loadCudnn().
#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#define NV_CUDNN_FRONTEND_DISABLE_LOGGING
// Graphs are written to no files; this halves the time to compile.
#define CUDNN_FRONTEND_SKIP_JSON_LIB
#include <cudnn_frontend.h>

using namespace plait;
using namespace plait::runtime;
namespace fe = cudnn_frontend;

/// The handle that the front end calls cuDNN through.
void *cudnn_frontend::cudnn_dlhandle = nullptr;

namespace {

/// Tensors by number, so that a graph is run without looking up names.
enum Tensor : int64_t { Q = 1, K, V, O, Stats, Gradient, DQ, DK, DV };

using TensorRef = std::shared_ptr<fe::graph::Tensor_attributes>;

/// The first line of what cuDNN says.
/// Without the prefix of the front end.
std::string firstLine(std::string text) {
  constexpr std::string_view prefix = "[cudnn_frontend] Error: ";
  if (text.starts_with(prefix))
    text.erase(0, prefix.size());
  return text.substr(0, text.find('\n'));
}

Status toStatus(const fe::error_t &error) {
  if (error.is_good())
    return Status::success();
  return fail("cuDNN: ", firstLine(error.err_msg));
}

/// Calls the front end, which throws where a function is missing.
template <typename Call> Status guarded(Call call) try {
  return call();
} catch (const std::exception &error) {
  return fail("cuDNN: ", firstLine(error.what()));
}

/// Builds the graph of one step.
class Describer {
public:
  Describer(const fb::AttentionStepT &step, fe::graph::Graph &graph)
      : step(step), graph(graph) {}

  /// Statistics are the logarithm of each row's sum of exponentials, in f32,
  /// one a query and head: what the backward pass computes probabilities again
  /// from.
  void forward() {
    fe::graph::SDPA_attributes attributes;
    attributes.set_generate_stats(true);
    mask(attributes);
    auto [o, stats] = graph.sdpa(query(Q, "q"), key(K, "k", step.k_strides),
                                 key(V, "v", step.v_strides), attributes);
    yield(o, O, step.heads, step.queries, step.out_strides);
    stats->set_output(true)
        .set_uid(Stats)
        .set_data_type(fe::DataType_t::FLOAT)
        .set_dim({step.batch, step.heads, step.queries, 1})
        .set_stride(statsStrides());
  }

  /// Gradients have the strides of what they are gradients of. Without
  /// `deterministic` dQ is added up by atomics (see docs/GPU.md).
  void backward() {
    fe::graph::SDPA_backward_attributes attributes;
    attributes.set_deterministic_algorithm(step.deterministic);
    mask(attributes);
    TensorRef stats =
        graph.tensor(fe::graph::Tensor_attributes()
                         .set_name("stats")
                         .set_uid(Stats)
                         .set_data_type(fe::DataType_t::FLOAT)
                         .set_dim({step.batch, step.heads, step.queries, 1})
                         .set_stride(statsStrides()));
    auto [dq, dk, dv] = graph.sdpa_backward(
        query(Q, "q"), key(K, "k", step.k_strides), key(V, "v", step.v_strides),
        input(O, "o", step.heads, step.queries, step.out_strides),
        input(Gradient, "do", step.heads, step.queries, step.out_strides),
        stats, attributes);
    yield(dq, DQ, step.heads, step.queries, step.q_strides);
    yield(dk, DK, step.kv_heads, step.keys, step.k_strides);
    yield(dv, DV, step.kv_heads, step.keys, step.v_strides);
  }

private:
  /// cuDNN's order is batch, head, position, element.
  static std::vector<int64_t> order(const std::vector<int64_t> &strides) {
    return {strides[0], strides[2], strides[1], 1};
  }
  /// Statistics lie without gaps, by batch, head and query.
  std::vector<int64_t> statsStrides() const {
    return {step.heads * step.queries, step.queries, 1, 1};
  }

  TensorRef input(Tensor uid, const char *name, int64_t heads, int64_t rows,
                  const std::vector<int64_t> &strides) {
    return graph.tensor(fe::graph::Tensor_attributes()
                            .set_name(name)
                            .set_uid(uid)
                            .set_dim({step.batch, heads, rows, step.head_size})
                            .set_stride(order(strides)));
  }
  TensorRef query(Tensor uid, const char *name) {
    return input(uid, name, step.heads, step.queries, step.q_strides);
  }
  /// Fewer heads than the queries' is how cuDNN knows that query heads share
  /// them.
  TensorRef key(Tensor uid, const char *name,
                const std::vector<int64_t> &strides) {
    return input(uid, name, step.kv_heads, step.keys, strides);
  }
  void yield(const TensorRef &tensor, Tensor uid, int64_t heads, int64_t rows,
             const std::vector<int64_t> &strides) {
    tensor->set_output(true)
        .set_uid(uid)
        .set_dim({step.batch, heads, rows, step.head_size})
        .set_stride(order(strides));
  }

  /// The same for both passes. A right bound of 0 is causality: no key behind
  /// the diagonal. The left bound is the window of a query.
  template <typename Attributes> void mask(Attributes &attributes) {
    attributes.set_name("attention").set_attn_scale(step.scale);
    // The last query sees the last key; see cutAttention().
    // Both are the same where there are as many queries as keys.
    attributes.set_diagonal_alignment(
        step.queries == step.keys ? fe::DiagonalAlignment_t::TOP_LEFT
                                  : fe::DiagonalAlignment_t::BOTTOM_RIGHT);
    if (step.causal)
      attributes.set_diagonal_band_right_bound(0);
    if (step.window)
      attributes.set_diagonal_band_left_bound(static_cast<int>(step.window));
  }

  const fb::AttentionStepT &step;
  fe::graph::Graph &graph;
};

} // namespace

/// Behind a pointer, since the front end's headers stay in this file.
struct CudnnGraph::Content {
  fe::graph::Graph graph;
  bool backward = false;

  /// Inputs and results are bf16, everything between them f32.
  void describe(const fb::AttentionStepT &step) {
    graph.set_io_data_type(fe::DataType_t::BFLOAT16)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    backward = step.kind == fb::AttentionKind::Backward;
    Describer describer(step, graph);
    if (backward)
      describer.backward();
    else
      describer.forward();
  }

  /// Asks both heuristics: A names the engines that are fast, the fallback
  /// those that compute more shapes. Comes after the operations have been
  /// built.
  Status findEngines() {
    return toStatus(graph.create_execution_plans(
        {fe::HeurMode_t::A, fe::HeurMode_t::FALLBACK}));
  }

  Result<std::string> nameOf(int64_t engine) const {
    std::string name;
    PLAIT_RETURN_IF_ERROR(toStatus(graph.get_plan_name_at_index(engine, name)));
    return name;
  }

  /// Two of the same name are the same.
  Result<std::vector<std::string>> names() const {
    std::vector<std::string> all;
    for (int64_t i = 0; i < graph.get_execution_plan_count(); ++i) {
      auto name = nameOf(i);
      if (!name.ok())
        return name.status();
      if (std::ranges::find(all, *name) == all.end())
        all.push_back(std::move(*name));
    }
    return all;
  }

  /// Leaves the engines that need at most `limit` bytes; there is one.
  Status choose(uint64_t limit) {
    PLAIT_RETURN_IF_ERROR(findEngines());
    // Without an engine this is what the graph itself needs, beside them.
    int64_t own = graph.get_autotune_workspace_size();
    int64_t rest = static_cast<int64_t>(limit) - own;
    graph.deselect_workspace_greater_than(rest);
    if (rest >= 0 && graph.check_support().is_good())
      return Status::success();
    return fail("no engine of cuDNN ", cudnnVersion(), " computes it in ",
                limit, " bytes of workspace");
  }

  /// Compiles the engine where it is not in the library ready-made, which takes
  /// some seconds.
  Status build(cudnnContext *handle, const std::string &configuration) {
    if (configuration.empty())
      return toStatus(
          graph.build_plans(fe::BuildPlanPolicy_t::HEURISTICS_CHOICE));
    for (int64_t i = 0; i < graph.get_execution_plan_count(); ++i)
      if (auto name = nameOf(i); name.ok() && *name == configuration)
        return toStatus(graph.build_plan_at_index(handle, i));
    return fail("cuDNN ", cudnnVersion(), " has no engine '", configuration,
                "' for it");
  }
};

size_t runtime::cudnnVersion() { return fe::detail::get_backend_version(); }

/// Once a process; what the front end looks functions up in is a global of its
/// own. A failure is remembered.
Status runtime::loadCudnn() {
  static const Status status = [] {
    auto library = SharedLibrary::open("libcudnn.so.9", "PLAIT_CUDNN");
    if (!library.ok())
      return library.status();
    fe::cudnn_dlhandle = library->native();
    // The front end looks for several runtimes and complains where it finds
    // two.
    setenv("CUDNN_FRONTEND_CUDART_LIB_NAME",
           ("libcudart.so." + std::to_string(CUDART_VERSION / 1000)).c_str(),
           /*overwrite=*/0);
    return guarded([] {
      // The first whose backward pass takes any length of sequence without
      // copying lengths to the GPU; 9.16.0 counts as 91600.
      constexpr size_t least = 91600;
      size_t version = fe::detail::get_backend_version();
      if (version >= least && version / 10000 == least / 10000)
        return Status::success();
      return fail("libcudnn is version ", version, ", needed is ", least,
                  " or a later 9.x");
    });
  }();
  return status;
}

Result<CudnnHandle> CudnnHandle::create(CUstream stream) {
  PLAIT_RETURN_IF_ERROR(loadCudnn());
  CudnnHandle result(nullptr);
  PLAIT_RETURN_IF_ERROR(guarded([&] {
    cudnnStatus_t status = fe::detail::create_handle(&result.handle);
    if (status == CUDNN_STATUS_SUCCESS)
      status = fe::detail::set_stream(result.handle, stream);
    return status == CUDNN_STATUS_SUCCESS
               ? Status::success()
               : fail("cuDNN: ", fe::detail::get_error_string(status));
  }));
  return result;
}

CudnnHandle::CudnnHandle(CudnnHandle &&other) noexcept
    : handle(std::exchange(other.handle, nullptr)) {}

CudnnHandle::~CudnnHandle() {
  if (handle)
    fe::detail::destroy_handle(handle);
}

CudnnGraph::CudnnGraph(std::unique_ptr<Content> content)
    : content(std::move(content)) {}
CudnnGraph::CudnnGraph(CudnnGraph &&) noexcept = default;
CudnnGraph::~CudnnGraph() = default;

Result<CudnnGraph> CudnnGraph::create(const fb::AttentionStepT &step,
                                      const CudnnHandle &handle,
                                      uint64_t workspace,
                                      const std::string &configuration) {
  auto made = std::make_unique<Content>();
  PLAIT_RETURN_IF_ERROR(guarded([&] {
    made->describe(step);
    PLAIT_RETURN_IF_ERROR(toStatus(made->graph.validate()));
    PLAIT_RETURN_IF_ERROR(
        toStatus(made->graph.build_operation_graph(handle.get())));
    PLAIT_RETURN_IF_ERROR(made->choose(workspace));
    return made->build(handle.get(), configuration);
  }));
  return CudnnGraph(std::move(made));
}

Result<std::vector<std::string>>
CudnnGraph::configurations(const fb::AttentionStepT &step,
                           const CudnnHandle &handle) {
  std::vector<std::string> names;
  PLAIT_RETURN_IF_ERROR(guarded([&] {
    Content content;
    content.describe(step);
    PLAIT_RETURN_IF_ERROR(toStatus(content.graph.validate()));
    PLAIT_RETURN_IF_ERROR(
        toStatus(content.graph.build_operation_graph(handle.get())));
    PLAIT_RETURN_IF_ERROR(content.findEngines());
    auto found = content.names();
    if (found.ok())
      names = std::move(*found);
    return found.status();
  }));
  return names;
}

Result<std::string> CudnnGraph::configuration() const {
  std::string name;
  PLAIT_RETURN_IF_ERROR(
      guarded([&] { return toStatus(content->graph.get_plan_name(name)); }));
  return name;
}

/// The same steps without a device and without compiling an engine. Tests ask
/// for GPUs that are not there.
Result<std::vector<std::string>>
CudnnGraph::findFor(const fb::AttentionStepT &step,
                    const std::string &properties, int architecture,
                    uint64_t workspace) {
  PLAIT_RETURN_IF_ERROR(loadCudnn());
  std::vector<std::string> names;
  PLAIT_RETURN_IF_ERROR(guarded([&] {
    auto device = std::make_shared<fe::DeviceProperties>();
    PLAIT_RETURN_IF_ERROR(toStatus(device->deserialize(
        std::vector<uint8_t>(properties.begin(), properties.end()))));
    Content content;
    content.graph.set_device_properties(device);
    content.graph.set_sm_version(architecture);
    content.describe(step);
    PLAIT_RETURN_IF_ERROR(toStatus(content.graph.validate()));
    PLAIT_RETURN_IF_ERROR(toStatus(content.graph.build_operation_graph()));
    PLAIT_RETURN_IF_ERROR(content.choose(workspace));
    auto found = content.names();
    if (found.ok())
      names = std::move(*found);
    return found.status();
  }));
  return names;
}

/// Names tensors by numbers; the map is small and of this call. `operands` of a
/// forward pass are q, k, v and the results o and stats, all of which a
/// backward pass reads.
Status CudnnGraph::run(const CudnnHandle &handle,
                       const AttentionOperands &operands,
                       std::byte *workspace) const {
  auto address = [](const std::byte *data) -> void * {
    return const_cast<std::byte *>(data);
  };
  std::unordered_map<int64_t, void *> tensors = {{Q, address(operands.q)},
                                                 {K, address(operands.k)},
                                                 {V, address(operands.v)},
                                                 {O, operands.o},
                                                 {Stats, operands.stats}};
  if (content->backward)
    tensors.insert({{Gradient, address(operands.gradient)},
                    {DQ, operands.dq},
                    {DK, operands.dk},
                    {DV, operands.dv}});
  return guarded([&] {
    return toStatus(content->graph.execute(handle.get(), tensors, workspace));
  });
}
