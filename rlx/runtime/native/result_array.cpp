#include "result_array.h"

#include <new>
#include <utility>

#include "kept_blocks.h"

namespace rlx {

namespace nb = nanobind;

namespace {

// Guarded by the GIL. Never destroyed: arrays may outlive whatever the process ends with.
KeptBlocks& kept() {
  static auto* blocks = new KeptBlocks(kMostKept);
  return *blocks;
}

struct ResultMemory {
  KeptBlocks::Block block;
  size_t bytes;

  ResultMemory(KeptBlocks::Block block, size_t bytes) : block(std::move(block)), bytes(bytes) {}
  ResultMemory(ResultMemory&&) = default;
  ~ResultMemory() {
    if (block != nullptr) kept().give(std::move(block));
  }
};

int get_buffer(PyObject* self, Py_buffer* view, int flags) {
  const auto* memory = nb::inst_ptr<ResultMemory>(self);
  return PyBuffer_FillInfo(view, self, memory->block->data(),
                           static_cast<Py_ssize_t>(memory->bytes), 0, flags);
}

PyType_Slot slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)}, {0, nullptr}};

}  // namespace

void bind_result_memory(nb::module_& module) {
  nb::class_<ResultMemory>(module, "ResultMemory", nb::type_slots(slots));
}

nb::object result_memory(size_t bytes) {
  KeptBlocks::Block block = kept().take(bytes);
  if (block == nullptr) throw std::bad_alloc();
  return nb::cast(ResultMemory(std::move(block), bytes));
}

}  // namespace rlx
