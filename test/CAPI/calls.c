/* Calls of plait's C interface that have to fail, and what is left after them.

   Usage: calls PLAN FOLDER [MODEL MIXTURE]

   PLAN is of a model that several ranks may divide; FOLDER is empty. With MODEL
   and one that has experts the compiler is tried, too. Prints a line for each
   expectation that does not hold and ends with their number. */

#include <dlpack/dlpack.h>
#include <plait-c/plait.h>

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FAILED = 1, WRONG_CALL = 2, INVALID_OPTION = 10 };
static int broken = 0;

static void expect(int holds, const char *what, int line) {
  if (holds)
    return;
  ++broken;
  printf("calls.c:%d: %s\n", line, what);
}
#define EXPECT(condition) expect((condition) != 0, #condition, __LINE__)

/* Fails unless `error` is one with this code and text. */
static void fails(plait_error *error, int code, const char *text, int line) {
  if (!error || !strstr(error->message, text) ||
      (code && error->code != code)) {
    ++broken;
    printf("calls.c:%d: expected %d '%s', got %d '%s'\n", line, code, text,
           error ? (int)error->code : 0, error ? error->message : "success");
  }
  if (error && (!error->field || !error->place || !error->hint)) {
    ++broken;
    printf("calls.c:%d: a field is null\n", line);
  }
  plait_error_free(error);
}
#define FAILS(call, code, text) fails(call, code, text, __LINE__)

static void works(plait_error *error, int line) {
  if (!error)
    return;
  ++broken;
  printf("calls.c:%d: %s\n", line, error->message);
  plait_error_free(error);
}
#define WORKS(call) works(call, __LINE__)

/* The number behind "key": in a JSON text. */
static long number_of(const char *json, const char *key) {
  char pattern[64];
  snprintf(pattern, sizeof(pattern), "\"%s\":", key);
  const char *found = strstr(json, pattern);
  return found ? strtol(found + strlen(pattern), NULL, 10) : -1;
}

static plait_session *open_session(void) {
  plait_session *session = NULL;
  WORKS(plait_session_open(PLAIT_C_VERSION, &session));
  return session;
}

static void test_sessions(void) {
  plait_session *session = NULL;
  FAILS(plait_session_open(PLAIT_C_VERSION, NULL), WRONG_CALL,
        "session is null");
  FAILS(plait_session_open(PLAIT_C_VERSION + 1, &session), WRONG_CALL,
        "of plait's C interface, the library of");
  EXPECT(session == NULL);
  session = open_session();
  FAILS(plait_session_listen(NULL, NULL, NULL), WRONG_CALL, "session is null");
  FAILS(plait_describe(session, NULL), WRONG_CALL, "json is null");
  char *json = NULL;
  FAILS(plait_describe(NULL, &json), WRONG_CALL, "is null");
  int local = 0;
  FAILS(plait_describe(&local, &json), WRONG_CALL, "no handle");
  FAILS(plait_close(&local), WRONG_CALL, "no handle");
  WORKS(plait_describe(session, &json));
  EXPECT(strstr(json, plait_version()) != NULL);
  plait_text_free(json);
  plait_text_free(NULL);
  plait_error_free(NULL);
  WORKS(plait_close(NULL));
  WORKS(plait_close(session));
  FAILS(plait_close(session), WRONG_CALL, "closed before");
  FAILS(plait_describe(session, &json), WRONG_CALL, "closed before");
}

static void test_models(const char *folder) {
  plait_session *session = open_session();
  plait_model *model = NULL;
  plait_plan *plan = NULL;
  char *choice = NULL;
  FAILS(plait_model_import(NULL, folder, NULL, &model), WRONG_CALL, "");
  FAILS(plait_model_plan((plait_model *)session, "{}", &choice), WRONG_CALL,
        "");
  FAILS(plait_model_compile(NULL, "{}", folder, &plan), WRONG_CALL, "");
  EXPECT(!model && !plan && !choice);
  WORKS(plait_close(session));
}

