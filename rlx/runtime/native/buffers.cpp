#include "buffers.h"

#include <algorithm>
#include <cstring>

#include "error.h"
#include "py_objects.h"

namespace rlx {

namespace {

enum class Kind { kSigned, kUnsigned, kFloat, kBool, kComplex, kOther };

// The kind of item that a buffer format of one native item names.
Kind kind_of(const char* format) {
  if (format == nullptr) return Kind::kUnsigned;  // the protocol's default: bytes
  if (*format == '@' || *format == '=' || *format == '<') ++format;
  if (format[0] == 'Z' && (format[1] == 'f' || format[1] == 'd') && format[2] == '\0') {
    return Kind::kComplex;
  }
  if (format[0] == '\0' || format[1] != '\0') return Kind::kOther;
  if (std::strchr("bhilqn", format[0]) != nullptr) return Kind::kSigned;
  if (std::strchr("BHILQN", format[0]) != nullptr) return Kind::kUnsigned;
  if (std::strchr("efd", format[0]) != nullptr) return Kind::kFloat;
  return format[0] == '?' ? Kind::kBool : Kind::kOther;
}

Kind kind_of(DType dtype) {
  switch (dtype) {
    case DType::kF16:
    case DType::kF32:
    case DType::kF64:
      return Kind::kFloat;
    case DType::kI8:
    case DType::kI16:
    case DType::kI32:
    case DType::kI64:
      return Kind::kSigned;
    case DType::kBool:
      return Kind::kBool;
    case DType::kC64:
    case DType::kC128:
      return Kind::kComplex;
    case DType::kBF16:  // the protocol has none of these; their bits travel as integers
    case DType::kF8E4M3FN:
    case DType::kF8E5M2:
    case DType::kU8:
    case DType::kU16:
    case DType::kU32:
    case DType::kU64:
      return Kind::kUnsigned;
  }
  return Kind::kOther;
}

std::string slot_name(const Signature& signature, Role role) {
  const char* roles[] = {"param", "input", "output"};
  return std::string(roles[static_cast<int>(role)]) + " '" + signature.name + "'";
}

// What to do with an array of a type that numpy exports no buffer for; none for other types.
const char* how_to_pass(DType dtype) {
  switch (dtype) {
    case DType::kBF16:
      return "pass bfloat16 arrays as array.view(numpy.uint16)";
    case DType::kF8E4M3FN:
    case DType::kF8E5M2:
      return "pass arrays of 8-bit floats as array.view(numpy.uint8)";
    default:
      return nullptr;
  }
}

// "f32[2, 3]", as Signature::type() writes it, or the raw format of what has no dtype here.
std::string describe(const Py_buffer& view) {
  const char* letters[] = {"i", "u", "f"};
  const Kind kind = kind_of(view.format);
  std::string text;
  if (kind == Kind::kBool) {
    text = "bool";
  } else if (kind == Kind::kComplex) {
    text = "c" + std::to_string(8 * view.itemsize);
  } else if (kind == Kind::kOther) {
    text = "items of format '" + std::string(view.format) + "' ";
  } else {
    text = letters[static_cast<int>(kind)] + std::to_string(8 * view.itemsize);
  }
  text += "[";
  for (int i = 0; i < view.ndim; ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(view.shape[i]);
  }
  return text + "]";
}

bool has_shape(const Py_buffer& view, const std::vector<int64_t>& shape) {
  if (view.ndim != static_cast<int>(shape.size())) return false;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (view.shape[i] != shape[i]) return false;
  }
  return true;
}

bool has_type(const Py_buffer& view, DType dtype) {
  return static_cast<size_t>(view.itemsize) == dtype_size(dtype) &&
         kind_of(view.format) == kind_of(dtype);
}

bool is_aligned(const Py_buffer& view, DType dtype) {
  return view.len == 0 || reinterpret_cast<uintptr_t>(view.buf) % dtype_alignment(dtype) == 0;
}

bool fits(const Py_buffer& view, const Signature& wanted) {
  return has_type(view, wanted.dtype) && has_shape(view, wanted.shape) &&
         PyBuffer_IsContiguous(&view, 'C') != 0 && is_aligned(view, wanted.dtype);
}

void check(const Py_buffer& view, const Signature& wanted, Role role) {
  if (fits(view, wanted)) return;
  const auto refuse = [&](const std::string& found, const char* hint) {
    throw Error(slot_name(wanted, role), found, wanted.type(), hint);
  };
  if (!has_type(view, wanted.dtype)) {
    const char* hint = how_to_pass(wanted.dtype);
    refuse(describe(view), hint != nullptr ? hint : "convert it, for example with array.astype");
  }
  if (!has_shape(view, wanted.shape)) refuse(describe(view), "");
  if (PyBuffer_IsContiguous(&view, 'C') == 0) {
    refuse("an array that is not C-contiguous", "pass numpy.ascontiguousarray(array)");
  }
  const size_t alignment = dtype_alignment(wanted.dtype);
  refuse("memory not aligned to " + std::to_string(alignment) + " bytes", "pass array.copy()");
}

int flags_for(Role role) { return role == Role::kOutput ? PyBUF_RECORDS : PyBUF_RECORDS_RO; }

// The message of the Python exception that is set, which is cleared.
std::string take_python_message() {
  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  std::string message = "no buffer";
  if (PyObject* text = value != nullptr ? PyObject_Str(value) : nullptr) {
    if (const char* utf8 = PyUnicode_AsUTF8AndSize(text, nullptr)) message = utf8;
    Py_DECREF(text);
  }
  PyErr_Clear();
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(traceback);
  return message;
}

// Whether it is a numpy.ma.MaskedArray, whose buffer has no word of its mask. Arrays of numpy itself
// are of no heap type, and ask for no attribute.
bool is_masked(PyObject* object) {
  return (PyType_GetFlags(Py_TYPE(object)) & Py_TPFLAGS_HEAPTYPE) != 0 &&
         PyObject_HasAttrString(object, "filled") != 0 &&
         PyObject_HasAttrString(object, "mask") != 0;
}

void get_view(PyObject* object, const Signature& wanted, Role role, Py_buffer* view) {
  if (is_masked(object)) {
    throw Error(slot_name(wanted, role), "a masked array", "an array of " + wanted.type(),
                "pass array.filled(value)");
  }
  if (PyObject_GetBuffer(object, view, flags_for(role)) == 0) return;
  const std::string found =
      type_name(object) + " (" + take_python_message() + ")";
  const char* hint = how_to_pass(wanted.dtype);
  throw Error(slot_name(wanted, role), found,
              (role == Role::kOutput ? "a writable buffer of " : "a buffer of ") + wanted.type(),
              hint != nullptr ? hint : "pass a numpy array");
}

// Weights may die on any thread. Once the interpreter is gone there is nothing to give back to.
std::shared_ptr<void> owner_of(std::unique_ptr<HeldBuffers> held) {
  const auto let_go = [](HeldBuffers* buffers) {
    if (Py_IsInitialized() == 0) return;
    const PyGILState_STATE state = PyGILState_Ensure();
    delete buffers;
    PyGILState_Release(state);
  };
  return std::shared_ptr<HeldBuffers>(held.release(), let_go);
}

}  // namespace

