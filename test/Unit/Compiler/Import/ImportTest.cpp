//===- ImportTest.cpp - Models that are understood ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Harness.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "plait/Dialect/NN/IR/NN.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>

using namespace mlir;
using namespace plait;
using namespace plait::test;

namespace {
class ImportTest : public ImportHarness {
protected:
  /// Imports without a complaint.
  OwningOpRef<ModuleOp> load(const std::string &path) {
    Imported result = importPath(path);
    EXPECT_TRUE(result.module && result.warnings.empty())
        << (result.errors.empty() ? path : result.errors.front());
    return std::move(result.module);
  }
};
} // namespace

static int64_t countParameters(ModuleOp module) {
  int64_t count = 0;
  for (auto parameter : module.getOps<nn::ParameterOp>())
    count += cast<RankedTensorType>(parameter.getType()).getNumElements();
  return count;
}

static nn::ParameterOp find(ModuleOp module, StringRef name) {
  return module.lookupSymbol<nn::ParameterOp>(name);
}

static std::string print(Operation *op) {
  std::string text;
  llvm::raw_string_ostream out(text);
  op->print(out);
  return text;
}

TEST_F(ImportTest, CountsParameters) {
  const std::pair<const char *, int64_t> models[] = {
      {"gpt2", 124439808},
      {"tinyllama-1.1b", 1100048384},
      {"llama-3-8b", 8030261248},
      {"llama-3.1-8b", 8030261248},
      {"llama-3-70b", 70553706496},
      {"mistral-7b", 7241732096},
      {"phi-3-mini", 3821079552},
      {"qwen2.5-7b", 7615616512},
      {"qwen3-8b", 8190735360},
      {"mixtral-8x7b", 46702792704},
      {"qwen3-30b-a3b", 30532122624},
      {"deepseek-v3", 671026419200},
      {"gpt-oss-20b", 20914757184},
  };
  for (auto [name, count] : models)
    EXPECT_EQ(countParameters(*load(PLAIT_MODELS "/" + std::string(name))),
              count)
        << name;
}

TEST_F(ImportTest, DescribesTheModel) {
  OwningOpRef<ModuleOp> module = load(PLAIT_MODELS "/gpt2/config.json");
  auto model = (*module)->getAttrOfType<DictionaryAttr>(nn::kModelAttr);
  ASSERT_TRUE(model);
  EXPECT_EQ(model.getAs<StringAttr>("model_type").str(), "gpt2");
  EXPECT_EQ(model.getAs<StringAttr>("name").str(), "gpt2");
  EXPECT_EQ(model.getAs<IntegerAttr>("vocab").getInt(), 50257);
  EXPECT_EQ(model.getAs<IntegerAttr>("layers").getInt(), 12);
}

/// Reports have these names.
TEST_F(ImportTest, NamesTheModel) {
  const std::pair<const char *, const char *> names[] = {
      {"/a/phi/config.json", "phi"},
      {"/a/configs/phi4.json", "phi4"},
      {"/config.json", "model"},
      {"/hub/models--openai-community--gpt2/snapshots/607a/config.json",
       "gpt2"},
      {"/hub/models--gpt2/snapshots/607a/config.json", "gpt2"},
      {"/run/snapshots/step5/config.json", "step5"}};
  for (auto [path, name] : names)
    EXPECT_EQ(getModelName(path), name) << path;
}

/// A folder of Hugging Face's cache, where files are links.
TEST_F(ImportTest, ReadsTheCache) {
  namespace fs = std::filesystem;
  fs::path root = fs::path(::testing::TempDir()) / "plait-cache";
  fs::path model = root / "models--me--tiny", snapshot = model / "snapshots/5a";
  fs::create_directories(snapshot);
  fs::create_directories(model / "blobs");
  fs::create_directories(model / "refs");
  std::ofstream(model / "blobs/77") << kLlama << "}";
  std::ofstream(model / "refs/main") << "5a\n";
  fs::create_symlink("../../blobs/77", snapshot / "config.json");
  for (const fs::path &path : {model, snapshot, snapshot / "config.json"}) {
    OwningOpRef<ModuleOp> module = load(path.string());
    EXPECT_TRUE(module);
    EXPECT_EQ(getModelName(path.string()), "tiny");
  }
  fs::remove_all(root);
}

