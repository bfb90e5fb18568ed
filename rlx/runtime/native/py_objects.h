// What the bindings ask of Python objects, in the stable ABI: one build runs on CPython 3.12 and all
// that follow it, and must not look into an object's memory.
#ifndef RLX_PY_OBJECTS_H_
#define RLX_PY_OBJECTS_H_

#include <nanobind/nanobind.h>

#include <string>

namespace rlx {

// The name of an object's type with its module, as Python's messages have it.
inline std::string type_name(PyObject* object) { return nanobind::inst_name(object).c_str(); }

// The items of a list or a tuple.
inline Py_ssize_t item_count(PyObject* items) {
  return PyList_Check(items) ? PyList_Size(items) : PyTuple_Size(items);
}

// One of them, borrowed.
inline PyObject* item_at(PyObject* items, Py_ssize_t index) {
  return PyList_Check(items) ? PyList_GetItem(items, index) : PyTuple_GetItem(items, index);
}

}  // namespace rlx

#endif  // RLX_PY_OBJECTS_H_
