// The C interface: rlx.h.
#include <algorithm>
#include <cstring>
#include <exception>
#include <iterator>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "artifact.h"
#include "error.h"
#include "file.h"
#include "memory.h"
#include "model.h"
#include "pool.h"
#include "rlx.h"

struct rlx_model {
  bool is_bound() const { return sized.program != nullptr; }
  const std::vector<rlx::Signature>& inputs() const {
    return is_bound() ? sized.program->schedule().inputs : model->inputs();
  }
  const std::vector<rlx::Signature>& outputs() const {
    return is_bound() ? sized.program->schedule().outputs : model->outputs();
  }

  std::shared_ptr<rlx::Model> model;  // that of the models bound to sizes, too
  rlx::SizedProgram sized;            // without a program until the sizes are known
};

static_assert(RLX_F32 == static_cast<int>(rlx::DType::kF32) &&
              RLX_F8E5M2 + 1 == std::size(rlx::kDTypes));

namespace {

using rlx::Error;
using rlx::Signature;

// Without room for a message there is none, and still a status.
std::string& last_error() {
  thread_local std::string message;
  return message;
}

void note(const char* message) noexcept {
  try {
    last_error() = message;
  } catch (...) {
    last_error().clear();
  }
}

// Runs `body`; what it throws becomes a status and a message.
template <typename Body>
rlx_status guarded(Body body) noexcept {
  try {
    body();
    return RLX_OK;
  } catch (const rlx::Fault& fault) {
    note(fault.what());
    return RLX_FAULT;
  } catch (const std::bad_alloc&) {
    note("memory: found none left, expected enough for the call");
  } catch (const std::exception& error) {
    note(error.what());
  } catch (...) {
    note("an unknown error");
  }
  return RLX_REFUSED;
}

void require_pointer(const void* pointer, const char* what) {
  if (pointer == nullptr) throw Error(what, "NULL", "a pointer");
}

// A copy with the alignment and the slack that kernels may count on.
std::shared_ptr<rlx::AlignedBuffer> copy_of(const void* data, size_t bytes) {
  auto copy = std::make_shared<rlx::AlignedBuffer>(rlx::kPage);
  if (copy->reserve(bytes + rlx::kCacheLine) == nullptr) throw std::bad_alloc();
  if (bytes > 0) std::memcpy(copy->data(), data, bytes);
  return copy;
}

rlx_model* load(const void* data, size_t size, std::shared_ptr<void> owner) {
  auto model = std::make_shared<rlx::Model>(rlx::read_artifact(data, size), std::move(owner));
  rlx::SizedProgram sized;
  if (model->symbols().empty()) {
    rlx::Shapes shapes;
    for (const Signature& input : model->inputs()) shapes.push_back(input.shape);
    sized = model->bind(shapes);
  }
  return new rlx_model{std::move(model), std::move(sized)};
}

void require_index(const char* what, size_t index, size_t count) {
  if (index < count) return;
  throw Error(std::string(what) + " " + std::to_string(index), "no such index",
              "one below " + std::to_string(count));
}

bool is_known(const Signature& signature) {
  return std::find(signature.shape.begin(), signature.shape.end(), rlx::kUnknown) ==
         signature.shape.end();
}

rlx_status describe(const std::vector<Signature>& signatures, const char* what, size_t index,
                    rlx_tensor* tensor) noexcept {
  return guarded([&] {
    require_pointer(tensor, "tensor");
    require_index(what, index, signatures.size());
    const Signature& signature = signatures[index];
    *tensor = {signature.name.c_str(), static_cast<rlx_dtype>(signature.dtype),
               signature.shape.size(), signature.shape.data(),
               is_known(signature) ? static_cast<size_t>(signature.bytes()) : 0};
  });
}

void check_bytes(const Signature& wanted, const char* what, const void* data, size_t bytes) {
  const std::string where = std::string(what) + " '" + wanted.name + "'";
  const auto expected = static_cast<size_t>(wanted.bytes());
  if (bytes != expected) {
    throw Error(where, std::to_string(bytes) + " bytes",
                std::to_string(expected) + ", " + wanted.type());
  }
  if (bytes > 0) require_pointer(data, where.c_str());
}

void take(const rlx_buffer* buffers, const std::vector<Signature>& signatures, const char* what,
          std::vector<void*>& pointers) {
  if (!signatures.empty()) require_pointer(buffers, what);
  for (size_t i = 0; i < signatures.size(); ++i) {
    const Signature& wanted = signatures[i];
    check_bytes(wanted, what, buffers[i].data, buffers[i].bytes);
    const size_t align = dtype_alignment(wanted.dtype);
    if (reinterpret_cast<uintptr_t>(buffers[i].data) % align != 0) {
      throw Error(std::string(what) + " '" + wanted.name + "'",
                  "memory not aligned to its elements",
                  "an address that " + std::to_string(align) + " divides");
    }
    pointers.push_back(buffers[i].data);
  }
}

bool overlap(const rlx_buffer& a, const rlx_buffer& b) {
  const auto left = reinterpret_cast<uintptr_t>(a.data);
  const auto right = reinterpret_cast<uintptr_t>(b.data);
  return left < right + b.bytes && right < left + a.bytes;
}

void check_apart(const rlx_model& model, const rlx_buffer* inputs, const rlx_buffer* outputs) {
  const std::vector<Signature>& in = model.inputs();
  const std::vector<Signature>& out = model.outputs();
  for (size_t o = 0; o < out.size(); ++o) {
    const auto check = [&](const Signature& other, const char* what, const rlx_buffer& buffer) {
      if (!overlap(outputs[o], buffer)) return;
      throw Error("output '" + out[o].name + "'",
                  std::string("memory shared with ") + what + " '" + other.name + "'",
                  "memory of its own");
    };
    for (size_t i = 0; i < in.size(); ++i) check(in[i], "input", inputs[i]);
    for (size_t i = 0; i < o; ++i) check(out[i], "output", outputs[i]);
  }
}

// The message of a fault's site, and the line of the graph that it is of.
[[noreturn]] void throw_fault(const rlx_model& model, const rlx::Fault& fault) {
  // A kernel with several messages has as many sites in a row; its codes count from 1.
  const auto site = static_cast<uint64_t>(fault.site) + static_cast<uint64_t>(fault.code) - 1;
  if (site >= model.sized.sites->size()) throw fault;
  const rlx::Site& known = (*model.sized.sites)[site];
  throw rlx::Fault(fault.code, fault.site,
                   known.file + ":" + std::to_string(known.line) + ": " + known.message +
                       (fault.detail.empty() ? "" : ": " + fault.detail));
}

}  // namespace

