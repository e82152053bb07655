//===- HuggingFace.cpp - From a config.json to an nn module ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The importer of Hugging Face's config.json: reads the file, finds the family
// by its `model_type`, and turns what the family has read into a module.
// Nothing of the weights is looked at: names, shapes and initial values are
// enough, and the runtime reads the tensors when a run begins.
//
// A config is read as a whole before anything is built, so that an error leaves
// no half module.
//
//===----------------------------------------------------------------------===//

#include "../Retype.h"
#include "ModelBuilder.h"

#include "plait/Dialect/NN/IR/Parameters.h"
#include "plait/Plan/ModelFolder.h"

#include "mlir/IR/Verifier.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/Path.h"

using namespace mlir;
using namespace plait;
using namespace plait::hf;

static constexpr StringLiteral kConfigName = "config.json";

/// Fields that every model may have and that change no arithmetic: tokens that
/// only generation knows, types that the weights are stored in, outputs, tasks,
/// and what tools leave: those that train, convert or run on other hardware.
static const StringRef kIgnored[] = {"_attn_implementation*",
                                     "_commit_hash",
                                     "_flash_attn_2_enabled",
                                     "_from_model_config",
                                     "_name_or_path",
                                     "_num_labels",
                                     "_pre_quantization_dtype",
                                     "architectures",
                                     "attn_implementation",
                                     "auto_map",
                                     "bad_words_ids",
                                     "base_model*",
                                     "begin_suppress_tokens",
                                     "bos_token_id",
                                     "cache_implementation",
                                     "chunk_size_feed_forward",
                                     "cls_token_id",
                                     "custom_pipelines",
                                     "decoder_start_token_id",
                                     "diversity_penalty",
                                     "do_sample",
                                     "dtype",
                                     "early_stopping",
                                     "encoder_no_repeat_ngram_size",
                                     "eos_token_id",
                                     "exponential_decay_length_penalty",
                                     "finetuning_task",
                                     "flash_attention*",
                                     "forced_bos_token_id",
                                     "forced_eos_token_id",
                                     "gradient_checkpointing",
                                     "id2label",
                                     "internal_version",
                                     "is_decoder",
                                     "is_llama_config",
                                     "label2id",
                                     "length_penalty",
                                     "license",
                                     "max_length",
                                     "max_new_tokens",
                                     "max_pos_len",
                                     "max_seq_len",
                                     "max_seq_length",
                                     "max_sequence_length",
                                     "min_length",
                                     "min_new_tokens",
                                     "model_max_length",
                                     "name_or_path",
                                     "neftune_noise_alpha",
                                     "neuron",
                                     "no_repeat_ngram_size",
                                     "num_beam_groups",
                                     "num_beams",
                                     "num_labels",
                                     "num_logits_to_keep",
                                     "num_return_sequences",
                                     "onnx_*",
                                     "output_attentions",
                                     "output_hidden_states",
                                     "output_past",
                                     "output_scores",
                                     "pad_token_id",
                                     "padding_side",
                                     "prefix",
                                     "problem_type",
                                     "remove_invalid_values",
                                     "repetition_penalty",
                                     "return_dict",
                                     "return_dict_in_generate",
                                     "router_aux_loss_coef",
                                     "sep_token_id",
                                     "seq_len",
                                     "seq_length",
                                     "suppress_tokens",
                                     "task_specific_params",
                                     "temperature",
                                     "tf_legacy_loss",
                                     "tokenizer_class",
                                     "tokenizer_model_max_length",
                                     "tokenizer_padding_side",
                                     "top_k",
                                     "top_p",
                                     "torch_dtype",
                                     "torchscript",
                                     "transformers.js_config",
                                     "transformers_version",
                                     "typical_p",
                                     "unk_token_id",
                                     "unsloth_*",
                                     "use_bfloat16",
                                     "use_cache",
                                     "use_flash_attention*",
                                     "use_flash_attn*",
                                     "use_flashattn",
                                     "use_liger_kernel"};

