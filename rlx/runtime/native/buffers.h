// Python buffers as the memory of a call: checked against signatures, held while they are in use.
#pragma once

#include <Python.h>

#include <memory>
#include <string>
#include <vector>

#include "schedule.h"

namespace rlx {

enum class Role { kParam, kInput, kOutput };

// Buffers in use, released together. Needs the GIL throughout. Its capacity stays, so that filling
// it again allocates nothing.
class HeldBuffers {
 public:
  ~HeldBuffers() { release(); }

  // Takes the buffer of `object` after checking it against `signature`. Throws Error that names the
  // slot, what was found and what was expected; what is held already stays held.
  void* take(PyObject* object, const Signature& signature, Role role);

  // As take for an array, false if it does not fit: to say why would take longer than a short call.
  bool take_fitting(PyObject* array, const Signature& signature, Role role, void** data);

  // Takes any C-contiguous buffer; null, with Python's error set, if `object` has none.
  void* take(PyObject* object, int64_t* bytes);

  // Whether the buffer that was taken last shares no byte with those taken before.
  bool last_is_apart() const;

  void release() noexcept;
  void reserve(size_t count) { views_.reserve(count); }

 private:
  std::vector<Py_buffer> views_;
};

// The memory of one param, for as long as the owner lives; the owner takes the GIL to let go.
struct HeldParam {
  void* data = nullptr;
  std::shared_ptr<void> owner;
};
HeldParam hold_param(PyObject* object, const Signature& signature);

// Any C-contiguous buffer, likewise. Throws Error that names `where`.
Constant hold_constant(const std::string& where, PyObject* object);

}  // namespace rlx
