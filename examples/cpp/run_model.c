/* Runs an artifact on files of raw elements, and writes its outputs as such files.
 *
 *   run_model model.rlx input0.bin ... output0.bin ...
 */
#include <rlx.h>
#include <stdio.h>
#include <stdlib.h>

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