/// The first configs had no model_type.
TEST_F(ImportTest, KnowsFamiliesByTheirClass) {
  std::string config = kGPT2, type = "\"model_type\": \"gpt2\"";
  config.replace(config.find(type), type.size(),
                 "\"architectures\": [\"GPT2LMHeadModel\"]");
  OwningOpRef<ModuleOp> module = importText(config + "}").module;
  ASSERT_TRUE(module);
  auto model = (*module)->getAttrOfType<DictionaryAttr>(nn::kModelAttr);
  EXPECT_EQ(model.getAs<StringAttr>("model_type").str(), "gpt2");
}

/// The shape that a file has of a parameter's tensor.
static std::vector<int64_t> getSavedShape(ModuleOp module, nn::FileAttr box) {
  auto model = module->getAttrOfType<DictionaryAttr>(nn::kModelAttr);
  auto shapes = model.getAs<DictionaryAttr>("shapes");
  auto saved = shapes ? shapes.getAs<DenseI64ArrayAttr>(box.getName())
                      : DenseI64ArrayAttr();
  return saved ? saved.asArrayRef().vec() : box.getShape().vec();
}

/// Every tensor of a real weight file is covered by parameters exactly once.
static void expectCovers(ModuleOp module, const std::string &file) {
  std::ifstream in(file, std::ios::binary);
  uint64_t length = 0;
  in.read(reinterpret_cast<char *>(&length), sizeof(length));
  std::string text(length, ' ');
  in.read(text.data(), length);
  auto header = llvm::json::parse(text);
  ASSERT_TRUE(bool(header)) << file;
  std::map<std::string, std::vector<int64_t>> shapes;
  std::map<std::string, int64_t> left;
  for (const auto &[name, value] : *header->getAsObject())
    if (name != "__metadata__") {
      int64_t elements = 1;
      for (const auto &extent : *value.getAsObject()->getArray("shape")) {
        shapes[name.str()].push_back(*extent.getAsInteger());
        elements *= *extent.getAsInteger();
      }
      left[name.str()] = elements;
    }
  for (auto parameter : module.getOps<nn::ParameterOp>()) {
    nn::FileAttr box = parameter.getFileAttr();
    std::string name = box.getName().str();
    std::vector<int64_t> shape = box.getShape().vec();
    int64_t elements =
        cast<RankedTensorType>(parameter.getType()).getNumElements();
    size_t star = name.find('*');
    if (star == std::string::npos) {
      EXPECT_EQ(getSavedShape(module, box), shapes[name]) << name;
      left[name] -= elements;
      continue;
    }
    // A tensor for each index along the first dimension.
    for (int64_t index = 0; index < shape.front(); ++index) {
      std::string own = name;
      own.replace(star, 1, std::to_string(index));
      EXPECT_EQ(std::vector(shape.begin() + 1, shape.end()), shapes[own])
          << own;
      left[own] -= elements / shape.front();
    }
  }
  for (const auto &[name, elements] : left)
    EXPECT_EQ(elements, 0) << name;
}

TEST_F(ImportTest, NamesTensorsAsHuggingFaceDoes) {
  for (const char *name : {"deepseek-v2-small-test", "qwen2-moe-small-test",
                           "deepseek-v3-small-test", "gemma-small-test",
                           "gemma2-small-test",      "gemma3-small-test",
                           "gpt-oss-small-test",     "gpt2-small-test",
                           "granite-small-test",     "olmo3-small-test",
                           "smollm3-small-test",     "llama-small-test",
                           "llama3-small-test",      "qwen2-yarn-small-test",
                           "mistral-small-test",     "mixtral-small-test",
                           "olmo2-small-test",       "olmoe-small-test",
                           "phi3-small-test",        "qwen2-small-test",
                           "qwen3-small-test",       "qwen3-moe-small-test",
                           "cohere-small-test",      "glm-small-test",
                           "glm4-small-test",        "neox-small-test",
                           "phi-small-test",         "stablelm-small-test",
                           "starcoder2-small-test",  "cohere-plus-small-test",
                           "stablelm2-small-test",   "olmo-small-test"}) {
    std::string folder = PLAIT_GOLDEN "/" + std::string(name);
    OwningOpRef<ModuleOp> module = load(folder);
    expectCovers(*module, folder + "/model.safetensors");
  }
}