/* Layouts for and of other programs. */
static void test_programs(const char *path) {
  plait_session *session = open_session(), *other = open_session();
  plait_model *model = NULL;
  char *json = NULL;
  FAILS(plait_cluster_describe(session, NULL, &json), WRONG_CALL, "name");
  FAILS(plait_cluster_describe(session, "h100:8", NULL), WRONG_CALL, "json");
  FAILS(plait_cluster_describe(session, "h10:8", &json), INVALID_OPTION,
        "unknown device");
  EXPECT(json == NULL);
  WORKS(plait_cluster_describe(session, "h100:2x8", &json));
  EXPECT(number_of(json, "devices") == 16 && number_of(json, "nodes") == 2);
  plait_text_free(json);
  json = NULL;
  WORKS(plait_model_import(session, path, NULL, &model));
  const char *sizes =
      "{\"cluster\": \"h100:2\", \"global-batch\": 8, \"seq\": 16}";
  FAILS(plait_model_emit(model, sizes, NULL, &json), WRONG_CALL, "program");
  FAILS(plait_model_emit(model, sizes, "megatron", NULL), WRONG_CALL,
        "emitted");
  FAILS(plait_model_emit(model, sizes, "megatro", &json), 0, "megatron");
  FAILS(plait_model_emit(model, "{}", "megatron", &json), INVALID_OPTION,
        "cluster");
  FAILS(plait_job_audit(session, "megatron", NULL, NULL, sizes, &json),
        WRONG_CALL, "job");
  FAILS(plait_job_audit(session, "megatron", "", NULL, sizes, NULL), WRONG_CALL,
        "audit");
  FAILS(plait_job_audit(session, "torchtitan", "", NULL, sizes, &json),
        INVALID_OPTION, "are read, expected megatron");
  FAILS(plait_job_audit(session, "megatron", "", NULL, "{}", &json),
        INVALID_OPTION, "cluster");
  FAILS(plait_job_audit(session, "megatron", "", NULL, sizes, &json), 0,
        "megatron: num-layers is missing");
  FAILS(
      plait_job_audit(session, "megatron", "--no-such 1", model, sizes, &json),
      0, "");
  FAILS(plait_job_audit(other, "megatron", "", model, sizes, &json), WRONG_CALL,
        "the model is of another session");
  EXPECT(json == NULL);
  WORKS(plait_close(other));
  WORKS(plait_close(session));
}

/* Refusals of the compiler: none leaves a plan behind. */
static void test_compiler(const char *path, const char *folder) {
  plait_session *session = open_session();
  plait_model *model = NULL;
  plait_plan *plan = NULL;
  char *choice = NULL, file[1024];
  snprintf(file, sizeof(file), "%s/compiled.plan", folder);
  FAILS(plait_model_import(session, folder, NULL, &model), 0, "");
  FAILS(plait_model_import(session, NULL, NULL, &model), WRONG_CALL, "path");
  FAILS(plait_model_import(session, path, NULL, NULL), WRONG_CALL, "model");
  FAILS(plait_model_import(session, path, "[]", &model), INVALID_OPTION,
        "the options are no JSON object");
  FAILS(plait_model_import(session, path,
                           "{\"dropout\": \"off\", \"dropout\": \"config\"}",
                           &model),
        INVALID_OPTION, "the key \"dropout\" twice");
  FAILS(plait_model_import(session, path, "{\"seq\": 4}", &model),
        INVALID_OPTION, "seq");
  FAILS(plait_model_import(session, path, "{\"dropout\": \"on\"}", &model),
        INVALID_OPTION, "dropout");
  FAILS(plait_model_import(session, path, "{\"document-mask\": 1}", &model),
        INVALID_OPTION, "document-mask");
  EXPECT(model == NULL);
  WORKS(plait_model_import(session, path, NULL, &model));
  FAILS(plait_model_plan(model, "{}", &choice), INVALID_OPTION,
        "cluster has to say what the plan is for");
  FAILS(plait_model_plan(model, "{\"cluster\": \"no such\"}", &choice), 0, "");
  FAILS(plait_model_plan(model, "{\"cluster\": 3}", &choice), INVALID_OPTION,
        "cluster");
  FAILS(plait_model_plan(model, NULL, NULL), WRONG_CALL, "choice is null");
  struct {
    const char *options, *text;
  } wrong[] = {{"{\"mesh\": \"tp=3\", \"seq\": 8}", ""},
               {"{\"mesh\": \"no=2\"}", "no"},
               {"{\"micro-batch\": 0}", "micro-batch"},
               {"{\"micro-batch\": \"many\"}", "micro-batch"},
               {"{\"schedule\": \"none\"}", "schedule"},
               {"{\"output\": \"x\"}", "output"},
               {"{\"prove\": true}", "prove"}};
  for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); ++i)
    FAILS(plait_model_compile(model, wrong[i].options, file, &plan), 0,
          wrong[i].text);
  const char *small = "{\"seq\": 8, \"no-reference\": true}";
  FAILS(plait_model_compile(model, small, NULL, &plan), WRONG_CALL, "path");
  FAILS(plait_model_compile(model, small, file, NULL), WRONG_CALL, "plan");
  FAILS(plait_model_compile(model, small, "/no/such/folder/a.plan", &plan), 0,
        "/no/such/folder");
  EXPECT(choice == NULL && plan == NULL && fopen(file, "rb") == NULL);
  WORKS(plait_model_compile(model, small, file, &plan));
  WORKS(plait_close(model));
  char *json = NULL; /* a plan outlives its model */
  WORKS(plait_describe(plan, &json));
  EXPECT(number_of(json, "sequence") == 8);
  plait_text_free(json);
  WORKS(plait_close(session));
}

