/* Runs an artifact on files of raw elements, and writes its outputs as such files.
 *
 *   run_model model.rlx input0.bin ... output0.bin ...
 *
 * Where dims of a model have no size of their own, each input is given with its shape: x.bin:2x128.
 */
#include <rlx.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void require(rlx_status status) {
  if (status == RLX_OK) return;
  fprintf(stderr, "%s\n", rlx_last_error());
  exit(1);
}

static void transfer(const char *path, const char *mode, const rlx_buffer *memory) {
  FILE *file = fopen(path, mode);
  size_t done = 0;
  if (file != NULL) {
    done = *mode == 'r' ? fread(memory->data, 1, memory->bytes, file)
                        : fwrite(memory->data, 1, memory->bytes, file);
  }
  if (file == NULL || fclose(file) != 0 || done != memory->bytes) {
    fprintf(stderr, "%s: %zu of %zu bytes\n", path, done, memory->bytes);
    exit(1);
  }
}

static rlx_buffer memory_of(const rlx_tensor *tensor) {
  rlx_buffer memory = {malloc(tensor->bytes + 1), tensor->bytes};
  if (memory.data == NULL) abort();
  return memory;
}

/* A model for inputs of the shapes that are behind the last colon of each argument. */
static rlx_model *bound_to(const rlx_model *model, char **arguments) {
  enum { MOST_INPUTS = 64, MOST_DIMS = 16 };
  static int64_t dims[MOST_INPUTS][MOST_DIMS];
  const int64_t *shapes[MOST_INPUTS];
  const size_t inputs = rlx_num_inputs(model);
  if (inputs > MOST_INPUTS) abort();
  for (size_t i = 0; i < inputs; ++i) {
    rlx_tensor tensor;
    require(rlx_input(model, i, &tensor));
    char *shape = strrchr(arguments[i], ':');
    if (shape != NULL) *shape++ = 0;
    size_t rank = 0;
    for (char *next = shape; next != NULL && *next != 0 && rank < MOST_DIMS; ++rank) {
      dims[i][rank] = strtoll(next, &next, 10);
      if (*next == 'x') ++next;
    }
    if (rank != tensor.rank) {
      fprintf(stderr, "%s: give a shape of %zu dims, as in FILE:2x128\n", arguments[i], tensor.rank);
      exit(2);
    }
    shapes[i] = dims[i];
  }
  rlx_model *bound = NULL;
  require(rlx_bind(model, shapes, &bound));
  return bound;
}

int main(int argc, char **argv) {
  if (argc < 2) {
    fprintf(stderr, "usage: %s model.rlx INPUT... OUTPUT...\n", argv[0]);
    return 2;
  }
  rlx_model *model = NULL;
  require(rlx_load(argv[1], &model));
  const size_t inputs = rlx_num_inputs(model), outputs = rlx_num_outputs(model);
  if ((size_t)argc != 2 + inputs + outputs) {
    fprintf(stderr, "%s has %zu inputs and %zu outputs\n", argv[1], inputs, outputs);
    return 2;
  }
  if (rlx_num_dims(model) > 0) {
    rlx_model *bound = bound_to(model, argv + 2);
    rlx_free(model);
    model = bound;
  }
  rlx_buffer *memory = calloc(inputs + outputs, sizeof *memory);
  if (memory == NULL) abort();
  for (size_t i = 0; i < inputs + outputs; ++i) {
    rlx_tensor tensor;
    require(i < inputs ? rlx_input(model, i, &tensor) : rlx_output(model, i - inputs, &tensor));
    memory[i] = memory_of(&tensor);
    if (i < inputs) transfer(argv[2 + i], "rb", &memory[i]);
  }
  require(rlx_run(model, memory, memory + inputs));
  for (size_t i = inputs; i < inputs + outputs; ++i) transfer(argv[2 + i], "wb", &memory[i]);
  for (size_t i = 0; i < inputs + outputs; ++i) free(memory[i].data);
  free(memory);
  rlx_free(model);
  return 0;
}