/// Gate and up take turns in the last dimension of the file, which is saved as
/// transformers has it.
TEST_F(ImportTest, SplitsGptOssExperts) {
  // Longer than a window.
  OwningOpRef<ModuleOp> module =
      importPath(PLAIT_MODELS "/gpt-oss-20b", 1, 256).module;
  ASSERT_TRUE(module);
  std::string name = "model.layers.3.mlp.experts.gate_up_proj";
  nn::ParameterOp up = find(*module, name + ".up");
  ASSERT_TRUE(up);
  EXPECT_EQ(print(up),
            "nn.parameter @model.layers.3.mlp.experts.gate_up_proj.up : "
            "tensor<32x2880x2880xf32> init<mean = 0.000000e+00 : f64, std = "
            "2.000000e-02 : f64> decay file<name = \"" +
                name +
                "\", shape = [32, 2880, 2880, 2], begin = [0, 0, 0, 1], box = "
                "[32, 2880, 2880, 1]>");
  auto model = (*module)->getAttrOfType<DictionaryAttr>(nn::kModelAttr);
  auto shapes = model.getAs<DictionaryAttr>("shapes");
  ASSERT_TRUE(shapes);
  EXPECT_EQ(shapes.getAs<DenseI64ArrayAttr>(name).asArrayRef(),
            ArrayRef<int64_t>({32, 2880, 5760}));
  EXPECT_EQ(shapes.getAs<DenseI64ArrayAttr>(name + "_bias").asArrayRef(),
            ArrayRef<int64_t>({32, 5760}));
  // Windows of every other layer, from the first on.
  SmallVector<bool> windows;
  module->walk([&](nn::AttentionOp op) {
    windows.push_back(op.getScore().getWindow() != nullptr);
    EXPECT_TRUE(op.getSinks());
  });
  ASSERT_EQ(windows.size(), 24u);
  for (auto [layer, window] : llvm::enumerate(windows))
    EXPECT_EQ(window, layer % 2 == 0) << layer;
}

TEST_F(ImportTest, SplitsGPT2sAttention) {
  OwningOpRef<ModuleOp> module = importText(std::string(kGPT2) + "}").module;
  nn::ParameterOp key = find(*module, "transformer.h.1.attn.c_attn.weight.k");
  ASSERT_TRUE(key);
  EXPECT_EQ(print(key),
            "nn.parameter @transformer.h.1.attn.c_attn.weight.k : "
            "tensor<12x3x4xf32> init<mean = 0.000000e+00 : f64, std = "
            "2.000000e-02 : f64> decay file<name = "
            "\"transformer.h.1.attn.c_attn.weight\", shape = [12, 36], begin = "
            "[0, 12], box = [12, 12]>");
  nn::ParameterOp bias = find(*module, "transformer.h.1.attn.c_attn.bias.v");
  ASSERT_TRUE(bias);
  EXPECT_FALSE(bias.getDecay());
  EXPECT_EQ(bias.getFileAttr().getBegin().vec(), std::vector<int64_t>{24});
  // Two residual additions in each of two layers.
  nn::ParameterOp out = find(*module, "transformer.h.0.attn.c_proj.weight");
  EXPECT_EQ(out.getInit().getStd().getValueAsDouble(), 0.02 / std::sqrt(4.0));
  nn::ParameterOp norm = find(*module, "transformer.ln_f.weight");
  EXPECT_EQ(norm.getInit().getMean().getValueAsDouble(), 1.0);
  EXPECT_EQ(norm.getInit().getStd().getValueAsDouble(), 0.0);
}

