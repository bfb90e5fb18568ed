// RLX for Node: load(path) gives a model with inputs, outputs, and run({name: TypedArray}), which
// computes off the event loop and promises {name: TypedArray}. An artifact with open dims takes a
// second argument, {name: shape}. docs/howto/other-languages.md says how this is built.
#include <node_api.h>
#include <rlx.hpp>

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace {

using Shapes = std::vector<std::vector<std::int64_t>>;

// A call of Node's that failed, with its exception already set; one of ours is of rlx::Error.
struct Thrown {};

void check(napi_env env, napi_status status) {
  if (status == napi_ok) return;
  bool set = false;
  napi_is_exception_pending(env, &set);
  if (!set) napi_throw_error(env, nullptr, "a call of Node failed");
  throw Thrown();
}

struct Kind {
  napi_typedarray_type array;
  std::size_t bytes;
};

// The typed array of an element type. f16 and bf16 are their bits.
Kind kind_of(const rlx::Tensor& tensor) {
  static const std::map<rlx_dtype, Kind> kinds = {
      {RLX_F16, {napi_uint16_array, 2}},    {RLX_BF16, {napi_uint16_array, 2}},
      {RLX_F32, {napi_float32_array, 4}},   {RLX_F64, {napi_float64_array, 8}},
      {RLX_I8, {napi_int8_array, 1}},       {RLX_I16, {napi_int16_array, 2}},
      {RLX_I32, {napi_int32_array, 4}},     {RLX_I64, {napi_bigint64_array, 8}},
      {RLX_U8, {napi_uint8_array, 1}},      {RLX_U16, {napi_uint16_array, 2}},
      {RLX_U32, {napi_uint32_array, 4}},    {RLX_U64, {napi_biguint64_array, 8}},
      {RLX_BOOL, {napi_uint8_array, 1}}};
  const auto found = kinds.find(tensor.dtype);
  if (found == kinds.end())
    throw rlx::Refused("'" + tensor.name + "': Node has no arrays of " + rlx::name_of(tensor.dtype));
  return found->second;
}

napi_value text(napi_env env, const std::string& value) {
  napi_value made;
  check(env, napi_create_string_utf8(env, value.data(), value.size(), &made));
  return made;
}

void set(napi_env env, napi_value object, const char* name, napi_value value) {
  check(env, napi_set_named_property(env, object, name, value));
}

// [{name, dtype, shape}], a dim of -1 being open.
napi_value described(napi_env env, const std::vector<rlx::Tensor>& tensors) {
  napi_value list;
  check(env, napi_create_array_with_length(env, tensors.size(), &list));
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    napi_value one, shape;
    check(env, napi_create_object(env, &one));
    check(env, napi_create_array(env, &shape));
    for (std::size_t k = 0; k < tensors[i].shape.size(); ++k) {
      napi_value dim;
      check(env, napi_create_int64(env, tensors[i].shape[k], &dim));
      check(env, napi_set_element(env, shape, k, dim));
    }
    set(env, one, "name", text(env, tensors[i].name));
    set(env, one, "dtype", text(env, rlx::name_of(tensors[i].dtype)));
    set(env, one, "shape", shape);
    check(env, napi_set_element(env, list, i, one));
  }
  return list;
}

// A run on its way: copies of the inputs, so that the caller may go on with its arrays.
struct Run {
  std::shared_ptr<rlx::Model> model;
  std::vector<rlx::Tensor> outputs;
  std::vector<std::vector<char>> in, out;
  std::string error;
  napi_deferred promise = nullptr;
  napi_async_work work = nullptr;
};

void compute(napi_env, void* data) {
  auto& run = *static_cast<Run*>(data);
  std::vector<rlx_buffer> in, out;
  for (auto& v : run.in) in.push_back({v.data(), v.size()});
  for (auto& v : run.out) out.push_back({v.data(), v.size()});
  try {
    rlx::check(rlx_run(run.model->get(), in.data(), out.data()));
  } catch (const rlx::Error& e) {
    run.error = e.what();
  }
}

napi_value results(napi_env env, Run& run) {
  napi_value object;
  check(env, napi_create_object(env, &object));
  for (std::size_t i = 0; i < run.out.size(); ++i) {
    const Kind kind = kind_of(run.outputs[i]);
    void* memory = nullptr;
    napi_value buffer, array;
    check(env, napi_create_arraybuffer(env, run.out[i].size(), &memory, &buffer));
    if (!run.out[i].empty()) std::memcpy(memory, run.out[i].data(), run.out[i].size());
    check(env, napi_create_typedarray(env, kind.array, run.out[i].size() / kind.bytes, buffer, 0,
                                      &array));
    set(env, object, run.outputs[i].name.c_str(), array);
  }
  return object;
}

void finish(napi_env env, napi_status, void* data) {
  const std::unique_ptr<Run> run(static_cast<Run*>(data));
  napi_delete_async_work(env, run->work);
  try {
    if (run->error.empty()) {
      napi_resolve_deferred(env, run->promise, results(env, *run));
      return;
    }
    napi_value error;
    check(env, napi_create_error(env, nullptr, text(env, run->error), &error));
    napi_reject_deferred(env, run->promise, error);
  } catch (const Thrown&) {  // Node reports the exception that is set
  }
}

