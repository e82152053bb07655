/* Plans, compiles and trains a small model through plait's C interface.

   Usage: train MODEL CLUSTER TOKENS OUTPUT

   MODEL is a folder with config.json or a .mlir file, CLUSTER as plaitc
   --cluster takes it, TOKENS a file of uint16 tokens, and OUTPUT a folder for
   the plan and the trained weights. Prints one line a step: its number, the
   loss and the gradient norm, with all their digits. See docs/CApi.md. */

#include <dlpack/dlpack.h>
#include <plait-c/plait.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GLOBAL_BATCH = 8, SEQUENCE = 32, STEPS = 5 };

/* Says what has failed, and ends this program: the library never does. */
static void check(plait_error *error) {
  if (!error)
    return;
  fprintf(stderr, "error %d: %s%s%s\n", (int)error->code, error->place,
          *error->place ? ": " : "", error->message);
  if (*error->hint)
    fprintf(stderr, "note: %s\n", error->hint);
  plait_error_free(error);
  exit(1);
}

static void listen(void *user, int severity, const char *message) {
  (void)user;
  if (severity == PLAIT_WARNING)
    fprintf(stderr, "warning: %s\n", message);
}

/* The text of {"options":{…},"prediction":…} up to the brace that ends the
   options; a program would use a JSON library. */
static char *copy_options(const char *choice) {
  const char *begin = strchr(choice + 1, '{'), *end = begin;
  int depth = 0;
  do
    depth += (*end == '{') - (*end == '}');
  while (*end++ && depth);
  char *options = calloc((size_t)(end - begin) + 1, 1);
  if (options)
    memcpy(options, begin, (size_t)(end - begin));
  return options;
}

/* Lets the planner choose, and compiles what it has chosen. */
static plait_plan *compile(plait_model *model, const char *cluster,
                           const char *path) {
  char given[512], *choice = NULL;
  snprintf(given, sizeof(given),
           "{\"cluster\": \"%s\", \"global-batch\": %d, \"seq\": %d}", cluster,
           GLOBAL_BATCH, SEQUENCE);
  check(plait_model_plan(model, given, &choice));
  char *options = copy_options(choice);
  plait_text_free(choice);
  plait_plan *plan = NULL;
  check(plait_model_compile(model, options, path, &plan));
  free(options);
  return plan;
}

/* Fills the rows of step `step`, from 1: row r of the batch is the sample after
   that of row r - 1, as plait-run reads a file. */
static void read_rows(FILE *file, int step, int32_t *rows) {
  for (int row = 0; row < GLOBAL_BATCH; ++row) {
    long sample = (long)(step - 1) * GLOBAL_BATCH + row;
    uint16_t tokens[SEQUENCE + 1];
    if (fseek(file, sample * SEQUENCE * (long)sizeof(*tokens), SEEK_SET) ||
        fread(tokens, sizeof(*tokens), SEQUENCE + 1, file) != SEQUENCE + 1) {
      fprintf(stderr, "error: too few tokens\n");
      exit(1);
    }
    for (int i = 0; i <= SEQUENCE; ++i)
      rows[row * (SEQUENCE + 1) + i] = tokens[i];
  }
}

/* The norm of a parameter, read where it lies. */
static double norm_of(plait_run *run, const char *name) {
  DLManagedTensor *tensor = NULL;
  check(plait_run_tensor(run, name, PLAIT_WEIGHT, PLAIT_WHOLE, &tensor));
  double sum = 0;
  int64_t count = 1;
  for (int i = 0; i < tensor->dl_tensor.ndim; ++i)
    count *= tensor->dl_tensor.shape[i];
  const float *data = tensor->dl_tensor.data;
  for (int64_t i = 0; i < count; ++i)
    sum += (double)data[i] * data[i];
  tensor->deleter(tensor);
  return sqrt(sum);
}

/* The name of the first parameter of a description of a plan. */
static void find_parameter(plait_plan *plan, char *name, size_t size) {
  char *json = NULL;
  check(plait_describe(plan, &json));
  const char *begin = strstr(json, "\"parameters\":[{\"name\":\"") + 23;
  snprintf(name, size, "%.*s", (int)strcspn(begin, "\""), begin);
  plait_text_free(json);
}

int main(int argc, char **argv) {
  if (argc != 5) {
    fprintf(stderr, "usage: train MODEL CLUSTER TOKENS OUTPUT\n");
    return 2;
  }
  char path[1024], name[256];
  snprintf(path, sizeof(path), "%s/model.plan", argv[4]);
  FILE *tokens = fopen(argv[3], "rb");
  if (!tokens) {
    fprintf(stderr, "error: cannot open '%s'\n", argv[3]);
    return 1;
  }

  plait_session *session = NULL;
  plait_model *model = NULL;
  plait_run *run = NULL;
  check(plait_session_open(PLAIT_C_VERSION, &session));
  check(plait_session_listen(session, listen, NULL));
  check(plait_model_import(session, argv[1], NULL, &model));
  plait_plan *plan = compile(model, argv[2], path);

  check(plait_run_begin(plan, "{\"steps\": 5, \"lr\": 0.01, \"seed\": 7}",
                        &run));
  find_parameter(plan, name, sizeof(name));
  printf("norm of %s %.6f\n", name, norm_of(run, name));
  static int32_t rows[GLOBAL_BATCH * (SEQUENCE + 1)];
  for (int step = 1; step <= STEPS; ++step) {
    plait_step done = {.size = sizeof(done)};
    read_rows(tokens, step, rows);
    check(plait_run_step(run, rows, sizeof(rows) / sizeof(*rows), &done));
    printf("step %d loss %.9g norm %.9g\n", step, done.loss,
           done.gradient_norm);
  }
  printf("norm of %s %.6f\n", name, norm_of(run, name));
  check(plait_run_save(run, argv[4]));
  check(plait_close(session)); /* and all that has come out of it */
  fclose(tokens);
  return 0;
}