void* HeldBuffers::take(PyObject* object, const Signature& signature, Role role) {
  views_.emplace_back();
  try {
    get_view(object, signature, role, &views_.back());
  } catch (...) {
    views_.pop_back();
    throw;
  }
  check(views_.back(), signature, role);
  return views_.back().buf;
}

bool HeldBuffers::take_fitting(PyObject* array, const Signature& signature, Role role,
                               void** data) {
  views_.emplace_back();
  Py_buffer& view = views_.back();
  if (PyObject_GetBuffer(array, &view, flags_for(role)) != 0) {
    PyErr_Clear();
    views_.pop_back();
    return false;
  }
  *data = view.buf;
  return fits(view, signature);
}

bool HeldBuffers::last_is_apart() const {
  const auto begin = [](const Py_buffer& view) { return reinterpret_cast<uintptr_t>(view.buf); };
  const Py_buffer& last = views_.back();
  const auto apart = [&](const Py_buffer& other) {
    const auto size = [](const Py_buffer& view) { return static_cast<uintptr_t>(view.len); };
    return size(last) == 0 || size(other) == 0 || begin(last) + size(last) <= begin(other) ||
           begin(other) + size(other) <= begin(last);
  };
  return std::all_of(views_.begin(), views_.end() - 1, apart);
}

void HeldBuffers::release() noexcept {
  for (Py_buffer& view : views_) PyBuffer_Release(&view);
  views_.clear();
}

void* HeldBuffers::take(PyObject* object, int64_t* bytes) {
  views_.emplace_back();
  if (PyObject_GetBuffer(object, &views_.back(), PyBUF_C_CONTIGUOUS) != 0) {
    views_.pop_back();
    return nullptr;
  }
  *bytes = views_.back().len;
  return views_.back().buf;
}

HeldParam hold_param(PyObject* object, const Signature& signature) {
  auto held = std::make_unique<HeldBuffers>();
  void* data = held->take(object, signature, Role::kParam);
  return {data, owner_of(std::move(held))};
}

Constant hold_constant(const std::string& where, PyObject* object) {
  auto held = std::make_unique<HeldBuffers>();
  Constant constant;
  constant.data = held->take(object, &constant.bytes);
  if (constant.data == nullptr) {
    const std::string found = type_name(object);
    throw Error(where, found + " (" + take_python_message() + ")", "a C-contiguous buffer");
  }
  constant.owner = owner_of(std::move(held));
  return constant;
}

}  // namespace rlx