/// What a layer consists of, by the names of its ops; layer -1 is the rest.
static std::map<int64_t, std::vector<std::string>> getLayers(ModuleOp module) {
  std::map<int64_t, std::vector<std::string>> layers;
  auto loss = module.lookupSymbol<func::FuncOp>(nn::kLossFunction);
  for (Operation &op : loss.getBody().front()) {
    auto layer = op.getAttrOfType<IntegerAttr>(nn::kLayerAttr);
    layers[layer ? layer.getInt() : -1].push_back(
        op.getName().getStringRef().str());
  }
  return layers;
}

TEST_F(ImportTest, MarksLayers) {
  for (const char *config : {kGPT2, kLlama}) {
    OwningOpRef<ModuleOp> module = importText(std::string(config) + "}").module;
    auto layers = getLayers(*module);
    ASSERT_EQ(layers.size(), 3u);
    EXPECT_EQ(layers[0], layers[1]);
    EXPECT_EQ(llvm::count(layers[0], "nn.attention"), 1);
    EXPECT_EQ(llvm::count(layers[-1], "nn.softmax_cross_entropy"), 1);
    EXPECT_EQ(llvm::count(layers[-1], "nn.attention"), 0);
  }
}

TEST_F(ImportTest, BuildsTheLossFunction) {
  OwningOpRef<ModuleOp> module =
      importText(std::string(kGPT2) + ", \"resid_pdrop\": 0.0, "
                                      "\"embd_pdrop\": 0, "
                                      "\"attn_pdrop\": 0.0}",
                 3, 32)
          .module;
  auto loss = module->lookupSymbol<func::FuncOp>(nn::kLossFunction);
  EXPECT_EQ(print(*module).find("nn.transpose"), std::string::npos);
  std::string type;
  llvm::raw_string_ostream(type) << loss.getFunctionType();
  EXPECT_EQ(type, "(tensor<3x32xi32>, tensor<3x32xi32>) -> "
                  "(tensor<f32>, tensor<f32>)");
}

TEST_F(ImportTest, TiesOrUntiesTheHead) {
  for (auto [config, ties] : {std::pair(kGPT2, true), {kLlama, false}})
    for (bool tied : {true, false}) {
      std::string field = tied == ties ? ""
                          : tied       ? ", \"tie_word_embeddings\": true"
                                       : ", \"tie_word_embeddings\": false";
      OwningOpRef<ModuleOp> module =
          importText(std::string(config) + field + "}").module;
      EXPECT_EQ(bool(find(*module, "lm_head.weight")), !tied);
    }
}

/// The dropouts of a function: "op probability site", in order.
static std::vector<std::string> getDropouts(ModuleOp module) {
  std::vector<std::string> found;
  module.lookupSymbol<func::FuncOp>(nn::kLossFunction).walk([&](Operation *op) {
    auto site = op->getAttrOfType<IntegerAttr>(nn::kSiteAttr);
    if (!site)
      return;
    auto probability = op->getAttrOfType<FloatAttr>("probability");
    found.push_back((op->getName().getStringRef() + " " +
                     llvm::formatv("{0:f2}", probability.getValueAsDouble()) +
                     " " + llvm::Twine(site.getInt()))
                        .str());
  });
  return found;
}

TEST_F(ImportTest, DropsWhatTheConfigSays) {
  Imported result = importText(
      std::string(kGPT2) +
      ", \"resid_pdrop\": 0.2, \"embd_pdrop\": 0.3, \"attn_pdrop\": 0.4}");
  ASSERT_TRUE(result.module && result.warnings.empty());
  const std::vector<std::string> expected = {
      "nn.dropout 0.30 0", "nn.attention 0.40 1", "nn.dropout 0.20 2",
      "nn.dropout 0.20 3", "nn.attention 0.40 4", "nn.dropout 0.20 5",
      "nn.dropout 0.20 6"};
  EXPECT_EQ(getDropouts(*result.module), expected);
  auto loss = result.module->lookupSymbol<func::FuncOp>(nn::kLossFunction);
  ASSERT_EQ(loss.getNumArguments(), 3u);
  EXPECT_EQ(cast<RankedTensorType>(loss.getArgumentTypes()[2]).getRank(), 1);
  OwningOpRef<ModuleOp> llama =
      importText(std::string(kLlama) + ", \"attention_dropout\": 0.5}").module;
  EXPECT_EQ(
      getDropouts(*llama),
      (std::vector<std::string>{"nn.attention 0.50 0", "nn.attention 0.50 1"}));
}