/// Fields with the one value with which they ask for nothing: what they would
/// add is of other families, or of programs that call theirs by these names.
static constexpr std::pair<StringLiteral, StringLiteral> kRequired[] = {
    {"add_cross_attention", "false"},
    {"embedding_multiplier", "1.0"},
    {"full_attn_mod", "1"},
    {"hidden_dropout", "0.0"},
    {"hidden_dropout_prob", "0.0"},
    {"interpolate_factor", "1"},
    {"is_causal", "true"},
    {"is_encoder_decoder", "false"},
    {"lm_head_bias", "false"},
    {"logit_scale", "1.0"},
    {"logits_scaling", "1.0"},
    {"num_nextn_predict_layers", "0"},
    {"pretraining_tp", "1"},
    {"qk_layernorm", "false"},
    {"qk_norm", "false"},
    {"residual_multiplier", "1.0"},
    {"rope_interleaved", "false"},
    {"rotary_pct", "1.0"},
    {"tie_encoder_decoder", "false"},
    {"use_bias", "false"},
    {"use_qk_norm", "false"}};

/// The same, of families without experts.
static constexpr std::pair<StringLiteral, StringLiteral> kRequiredDense[] = {
    {"moe_layers", "[]"},
    {"num_experts", "0"},
    {"num_local_experts", "0"},
    {"use_moe", "false"}};

namespace {
/// The name in its configs, the class that saves them, and what reads them.
struct Family {
  StringLiteral name, architecture;
  Model (*read)(ConfigReader &, int64_t);
  bool hasExperts = false;
  /// Fields of kRequired that the family reads itself.
  ArrayRef<StringLiteral> own = {};
};
} // namespace

/// Granite's factors, Command R's and its norms, Stable LM's norms, what
/// GPT-NeoX and StarCoder 2 call theirs, and the further tokens that DeepSeek
/// predicts.
static constexpr StringLiteral kFactors[] = {
    "embedding_multiplier", "logits_scaling", "residual_multiplier"};
static constexpr StringLiteral kCohere[] = {"logit_scale", "use_qk_norm"};
static constexpr StringLiteral kHeadNorms[] = {"qk_layernorm"};
static constexpr StringLiteral kNeoX[] = {"hidden_dropout", "rotary_pct"};
static constexpr StringLiteral kBias[] = {"use_bias"};
static constexpr StringLiteral kFurther[] = {"num_nextn_predict_layers"};

static constexpr Family kFamilies[] = {
    {"cohere", "CohereForCausalLM", readCohere, /*hasExperts=*/false, kCohere},
    {"deepseek_v2", "DeepseekV2ForCausalLM", readDeepseekV2,
     /*hasExperts=*/true},
    {"deepseek_v3", "DeepseekV3ForCausalLM", readDeepseekV3,
     /*hasExperts=*/true, kFurther},
    {"gemma", "GemmaForCausalLM", readGemma},
    {"gemma2", "Gemma2ForCausalLM", readGemma2},
    {"gemma3_text", "Gemma3ForCausalLM", readGemma3},
    {"glm", "GlmForCausalLM", readGlm},
    {"glm4", "Glm4ForCausalLM", readGlm4},
    {"gpt2", "GPT2LMHeadModel", readGPT2},
    {"gpt_neox", "GPTNeoXForCausalLM", readGPTNeoX, /*hasExperts=*/false,
     kNeoX},
    {"gpt_oss", "GptOssForCausalLM", readGptOss, /*hasExperts=*/true},
    {"granite", "GraniteForCausalLM", readGranite, /*hasExperts=*/false,
     kFactors},
    {"llama", "LlamaForCausalLM", readLlama},
    {"mistral", "MistralForCausalLM", readMistral},
    {"mixtral", "MixtralForCausalLM", readMixtral, /*hasExperts=*/true},
    {"olmo", "OlmoForCausalLM", readOlmo},
    {"olmo2", "Olmo2ForCausalLM", readOlmo2},
    {"olmo3", "Olmo3ForCausalLM", readOlmo3},
    {"olmoe", "OlmoeForCausalLM", readOlmoe, /*hasExperts=*/true},
    {"phi", "PhiForCausalLM", readPhi},
    {"phi3", "Phi3ForCausalLM", readPhi3},
    {"qwen2", "Qwen2ForCausalLM", readQwen2},
    {"qwen2_moe", "Qwen2MoeForCausalLM", readQwen2Experts,
     /*hasExperts=*/true},
    {"qwen3", "Qwen3ForCausalLM", readQwen3},
    {"qwen3_moe", "Qwen3MoeForCausalLM", readQwen3Experts,
     /*hasExperts=*/true},
    {"smollm3", "SmolLM3ForCausalLM", readSmolLM3},
    {"stablelm", "StableLmForCausalLM", readStableLM, /*hasExperts=*/false,
     kHeadNorms},
    {"starcoder2", "Starcoder2ForCausalLM", readStarcoder2,
     /*hasExperts=*/false, kBias}};