/* What ranks of ep exchange: given, it is kept, and other plans come of it. */
static void test_experts(const char *path, const char *folder) {
  plait_session *session = open_session();
  plait_model *model = NULL;
  plait_plan *plan = NULL;
  char *json = NULL, file[1024], hashes[2][128], *names[] = {"tokens", "rows"};
  snprintf(file, sizeof(file), "%s/experts.plan", folder);
  WORKS(plait_model_import(session, path, NULL, &model));
  for (int i = 0; i < 2; ++i) {
    char given[64], options[256];
    snprintf(given, sizeof(given), "\"expert-exchange\":\"%s\"", names[i]);
    snprintf(options, sizeof(options),
             "{\"mesh\":\"ep=2\",\"seq\":8,\"global-batch\":2,"
             "\"cluster\":\"cpu:2\",%s}",
             given);
    WORKS(plait_model_plan(model, options, &json));
    EXPECT(strstr(json, given) != NULL);
    plait_text_free(json);
    WORKS(plait_model_compile(model, options, file, &plan));
    WORKS(plait_describe(plan, &json));
    snprintf(hashes[i], sizeof(hashes[i]), "%.100s", strstr(json, "\"hash\""));
    plait_text_free(json);
  }
  EXPECT(strcmp(hashes[0], hashes[1]) != 0);
  FAILS(plait_model_compile(model, "{\"expert-exchange\": \"some\"}", file,
                            &plan),
        INVALID_OPTION, "is \"some\", expected tokens or rows");
  WORKS(plait_close(session));
}

static void test_plans(const char *path, const char *folder) {
  plait_session *session = open_session();
  plait_plan *plan = NULL;
  char missing[1024];
  snprintf(missing, sizeof(missing), "%s/missing.plan", folder);
  FAILS(plait_plan_load(session, missing, &plan), 0, "missing.plan");
  FAILS(plait_plan_load(session, NULL, &plan), WRONG_CALL, "path is null");
  FAILS(plait_plan_load(session, path, NULL), WRONG_CALL, "plan is null");
  FAILS(plait_plan_load(session, __FILE__, &plan), 0, "");
  FAILS(plait_plan_load(NULL, path, &plan), WRONG_CALL, "session is null");
  EXPECT(plan == NULL);
  WORKS(plait_plan_load(session, path, &plan));
  FAILS(plait_plan_load((plait_session *)plan, path, &plan), WRONG_CALL,
        "the handle of a plan is given");
  WORKS(plait_close(session));
  FAILS(plait_close(plan), WRONG_CALL, "closed before");
}