/// What a config does not say is as in Hugging Face's: a tenth for GPT-2, whose
/// saved configs leave it out then, and none for Llama.
TEST_F(ImportTest, DropsByDefaultAsHuggingFaceDoes) {
  OwningOpRef<ModuleOp> gpt2 =
      importText(std::string(kGPT2) + ", \"embd_pdrop\": 0.0}").module;
  EXPECT_EQ(getDropouts(*gpt2), (std::vector<std::string>{
                                    "nn.attention 0.10 0", "nn.dropout 0.10 1",
                                    "nn.dropout 0.10 2", "nn.attention 0.10 3",
                                    "nn.dropout 0.10 4", "nn.dropout 0.10 5"}));
  OwningOpRef<ModuleOp> llama = importText(std::string(kLlama) + "}").module;
  EXPECT_TRUE(getDropouts(*llama).empty());
}

TEST_F(ImportTest, ReadsRopeScalingInBothForms) {
  const std::string scaling =
      "\"rope_type\": \"llama3\", \"factor\": 8.0, \"low_freq_factor\": 1.0,"
      "\"high_freq_factor\": 4.0, \"original_max_position_embeddings\": 64";
  const std::string older =
      ", \"rope_theta\": 500.0, \"rope_scaling\": {" + scaling + "}}";
  const std::string newer =
      ", \"rope_parameters\": {\"rope_theta\": 500.0, " + scaling + "}}";
  std::string first = print(*importText(kLlama + older).module);
  EXPECT_EQ(first, print(*importText(kLlama + newer).module));
  EXPECT_NE(first.find("theta 5.000000e+02 scaling <factor = 8.000000e+00"),
            std::string::npos);
}

/// What follows from a config is what transformers computes of it: with bounds
/// of pairs that are cut, at 0 and at the last element of a head.
TEST_F(ImportTest, ReadsYarn) {
  auto read = [this](const std::string &more) {
    return print(*importText(std::string(kLlama) +
                             ", \"rope_scaling\": {\"type\": \"yarn\", "
                             "\"factor\": 4, " +
                             more + "}}")
                      .module);
  };
  EXPECT_NE(
      read("\"original_max_position_embeddings\": 16")
          .find("yarn <factor = 4.000000e+00 : f64, first = 0.000000e+00 : "
                "f64, last = 1.000000e+00 : f64, amplitude = "
                "1.138629"),
      std::string::npos);
  EXPECT_NE(read("\"original_max_position_embeddings\": 16, \"mscale\": 1.0, "
                 "\"mscale_all_dim\": 1.0")
                .find("amplitude = 1.000000e+00"),
            std::string::npos);
  EXPECT_NE(read("\"original_max_position_embeddings\": 16, "
                 "\"attention_factor\": 0.5, \"truncate\": false")
                .find("amplitude = 5.000000e-01"),
            std::string::npos);
}

/// The scaling counts every frequency as low.
TEST_F(ImportTest, DividesFrequenciesLinearly) {
  std::string text = print(
      *importText(std::string(kLlama) +
                  ", \"rope_scaling\": {\"type\": \"linear\", \"factor\": 4}}")
           .module);
  EXPECT_NE(text.find("scaling <factor = 4.000000e+00"), std::string::npos);
  EXPECT_NE(text.find("original = 1"), std::string::npos);
}

TEST_F(ImportTest, AddsLlamasBiases) {
  OwningOpRef<ModuleOp> module =
      importText(std::string(kLlama) +
                 ", \"attention_bias\": true, \"mlp_bias\": true}")
          .module;
  int64_t biases = 0;
  for (auto parameter : module->getOps<nn::ParameterOp>())
    biases += parameter.getSymName().ends_with(".bias");
  EXPECT_EQ(biases, 2 * 7);
}

/// The window of each attention of a module; 0 for none.
static std::vector<int64_t> getWindows(ModuleOp module) {
  std::vector<int64_t> found;
  module.walk([&](nn::AttentionOp attention) {
    IntegerAttr window = attention.getScore().getWindow();
    found.push_back(window ? window.getInt() : 0);
  });
  return found;
}