// The bytes of an input that is given as a typed array.
std::vector<char> bytes_of(napi_env env, napi_value given, const rlx::Tensor& tensor) {
  bool typed = false;
  check(env, napi_is_typedarray(env, given, &typed));
  napi_typedarray_type type{};
  std::size_t count = 0;
  void* data = nullptr;
  if (typed)
    check(env, napi_get_typedarray_info(env, given, &type, &count, &data, nullptr, nullptr));
  const Kind kind = kind_of(tensor);
  if (!typed || type != kind.array)
    throw rlx::Refused("input '" + tensor.name + "': expected a typed array for " +
                       rlx::name_of(tensor.dtype));
  const char* first = static_cast<const char*>(data);
  return {first, first + count * kind.bytes};
}

// The optional second argument, {name: shape}; without it a model of fixed sizes is run.
Shapes shapes_of(napi_env env, napi_value given, const std::vector<rlx::Tensor>& inputs) {
  Shapes found;
  for (const rlx::Tensor& input : inputs) {
    napi_value shape, dim;
    check(env, napi_get_named_property(env, given, input.name.c_str(), &shape));
    std::uint32_t rank = 0;
    if (napi_get_array_length(env, shape, &rank) != napi_ok)
      throw rlx::Refused("shapes: expected an array of sizes for '" + input.name + "'");
    found.emplace_back(rank);
    for (std::uint32_t k = 0; k < rank; ++k) {
      check(env, napi_get_element(env, shape, k, &dim));
      check(env, napi_get_value_int64(env, dim, &found.back()[k]));
    }
  }
  return found;
}

napi_value start(napi_env env, napi_callback_info info) {
  std::size_t count = 2;
  napi_value arguments[2], self, promise;
  void* data = nullptr;
  check(env, napi_get_cb_info(env, info, &count, arguments, &self, &data));
  auto run = std::make_unique<Run>();
  run->model = *static_cast<std::shared_ptr<rlx::Model>*>(data);
  if (count > 1) {
    const Shapes shapes = shapes_of(env, arguments[1], run->model->inputs());
    run->model = std::make_shared<rlx::Model>(run->model->bind(shapes));
  }
  run->outputs = run->model->outputs();
  for (const rlx::Tensor& input : run->model->inputs()) {
    napi_value given;
    check(env, napi_get_named_property(env, arguments[0], input.name.c_str(), &given));
    run->in.push_back(bytes_of(env, given, input));
  }
  for (const rlx::Tensor& output : run->outputs) {
    kind_of(output);  // which refuses what Node has no arrays of
    run->out.emplace_back(output.bytes);
  }
  check(env, napi_create_promise(env, &run->promise, &promise));
  check(env, napi_create_async_work(env, nullptr, text(env, "rlx"), compute, finish, run.get(),
                                    &run->work));
  check(env, napi_queue_async_work(env, run.get()->work));
  run.release();  // finish has it
  return promise;
}

// A function of Node's from one that throws.
template <napi_value (*Call)(napi_env, napi_callback_info)>
napi_value guarded(napi_env env, napi_callback_info info) {
  try {
    return Call(env, info);
  } catch (const rlx::Error& e) {
    napi_throw_error(env, nullptr, e.what());
  } catch (const Thrown&) {
  }
  return nullptr;
}

napi_value load(napi_env env, napi_callback_info info) {
  std::size_t count = 1, length = 0;
  napi_value argument, object, run;
  check(env, napi_get_cb_info(env, info, &count, &argument, nullptr, nullptr));
  check(env, napi_get_value_string_utf8(env, argument, nullptr, 0, &length));
  std::string path(length + 1, '\0');
  check(env, napi_get_value_string_utf8(env, argument, path.data(), path.size(), &length));
  path.resize(length);
  auto model = std::make_unique<std::shared_ptr<rlx::Model>>(std::make_shared<rlx::Model>(path));
  check(env, napi_create_object(env, &object));
  set(env, object, "inputs", described(env, (*model)->inputs()));
  set(env, object, "outputs", described(env, (*model)->outputs()));
  check(env, napi_create_function(env, "run", NAPI_AUTO_LENGTH, guarded<start>, model.get(), &run));
  const auto end = [](napi_env, void* data, void*) {
    delete static_cast<std::shared_ptr<rlx::Model>*>(data);
  };
  check(env, napi_add_finalizer(env, run, model.get(), end, nullptr, nullptr));
  model.release();  // the function has it, and ends it
  set(env, object, "run", run);
  return object;
}

}  // namespace

NAPI_MODULE_INIT() {
  napi_value function;
  if (napi_create_function(env, "load", NAPI_AUTO_LENGTH, guarded<load>, nullptr, &function) ==
      napi_ok)
    napi_set_named_property(env, exports, "load", function);
  return exports;
}