/* A run and what it needs of its plan. */
struct setup {
  plait_session *session;
  plait_plan *plan;
  plait_run *run;
  size_t count;    /* tokens of a step */
  int32_t *tokens; /* of which each is in the vocabulary */
  long vocabulary;
  char name[256]; /* of a parameter */
};

static struct setup begin(const char *path, const char *options) {
  struct setup made = {.session = open_session()};
  WORKS(plait_plan_load(made.session, path, &made.plan));
  char *json = NULL;
  WORKS(plait_describe(made.plan, &json));
  made.count = (size_t)number_of(json, "global_batch") *
               (size_t)(number_of(json, "sequence") + 1);
  made.vocabulary = number_of(json, "vocabulary");
  const char *name = strstr(json, "\"parameters\":[{\"name\":\"") + 23;
  snprintf(made.name, sizeof(made.name), "%.*s", (int)strcspn(name, "\""),
           name);
  plait_text_free(json);
  made.tokens = calloc(made.count, sizeof(*made.tokens));
  for (size_t i = 0; i < made.count; ++i)
    made.tokens[i] = (int32_t)((i * 7919 + 13) % (size_t)made.vocabulary);
  WORKS(plait_run_begin(made.plan, options, &made.run));
  return made;
}

static void end(struct setup *made) {
  WORKS(plait_close(made->session));
  free(made->tokens);
}

static void test_options(const char *path) {
  struct setup made = begin(path, NULL);
  plait_run *run = NULL;
  struct {
    const char *options, *text;
  } wrong[] = {{"", "no JSON object"},
               {"[1]", "no JSON object"},
               {"{\"lr\": 0.1", "no JSON object"},
               {"{\"lr\": 0.1, \"lr\": 0.2}", "the key \"lr\" twice"},
               {"{\"no-such\": 1}", "no-such"},
               {"{\"check\": true}", "check"},
               {"{\"plan\": \"x\"}", "plan"},
               {"{\"save\": \"x\"}", "save"},
               {"{\"lr\": -1}", "lr"},
               {"{\"lr\": \"much\"}", "lr"},
               {"{\"lr\": null}", "lr"},
               {"{\"steps\": 0}", "steps"},
               {"{\"steps\": 1.5}", "steps"},
               {"{\"steps\": 3, \"epochs\": 1}", "epochs"},
               {"{\"epochs\": 1}", "epochs"},
               {"{\"warmup-steps\": 30}", "warmup-steps"},
               {"{\"tokens\": \"/no/such/file\"}", "/no/such/file"},
               {"{\"resume\": \"/no/such/folder\"}", "/no/such/folder"},
               {"{\"weights\": \"/no/such/folder\"}", "/no/such/folder"},
               {"{\"log\": \"-\"}", "log"}};
  for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); ++i) {
    plait_error *error = plait_run_begin(made.plan, wrong[i].options, &run);
    EXPECT(!error || !strstr(error->message, "--"));
    FAILS(error, 0, wrong[i].text);
  }
  plait_error *error = plait_run_begin(made.plan, "{\"lr\": -1}", &run);
  EXPECT(error && error->code == INVALID_OPTION && !strcmp(error->field, "lr"));
  plait_error_free(error);
  FAILS(plait_run_begin(NULL, NULL, &run), WRONG_CALL, "plan is null");
  FAILS(plait_run_begin(made.plan, NULL, NULL), WRONG_CALL, "run is null");
  FAILS(plait_run_begin(made.plan, "{\"log\": \"-\"}", &run), INVALID_OPTION,
        "log is standard output, which is the program's");
  FAILS(plait_run_begin(made.plan, "{\"epochs\": 1}", &run), INVALID_OPTION,
        "epochs needs data that the run reads by itself");
  FAILS(plait_run_begin((plait_plan *)made.run, NULL, &run), WRONG_CALL,
        "the handle of a run is given");
  EXPECT(run == NULL);
  end(&made);
}