const char* rlx_last_error(void) { return last_error().c_str(); }

rlx_status rlx_load(const char* path, rlx_model** model) {
  return guarded([&] {
    require_pointer(path, "path");
    require_pointer(model, "model");
    auto file = std::make_shared<rlx::MappedFile>(path);
    try {
      *model = load(file->data(), file->size(), file);
      const rlx::Constant mapped{file->data(), static_cast<int64_t>(file->size()), file};
      (*model)->model->release_when_packed(mapped);
    } catch (const Error& error) {
      throw Error("'" + std::string(path) + "': " + error.where, error.found, error.expected,
                  error.hint);
    }
  });
}

rlx_status rlx_load_memory(const void* data, size_t bytes, rlx_model** model) {
  return guarded([&] {
    require_pointer(data, "data");
    require_pointer(model, "model");
    auto copy = copy_of(data, bytes);
    *model = load(copy->data(), bytes, copy);
  });
}

void rlx_free(rlx_model* model) { delete model; }

size_t rlx_num_inputs(const rlx_model* model) { return model->inputs().size(); }
size_t rlx_num_outputs(const rlx_model* model) { return model->outputs().size(); }
size_t rlx_num_params(const rlx_model* model) { return model->model->params().size(); }

rlx_status rlx_input(const rlx_model* model, size_t index, rlx_tensor* tensor) {
  return describe(model->inputs(), "input", index, tensor);
}

rlx_status rlx_output(const rlx_model* model, size_t index, rlx_tensor* tensor) {
  return describe(model->outputs(), "output", index, tensor);
}

rlx_status rlx_param(const rlx_model* model, size_t index, rlx_tensor* tensor) {
  return describe(model->model->params(), "param", index, tensor);
}

size_t rlx_num_dims(const rlx_model* model) { return model->model->symbols().size(); }

rlx_status rlx_get_dim(const rlx_model* model, size_t index, rlx_dim* dim) {
  return guarded([&] {
    require_pointer(dim, "dim");
    const std::vector<rlx::Symbol>& symbols = model->model->symbols();
    require_index("dim", index, symbols.size());
    *dim = {symbols[index].name.c_str(), symbols[index].least, symbols[index].most};
  });
}

rlx_status rlx_bind(const rlx_model* model, const int64_t* const* shapes, rlx_model** bound) {
  return guarded([&] {
    require_pointer(model, "model");
    require_pointer(bound, "bound");
    rlx::Shapes given;
    const std::vector<Signature>& inputs = model->model->inputs();
    if (!inputs.empty()) require_pointer(shapes, "shapes");
    for (size_t i = 0; i < inputs.size(); ++i) {
      const size_t rank = inputs[i].shape.size();
      if (rank > 0) require_pointer(shapes[i], "shape");
      given.emplace_back(shapes[i], shapes[i] + rank);
    }
    auto made = std::make_unique<rlx_model>();
    made->model = model->model;
    made->sized = model->model->bind(given);
    *bound = made.release();
  });
}

rlx_status rlx_set_param(rlx_model* model, const char* name, const void* data, size_t bytes) {
  return guarded([&] {
    require_pointer(model, "model");
    require_pointer(name, "name");
    const std::vector<Signature>& params = model->model->params();
    size_t index = 0;
    while (index < params.size() && params[index].name != name) ++index;
    if (index == params.size()) {
      throw Error("param '" + std::string(name) + "'", "no such param", "one that the model has");
    }
    check_bytes(params[index], "param", data, bytes);
    auto copy = copy_of(data, bytes);
    model->model->set_param(index, copy->data(), copy);
  });
}

rlx_status rlx_run(rlx_model* model, const rlx_buffer* inputs, const rlx_buffer* outputs) {
  return guarded([&] {
    require_pointer(model, "model");
    if (!model->is_bound()) {
      throw Error("model", "dims without sizes", "a model that rlx_bind gave for the sizes");
    }
    std::vector<void*> in, out;
    take(inputs, model->inputs(), "input", in);
    take(outputs, model->outputs(), "output", out);
    check_apart(*model, inputs, outputs);
    try {
      model->sized.program->run(in.data(), out.data());
    } catch (const rlx::Fault& fault) {
      throw_fault(*model, fault);
    }
  });
}

rlx_status rlx_set_threads(int64_t threads) {
  return guarded([&] { rlx::Pool::instance().set_threads(threads); });
}
