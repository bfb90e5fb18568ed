/* RLX from C and C++: load an artifact that rlx.compile_artifact or `rlx compile` made, and run it.
 *
 * No Python is needed. A call that fails returns a status other than RLX_OK, changes nothing, and
 * leaves a message for rlx_last_error. No call ends the process or throws. Pointers are not NULL
 * where nothing else is said.
 *
 * A model may be used from any number of threads at once: rlx_run may run in parallel with itself,
 * and rlx_set_param waits for the runs in flight. Only rlx_free must be alone with its model.
 */
#ifndef RLX_H_
#define RLX_H_

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#define RLX_API
#else
#define RLX_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef enum rlx_status {
  RLX_OK = 0,
  RLX_REFUSED = 1, /* an argument, a file, or a machine that cannot be used */
  RLX_FAULT = 2    /* a run met data that has no result; its outputs are unspecified */
} rlx_status;

/* The message of the last call of this thread that failed; valid until the next call of this
 * thread. It is empty if none failed. */
RLX_API const char *rlx_last_error(void);

typedef enum rlx_dtype {
  RLX_F16,
  RLX_BF16,
  RLX_F32,
  RLX_F64,
  RLX_I8,
  RLX_I16,
  RLX_I32,
  RLX_I64,
  RLX_U8,
  RLX_U16,
  RLX_U32,
  RLX_U64,
  RLX_BOOL, /* one byte, 0 or 1 */
  RLX_C64,  /* a real and an imaginary float */
  RLX_C128, /* a real and an imaginary double */
  RLX_F8E4M3FN,
  RLX_F8E5M2
} rlx_dtype;

/* What a param, an input or an output is. The pointers are valid as long as the model. */
typedef struct rlx_tensor {
  const char *name;
  rlx_dtype dtype;
  size_t rank;
  const int64_t *shape; /* -1 for a dim that has no size yet: rlx_bind gives it one */
  size_t bytes; /* of all elements, in row-major order without gaps; 0 if a dim has no size yet */
} rlx_tensor;

typedef struct rlx_model rlx_model;

/* Loads the artifact in a file, which is mapped: the params that it carries are read in place, and
 * the file must not be written to while the model lives. On success *model is the caller's, who
 * ends it with rlx_free. */
RLX_API rlx_status rlx_load(const char *path, rlx_model **model);

/* The same from memory, which is copied. */
RLX_API rlx_status rlx_load_memory(const void *data, size_t bytes, rlx_model **model);

/* Ends a model; NULL is fine. */
RLX_API void rlx_free(rlx_model *model);

RLX_API size_t rlx_num_inputs(const rlx_model *model);
RLX_API size_t rlx_num_outputs(const rlx_model *model);
RLX_API size_t rlx_num_params(const rlx_model *model);

/* Each describes one by its index. RLX_REFUSED if there is none. */
RLX_API rlx_status rlx_input(const rlx_model *model, size_t index, rlx_tensor *tensor);
RLX_API rlx_status rlx_output(const rlx_model *model, size_t index, rlx_tensor *tensor);
RLX_API rlx_status rlx_param(const rlx_model *model, size_t index, rlx_tensor *tensor);

/* A dim that has no size until a call brings one. */
typedef struct rlx_dim {
  const char *name;
  int64_t least, most; /* the sizes that it may have; most is -1 where there is no limit */
} rlx_dim;

/* The dims of an artifact for many sizes; none of one for one size. */
RLX_API size_t rlx_num_dims(const rlx_model *model);
RLX_API rlx_status rlx_get_dim(const rlx_model *model, size_t index, rlx_dim *dim);

/* Makes a model for inputs of given sizes: shapes[i] has as many dims as rlx_input of i has. Of
 * *bound, which is the caller's and ends with rlx_free, rlx_output gives the shapes of the outputs,
 * and rlx_run takes inputs of these shapes. It shares code and params with `model`, so that a param
 * that is set for one is set for both, and either may end first; it costs little, and is best kept
 * for as long as the sizes stay. RLX_REFUSED for sizes that the artifact is not for. */
RLX_API rlx_status rlx_bind(const rlx_model *model, const int64_t *const *shapes,
                            rlx_model **bound);

/* Sets a param to the `bytes` bytes at `data`, which are copied. Every param that the artifact does
 * not carry must be set before the first run. */
RLX_API rlx_status rlx_set_param(rlx_model *model, const char *name, const void *data,
                                 size_t bytes);

/* Memory of an input or output: as many bytes as its tensor has, aligned to its element type. */
typedef struct rlx_buffer {
  void *data;
  size_t bytes;
} rlx_buffer;

/* Runs the model on rlx_num_inputs(model) inputs, which are only read, into
 * rlx_num_outputs(model) outputs, which share no memory with anything else. */
RLX_API rlx_status rlx_run(rlx_model *model, const rlx_buffer *inputs, const rlx_buffer *outputs);

/* Sets the number of threads of the process, the caller of a run included. By default it is
 * RLX_NUM_THREADS, or what CPU affinity and the cgroup's quota allow. */
RLX_API rlx_status rlx_set_threads(int64_t threads);

#ifdef __cplusplus
}
#endif

#endif /* RLX_H_ */