static void test_steps(const char *path) {
  struct setup made = begin(path, "{\"steps\": 2}");
  plait_step step = {.size = sizeof(step), .step = 77};
  int32_t *tokens = made.tokens;
  FAILS(plait_run_step(NULL, tokens, made.count, &step), WRONG_CALL, "");
  FAILS(plait_run_step(made.run, tokens, made.count, NULL), WRONG_CALL,
        "step is null");
  step.size = 8;
  FAILS(plait_run_step(made.run, tokens, made.count, &step), WRONG_CALL,
        "step->size is 8");
  step.size = sizeof(step);
  FAILS(plait_run_step(made.run, NULL, 0, &step), 0, "no data of its own");
  FAILS(plait_run_step(made.run, NULL, 5, &step), WRONG_CALL, "tokens is null");
  FAILS(plait_run_step(made.run, tokens, made.count - 1, &step), 0,
        "a step needs");
  FAILS(plait_run_step(made.run, tokens, made.count + 1, &step), 0,
        "a step needs");
  int32_t kept = tokens[3];
  tokens[3] = (int32_t)made.vocabulary;
  FAILS(plait_run_step(made.run, tokens, made.count, &step), 0,
        "token 3 of row 0");
  tokens[3] = -1;
  FAILS(plait_run_step(made.run, tokens, made.count, &step), 0,
        "token 3 of row 0 is -1");
  tokens[3] = kept;
  EXPECT(step.step == 77);
  /* None of these has been a step. */
  WORKS(plait_run_step(made.run, tokens, made.count, &step));
  EXPECT(step.step == 1 && isfinite(step.loss) && step.gradient_norm > 0);
  EXPECT(step.learning_rate > 0 && isnan(step.evaluation_loss));
  EXPECT(isnan(step.named_losses[0]) && isnan(step.evaluation_named_losses[0]));
  /* A program of before there were named losses. */
  step.size = offsetof(plait_step, named_losses);
  step.named_losses[0] = 77;
  WORKS(plait_run_step(made.run, tokens, made.count, &step));
  EXPECT(step.step == 2 && step.named_losses[0] == 77);
  FAILS(plait_run_step(made.run, tokens, made.count, &step), 0,
        "all 2 steps of the run are done");
  FAILS(plait_run_checkpoint(made.run), 0, "no directory for checkpoints");
  FAILS(plait_run_save(made.run, NULL), WRONG_CALL, "directory is null");
  FAILS(plait_run_save(made.run, "/dev/null/folder"), 0, "/dev/null/folder");
  WORKS(plait_close(made.run));
  FAILS(plait_run_step(made.run, tokens, made.count, &step), WRONG_CALL,
        "closed before");
  end(&made);
}

/* A step that makes no finite loss ends the run, and says so once more. */
static void test_failed_step(const char *path) {
  struct setup made = begin(path, "{\"lr\": 1e9, \"grad-clip\": 0}");
  plait_step step = {.size = sizeof(step)};
  plait_error *error = NULL;
  for (int i = 0; i < 20 && !error; ++i)
    error = plait_run_step(made.run, made.tokens, made.count, &step);
  FAILS(error, 0, "step ");
  FAILS(plait_run_step(made.run, made.tokens, made.count, &step), 0,
        "the run has failed");
  DLManagedTensor *tensor = NULL;
  FAILS(
      plait_run_tensor(made.run, made.name, PLAIT_WEIGHT, PLAIT_WHOLE, &tensor),
      0, "the run has failed");
  FAILS(plait_run_save(made.run, "/no/such/folder"), 0, "the run has failed");
  EXPECT(tensor == NULL);
  end(&made);
}

static size_t elements_of(const DLTensor *tensor) {
  size_t count = 1;
  for (int i = 0; i < tensor->ndim; ++i)
    count *= (size_t)tensor->shape[i];
  return count;
}