/// The first configs of all had no `model_type`: what they are is said by the
/// class that has saved them. The message of a type that is not known lists
/// those that are.
static std::string readType(ConfigReader &config) {
  SmallVector<StringRef> names, architectures;
  for (const Family &family : kFamilies) {
    names.push_back(family.name);
    architectures.push_back(family.architecture);
  }
  if (!config.has("model_type") && config.has("architectures"))
    for (StringRef one : config.getChoices("architectures", architectures, 1))
      return names[llvm::find(architectures, one) - architectures.begin()]
          .str();
  return config.getChoice("model_type", names);
}

/// Reads what all families have, and leaves the rest to the family.
/// What would make the model another kind, an encoder or one with
/// cross-attention or with weights of few bits, is refused here for all
/// families. An unknown type yields an empty model, and the config has a
/// failure by then.
static Model readModel(ConfigReader &config, int64_t sequence,
                       std::string &type) {
  type = readType(config);
  config.ignore(kIgnored);
  if (config.getFlag("output_router_logits", false))
    config.fail(
        "field \"output_router_logits\" is true: the loss of routers that "
        "it turns on depends on how a batch is cut, which `balance` "
        "sequence=FACTOR does not");
  for (StringRef field : {"cross_attention_hidden_size", "quantization_config"})
    config.requireAbsent(field);
  // Old configs write {} for none.
  config.readObject("pruned_heads", [](ConfigReader &) {});
  for (const Family &family : kFamilies)
    if (type == family.name) {
      for (const auto &[field, supported] : kRequired)
        if (!llvm::is_contained(family.own, field))
          config.require(field, supported); // an absent field passes
      if (!family.hasExperts)
        for (const auto &[field, supported] : kRequiredDense)
          config.require(field, supported);
      return family.read(config, sequence);
    }
  return {};
}

std::string plait::getConfigPath(StringRef path) {
  if (!llvm::sys::fs::is_directory(path))
    return path.str();
  SmallString<128> file(findModelFolder(path.str()));
  llvm::sys::path::append(file, kConfigName);
  return file.str().str();
}

/// OWNER/MODEL, which is no path here, is a name of the hub: nothing is
/// downloaded, but how that is done is said.
Result<MappedFile> plait::openConfig(const std::string &path) {
  Result<MappedFile> file = MappedFile::open(path, "config");
  auto [owner, model] = StringRef(path).split('/');
  bool isName = !owner.empty() && !model.empty() && !owner.contains('.') &&
                !model.contains('/') && !llvm::sys::fs::exists(owner);
  if (file.ok() || !isName)
    return file;
  return fail(file.status().code(), file.status().message(),
              "; a model of the hub is downloaded first: hf download ", path,
              " --local-dir ", model.str());
}

