/* Prints the likeliest tokens after a prompt, by an artifact of a language model:
 *
 *   rlx compile model.gguf -o model.rlx --context 256
 *   tell_tokens model.rlx 16 504 3575 282 4649 314
 *
 * gives 16 ids after those of the prompt, each as it is known. The model's inputs are ids and
 * positions of some rows, and the keys and values of all layers; its outputs are the logits of the
 * last row, and the keys and values with those of the rows in them, which the next run takes.
 */
#include <rlx.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 2, MOST_RANK = 4 }; /* ids and positions, the inputs that have rows */

static void require(rlx_status status) {
  if (status == RLX_OK) return;
  fprintf(stderr, "%s\n", rlx_last_error());
  exit(1);
}

static void *memory_of(size_t count, size_t size) {
  void *memory = calloc(count, size);
  if (memory == NULL) abort();
  return memory;
}

/* The model for steps of a number of rows. */
static rlx_model *of_rows(const rlx_model *model, size_t inputs, int64_t rows) {
  const int64_t **shapes = memory_of(inputs, sizeof *shapes);
  int64_t *dims = memory_of(inputs, MOST_RANK * sizeof *dims);
  for (size_t i = 0; i < inputs; ++i) {
    rlx_tensor tensor;
    require(rlx_input(model, i, &tensor));
    for (size_t d = 0; d < tensor.rank && d < MOST_RANK; ++d)
      dims[MOST_RANK * i + d] = tensor.shape[d] < 0 ? rows : tensor.shape[d];
    shapes[i] = dims + MOST_RANK * i;
  }
  rlx_model *bound = NULL;
  require(rlx_bind(model, shapes, &bound));
  free(dims);
  free(shapes);
  return bound;
}

static size_t likeliest(const float *logits, size_t count) {
  size_t best = 0;
  for (size_t i = 1; i < count; ++i)
    if (logits[i] > logits[best]) best = i;
  return best;
}

int main(int argc, char **argv) {
  if (argc < 4) {
    fprintf(stderr, "usage: %s model.rlx COUNT ID...\n", argv[0]);
    return 2;
  }
  rlx_model *model = NULL;
  require(rlx_load(argv[1], &model));
  const size_t inputs = rlx_num_inputs(model), caches = inputs - ROWS;
  rlx_dim dim;
  require(rlx_get_dim(model, 0, &dim));

  /* Keys and values are read from one set of memories and written to the other, in turn. */
  rlx_buffer *in = memory_of(inputs, sizeof *in), *out = memory_of(1 + caches, sizeof *out);
  for (size_t i = 0; i < caches; ++i) {
    rlx_tensor cache;
    require(rlx_input(model, ROWS + i, &cache));
    in[ROWS + i] = (rlx_buffer){memory_of(cache.bytes, 1), cache.bytes};
    out[1 + i] = (rlx_buffer){memory_of(cache.bytes, 1), cache.bytes};
  }
  rlx_tensor logits;
  require(rlx_output(model, 0, &logits));
  out[0] = (rlx_buffer){memory_of(logits.bytes, 1), logits.bytes};

  const size_t prompt = (size_t)argc - 3, count = strtoul(argv[2], NULL, 10);
  int32_t *ids = memory_of(prompt + count, sizeof *ids);
  int32_t *positions = memory_of(prompt + count, sizeof *positions);
  for (size_t i = 0; i < prompt; ++i) ids[i] = (int32_t)strtol(argv[3 + i], NULL, 10);
  for (size_t i = 0; i < prompt + count; ++i) positions[i] = (int32_t)i;

  /* A prompt is read in parts of as many rows as a step may have; then a token is a step. */
  rlx_model *bound = NULL;
  size_t bound_rows = 0, known = prompt;
  for (size_t at = 0; at < prompt + count - 1;) {
    size_t rows = known - at;
    if (dim.most >= 0 && rows > (size_t)dim.most) rows = (size_t)dim.most;
    if (rows != bound_rows) {
      rlx_free(bound);
      bound = of_rows(model, inputs, (int64_t)rows);
      bound_rows = rows;
    }
    in[0] = (rlx_buffer){ids + at, rows * sizeof *ids};
    in[1] = (rlx_buffer){positions + at, rows * sizeof *positions};
    require(rlx_run(bound, in, out));
    for (size_t i = 0; i < caches; ++i) {
      const rlx_buffer written = out[1 + i];
      out[1 + i] = in[ROWS + i];
      in[ROWS + i] = written;
    }
    at += rows;
    if (at < known) continue;
    ids[known] = (int32_t)likeliest(out[0].data, out[0].bytes / sizeof(float));
    printf("%d\n", (int)ids[known++]);
    fflush(stdout);
  }

  for (size_t i = 0; i < caches; ++i) {
    free(in[ROWS + i].data);
    free(out[1 + i].data);
  }
  free(out[0].data);
  free(positions);
  free(ids);
  free(out);
  free(in);
  rlx_free(bound);
  rlx_free(model);
  return 0;
}