static void test_tensors(const char *path) {
  struct setup made = begin(path, "{\"lr\": 0.1}");
  plait_run *run = made.run;
  const char *name = made.name;
  plait_step step = {.size = sizeof(step)};
  DLManagedTensor *tensor = NULL, *same = NULL;
  FAILS(plait_run_tensor(NULL, name, PLAIT_WEIGHT, 0, &tensor), WRONG_CALL,
        "run is null");
  FAILS(plait_run_tensor(run, NULL, PLAIT_WEIGHT, 0, &tensor), WRONG_CALL,
        "name is null");
  FAILS(plait_run_tensor(run, "no such", PLAIT_WEIGHT, 0, &tensor), WRONG_CALL,
        "no such");
  FAILS(plait_run_tensor(run, name, 9, 0, &tensor), WRONG_CALL, "kind is 9");
  FAILS(plait_run_tensor(run, name, PLAIT_WEIGHT, -2, &tensor), WRONG_CALL,
        "rank is -2");
  FAILS(plait_run_tensor(run, name, PLAIT_WEIGHT, 1000000, &tensor), WRONG_CALL,
        "rank 1000000 is none of this process, which has");
  FAILS(plait_run_tensor(run, name, PLAIT_WEIGHT, 0, NULL), WRONG_CALL,
        "tensor is null");
  EXPECT(tensor == NULL);

  /* What is set is what is read, on whichever ranks it lies. */
  WORKS(plait_run_tensor(run, name, PLAIT_WEIGHT, PLAIT_WHOLE, &tensor));
  DLTensor *view = &tensor->dl_tensor;
  size_t count = elements_of(view);
  float *values = malloc(count * sizeof(float));
  for (size_t i = 0; i < count; ++i)
    values[i] = (float)(i % 97) / 97 - 0.5f;
  DLManagedTensor given = *tensor;
  given.dl_tensor.data = values;
  WORKS(plait_run_set_tensor(run, name, &given));
  WORKS(plait_run_tensor(run, name, PLAIT_WEIGHT, PLAIT_WHOLE, &same));
  EXPECT(memcmp(same->dl_tensor.data, values, count * sizeof(float)) == 0);
  same->deleter(same);

  FAILS(plait_run_set_tensor(run, name, NULL), WRONG_CALL, "tensor is null");
  FAILS(plait_run_set_tensor(run, "no such", &given), WRONG_CALL,
        "the plan has no parameter 'no such'");
  DLManagedTensor wrong = given;
  wrong.dl_tensor.dtype.bits = 64;
  FAILS(plait_run_set_tensor(run, name, &wrong), WRONG_CALL,
        "is not of float32");
  wrong = given;
  wrong.dl_tensor.device.device_type = kDLCUDA;
  FAILS(plait_run_set_tensor(run, name, &wrong), WRONG_CALL,
        "expected the host");
  wrong = given;
  wrong.dl_tensor.ndim = 1;
  FAILS(plait_run_set_tensor(run, name, &wrong), WRONG_CALL,
        "has another shape than");
  wrong = given;
  wrong.dl_tensor.data = NULL;
  FAILS(plait_run_set_tensor(run, name, &wrong), WRONG_CALL, "is null");
  int64_t strides[8] = {1, 1, 1, 1, 1, 1, 1, 1};
  if (view->ndim == 2 && view->shape[0] > 1 && view->shape[1] > 1) {
    wrong = given;
    wrong.dl_tensor.strides = strides;
    FAILS(plait_run_set_tensor(run, name, &wrong), WRONG_CALL,
          "is not in row-major order");
  }

  /* A step changes the weights, and there is a gradient after it. */
  WORKS(plait_run_step(run, made.tokens, made.count, &step));
  WORKS(plait_run_tensor(run, name, PLAIT_WEIGHT, PLAIT_WHOLE, &same));
  EXPECT(memcmp(same->dl_tensor.data, values, count * sizeof(float)) != 0);
  same->deleter(same);
  WORKS(plait_run_tensor(run, name, PLAIT_GRADIENT, PLAIT_WHOLE, &same));
  const float *gradient = same->dl_tensor.data;
  double sum = 0;
  for (size_t i = 0; i < count; ++i)
    sum += fabs(gradient[i]);
  EXPECT(sum > 0 && isfinite(sum));
  same->deleter(same);

  /* Memory lives as long as somebody holds it. */
  WORKS(plait_close(made.session));
  volatile float touched = *(const float *)tensor->dl_tensor.data;
  EXPECT(isfinite(touched));
  tensor->deleter(tensor);
  FAILS(plait_run_tensor(run, name, PLAIT_WEIGHT, 0, &tensor), WRONG_CALL,
        "closed before");
  free(values);
  free(made.tokens);
}