/// By the absolute path, as "." and ".." have no name of their own. Without a
/// folder, a constant. A name in the cache is that of the owner and the model,
/// "models--OWNER--MODEL"; no model has two dashes in its own. Bytes of a path
/// that are no UTF-8 are replaced: reports are text.
std::string plait::getModelName(StringRef path) {
  SmallString<128> absolute(getConfigPath(path));
  if (llvm::sys::fs::make_absolute(absolute))
    return "model";
  llvm::sys::path::remove_dots(absolute, /*remove_dot_dot=*/true);
  if (llvm::sys::path::filename(absolute) != kConfigName)
    return llvm::json::fixUTF8(llvm::sys::path::stem(absolute));
  StringRef folder = llvm::sys::path::parent_path(absolute);
  StringRef above = llvm::sys::path::parent_path(folder);
  StringRef cached =
      llvm::sys::path::filename(llvm::sys::path::parent_path(above));
  StringRef name = llvm::sys::path::filename(folder);
  if (llvm::sys::path::filename(above) == "snapshots" &&
      cached.starts_with("models--"))
    name = cached.rsplit("--").second;
  return name.empty() || name == "/" ? "model" : llvm::json::fixUTF8(name);
}

/// `plait.model` says to later phases and to reports what was imported.
static void setModelAttr(ModuleOp module, StringRef type, StringRef name,
                         const Model &model,
                         const std::map<std::string, Shape> &saved) {
  Builder builder(module.getContext());
  SmallVector<NamedAttribute> entries = {
      builder.getNamedAttr("model_type", builder.getStringAttr(type)),
      builder.getNamedAttr("name", builder.getStringAttr(name)),
      builder.getNamedAttr("vocab", builder.getI64IntegerAttr(model.vocab)),
      builder.getNamedAttr("layers", builder.getI64IntegerAttr(model.layers))};
  SmallVector<NamedAttribute> shapes;
  for (const auto &[tensor, shape] : saved)
    shapes.push_back(
        builder.getNamedAttr(tensor, builder.getDenseI64ArrayAttr(shape)));
  if (!shapes.empty())
    entries.push_back(builder.getNamedAttr(nn::kShapesEntry,
                                           builder.getDictionaryAttr(shapes)));
  module->setAttr(nn::kModelAttr, builder.getDictionaryAttr(entries));
}

FailureOr<OwningOpRef<ModuleOp>>
plait::importHuggingFace(MLIRContext &context, StringRef path,
                         const ImportOptions &options) {
  std::string file = getConfigPath(path);
  Result<MappedFile> mapped = openConfig(file);
  if (!mapped.ok())
    return emitError(UnknownLoc::get(&context)) << mapped.status().message();
  std::span<const uint8_t> bytes = mapped->bytes();
  StringRef text(reinterpret_cast<const char *>(bytes.data()), bytes.size());
  return importConfig(context, text, file, options);
}

/// 1. Check what the caller wants.
/// 2. Read all fields; the first that is wrong ends it, and so do those that
///    nobody knows.
/// 3. Build the forward pass, and the loss behind it.
/// 4. Verify: an error here is one of this importer, not of the file.
FailureOr<OwningOpRef<ModuleOp>>
plait::importConfig(MLIRContext &context, StringRef text, StringRef file,
                    const ImportOptions &options) {
  Location loc = UnknownLoc::get(&context);
  // 1.
  if (failed(checkSize(loc, options.batch, options.sequence)))
    return failure();

  // 2.
  ConfigReader config(text);
  // Building asks nothing of the config: by then every field has been accepted.
  std::string type;
  Model model = readModel(config, options.sequence, type);
  if (std::string message = config.finish(options.ignoredFields);
      !message.empty())
    return emitError(loc) << file << ": " << message;

  if (!model.leftOut.empty())
    emitWarning(loc) << file << ": " << model.leftOut;

  // 3.
  context.loadDialect<nn::NNDialect, func::FuncDialect>();
  ModelBuilder builder(context, options);
  Value logits = model.build(builder);
  OwningOpRef<ModuleOp> module = builder.finish(logits);
  setModelAttr(*module, type, getModelName(file), model,
               builder.getSavedShapes());
  // 4.
  if (failed(verify(*module)))
    return failure();
  return module;
}
