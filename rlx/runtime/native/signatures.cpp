#include "signatures.h"

#include <nanobind/stl/string.h>

#include <string>
#include <utility>

#include "error.h"
#include "py_objects.h"

namespace nb = nanobind;

namespace rlx {

namespace {

std::string type_of(nb::handle value) { return type_name(value.ptr()); }

nb::object sequence(const std::string& where, nb::handle value, const std::string& expected) {
  if (!PyTuple_Check(value.ptr()) && !PyList_Check(value.ptr())) {
    throw Error(where, type_of(value), "a tuple or list: " + expected);
  }
  return nb::borrow(value);
}

nb::object sequence(const std::string& where, nb::handle value, const std::string& expected,
                    size_t size) {
  nb::object items = sequence(where, value, expected);
  if (nb::len(items) != size) {
    throw Error(where, std::to_string(nb::len(items)) + " items", expected);
  }
  return items;
}

int64_t integer(const std::string& where, nb::handle value) {
  int64_t result = 0;
  if (PyBool_Check(value.ptr()) || !nb::try_cast<int64_t>(value, result)) {
    throw Error(where, nb::cast<std::string>(nb::repr(value)), "an integer of 64 bits");
  }
  return result;
}

std::string text(const std::string& where, nb::handle value) {
  if (!PyUnicode_Check(value.ptr())) throw Error(where, type_of(value), "a str");
  return nb::cast<std::string>(value);
}

std::vector<int64_t> integers(const std::string& where, nb::handle value) {
  std::vector<int64_t> result;
  for (nb::handle item : sequence(where, value, "integers")) result.push_back(integer(where, item));
  return result;
}

}  // namespace

std::vector<Signature> parse_signatures(const char* where, nb::handle value) {
  std::vector<Signature> signatures;
  for (nb::handle item : sequence(where, value, "signatures")) {
    const std::string here = std::string(where) + "[" + std::to_string(signatures.size()) + "]";
    nb::object parts = sequence(here, item, "(name, dtype, shape)", 3);
    Signature signature;
    signature.name = text(here + ".name", parts[0]);
    signature.dtype = parse_dtype(here, text(here + ".dtype", parts[1]));
    signature.shape = integers(here + ".shape", parts[2]);
    signatures.push_back(std::move(signature));
  }
  return signatures;
}

}  // namespace rlx