/* A run goes on from where another one was, with the same numbers. */
static void test_checkpoints(const char *path, const char *folder) {
  char options[2048];
  snprintf(options, sizeof(options), "{\"checkpoint\": \"%s/checkpoints\"}",
           folder);
  struct setup made = begin(path, options);
  plait_step step = {.size = sizeof(step)};
  DLManagedTensor *held = NULL;
  WORKS(plait_run_step(made.run, made.tokens, made.count, &step));
  WORKS(plait_run_checkpoint(made.run));
  WORKS(plait_run_step(made.run, made.tokens, made.count, &step));
  WORKS(plait_run_checkpoint(made.run));
  WORKS(plait_run_checkpoint(made.run)); /* there is one already */
  WORKS(
      plait_run_tensor(made.run, made.name, PLAIT_WEIGHT, PLAIT_WHOLE, &held));
  WORKS(plait_run_step(made.run, made.tokens, made.count, &step));
  double expected = step.loss;
  end(&made);
  /* The directory is free, though memory of the run is held. */
  snprintf(options, sizeof(options),
           "{\"checkpoint\": \"%s/checkpoints\", \"resume\": "
           "\"%s/checkpoints\"}",
           folder, folder);
  made = begin(path, options);
  char *json = NULL;
  WORKS(plait_describe(made.run, &json));
  EXPECT(number_of(json, "step") == 2);
  plait_text_free(json);
  WORKS(plait_run_step(made.run, made.tokens, made.count, &step));
  EXPECT(step.step == 3 && step.loss == expected);
  end(&made);
  held->deleter(held);
}

/* What a listener may not do. */
static void call_back(void *user, int severity, const char *message) {
  (void)severity;
  (void)message;
  char *json = NULL;
  plait_error *error = plait_describe(*(void **)user, &json);
  expect(error &&
             strstr(error->message, "a listener has called its own session"),
         "a listener may call", __LINE__);
  plait_error_free(error);
}

static void test_listener(const char *path) {
  plait_session *session = open_session();
  plait_plan *plan = NULL;
  plait_run *run = NULL;
  WORKS(plait_session_listen(session, call_back, &session));
  WORKS(plait_plan_load(session, path, &plan));
  WORKS(plait_run_begin(plan, NULL, &run)); /* notes that weights are random */
  WORKS(plait_close(session));
}

struct worker {
  const char *path;
  double losses[3];
};

static void *work(void *argument) {
  struct worker *worker = argument;
  struct setup made = begin(worker->path, "{\"seed\": 5}");
  for (int i = 0; i < 3; ++i) {
    plait_step step = {.size = sizeof(step)};
    WORKS(plait_run_step(made.run, made.tokens, made.count, &step));
    worker->losses[i] = step.loss;
  }
  end(&made);
  return NULL;
}

/* Two sessions side by side compute what one does. */
static void test_threads(const char *path) {
  struct worker workers[3] = {{.path = path}, {.path = path}, {.path = path}};
  pthread_t threads[2];
  work(&workers[2]);
  for (int i = 0; i < 2; ++i)
    pthread_create(&threads[i], NULL, work, &workers[i]);
  for (int i = 0; i < 2; ++i)
    pthread_join(threads[i], NULL);
  for (int i = 0; i < 2; ++i)
    EXPECT(!memcmp(workers[i].losses, workers[2].losses,
                   sizeof(workers[2].losses)));
}

int main(int argc, char **argv) {
  if (argc != 3 && argc != 5)
    return 2;
  test_sessions();
  test_models(argv[2]);
  if (argc == 5) {
    test_programs(argv[3]);
    test_compiler(argv[3], argv[2]);
    test_experts(argv[4], argv[2]);
  }
  test_plans(argv[1], argv[2]);
  test_options(argv[1]);
  test_steps(argv[1]);
  test_failed_step(argv[1]);
  test_tensors(argv[1]);
  test_checkpoints(argv[1], argv[2]);
  test_listener(argv[1]);
  test_threads(argv[1]);
  printf("%d expectations do not hold\n", broken);
  return broken > 0;
}
