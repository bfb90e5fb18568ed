// The bytes of a Python object.
#pragma once

#include <nanobind/nanobind.h>

namespace rlx {

// The bytes of a buffer, held for as long as this lives. Needs the GIL at both ends.
class HeldBytes {
 public:
  explicit HeldBytes(nanobind::handle object) {
    if (PyObject_GetBuffer(object.ptr(), &view_, PyBUF_SIMPLE) != 0) throw nanobind::python_error();
  }
  ~HeldBytes() { PyBuffer_Release(&view_); }
  HeldBytes(const HeldBytes&) = delete;
  HeldBytes& operator=(const HeldBytes&) = delete;

  const void* data() const { return view_.buf; }
  size_t size() const { return static_cast<size_t>(view_.len); }

 private:
  Py_buffer view_;
};

}  // namespace rlx