TEST_F(ImportTest, GivesLayersTheirWindows) {
  using Windows = std::vector<int64_t>;
  auto windows = [&](const char *family, const std::string &fields) {
    Imported found = importText(likeLlama(family) + ", " + fields + "}");
    return found.module ? getWindows(*found.module) : Windows();
  };
  EXPECT_EQ(windows("mistral", "\"sliding_window\": 5"), Windows({5, 5}));
  EXPECT_EQ(windows("mistral", "\"sliding_window\": null"), Windows({0, 0}));
  // No shorter than the sequence.
  EXPECT_EQ(windows("mistral", "\"sliding_window\": 16"), Windows({0, 0}));
  EXPECT_EQ(windows("mistral", "\"use_cache\": true"), Windows({0, 0}));
  EXPECT_EQ(windows("phi3", "\"sliding_window\": 5"), Windows({5, 5}));
  EXPECT_EQ(windows("qwen2", "\"sliding_window\": 5"), Windows({0, 0}));
  const std::string used = "\"use_sliding_window\": true, ";
  const std::string five = used + "\"sliding_window\": 5, ";
  EXPECT_EQ(windows("qwen2", five + "\"max_window_layers\": 1"),
            Windows({0, 5}));
  EXPECT_EQ(windows("qwen2", five + "\"use_cache\": true"), Windows({0, 0}));
  EXPECT_EQ(windows("qwen3", five + "\"max_window_layers\": 0"),
            Windows({5, 5}));
  EXPECT_EQ(windows("qwen3", used + "\"sliding_window\": null, "
                                    "\"max_window_layers\": 0"),
            Windows({0, 0}));
  EXPECT_EQ(windows("qwen3", five + "\"layer_types\": [\"sliding_attention\", "
                                    "\"full_attention\"]"),
            Windows({5, 0}));
}

/// What absent fields have: Mistral's window of 4096.
TEST_F(ImportTest, HasTheUsualWindow) {
  Imported found = importText(likeLlama("mistral") + "}", 1, 4100);
  ASSERT_TRUE(found.module);
  EXPECT_EQ(getWindows(*found.module), std::vector<int64_t>({4096, 4096}));
}

TEST_F(ImportTest, NormsQwen3sHeads) {
  OwningOpRef<ModuleOp> module = importText(likeLlama("qwen3") + "}").module;
  nn::ParameterOp norm =
      find(*module, "model.layers.1.self_attn.k_norm.weight");
  ASSERT_TRUE(norm);
  EXPECT_EQ(cast<RankedTensorType>(norm.getType()).getShape(),
            ArrayRef<int64_t>({128}));
}

/// Fields of published configs that the examples leave out.
TEST_F(ImportTest, ReadsPublishedConfigs) {
  Imported gpt2 = importText(
      std::string(kGPT2) +
      R"(, "architectures": ["GPT2LMHeadModel"], "n_ctx": 32, "n_special": 0,
      "predict_special_tokens": true, "output_past": true, "n_inner": null,
      "summary_activation": null, "summary_first_dropout": 0.1,
      "summary_proj_to_labels": true, "summary_type": "cls_index",
      "summary_use_proj": true, "task_specific_params": {"text-generation":
      {"do_sample": true, "max_length": 50}}, "use_cache": true})");
  EXPECT_TRUE(gpt2.module);
  Imported llama = importText(
      std::string(kLlama) +
      R"(, "_name_or_path": "x", "bos_token_id": 1, "eos_token_id": [1, 2],
      "pad_token_id": 0, "max_sequence_length": 2048, "head_dim": 8,
      "torch_dtype": "bfloat16", "transformers_version": "4.43.0.dev0",
      "rope_scaling": null, "use_cache": true, "pretraining_tp": 1})");
  EXPECT_TRUE(llama.module);
}

TEST_F(ImportTest, IsDeterministic) {
  std::string path = PLAIT_MODELS "/gpt2-nano";
  EXPECT_EQ(print(*load(path)), print(*load(path)));
}
