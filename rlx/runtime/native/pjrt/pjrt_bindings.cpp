#include "pjrt_bindings.h"

#include <nanobind/stl/string.h>

#include <string>
#include <utility>

#include "../py_program.h"
#include "../signatures.h"
#include "pjrt.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace rlx {

namespace {

using pjrt::Code;

// An object of Python's that is let go from threads without the GIL, and not at all once the
// interpreter is at its end.
std::shared_ptr<void> held(nb::object object) {
  return std::shared_ptr<void>(object.release().ptr(), [](void* owned) {
    if (!nb::is_alive()) return;
    const nb::gil_scoped_acquire acquired;
    Py_DECREF(static_cast<PyObject*>(owned));
  });
}

std::vector<std::shared_ptr<const pjrt::Layout>> layouts(const std::vector<Signature>& signatures) {
  std::vector<std::shared_ptr<const pjrt::Layout>> found;
  for (const Signature& s : signatures) {
    found.push_back(
        pjrt::make_layout(pjrt::buffer_type(s.dtype), s.shape.data(), s.shape.size()));
  }
  return found;
}

// What the table hands out of outputs.
void describe(Code& code) {
  for (const auto& layout : code.outputs) {
    code.types.push_back(layout->type);
    code.ranks.push_back(layout->dims.size());
    code.dims.insert(code.dims.end(), layout->dims.begin(), layout->dims.end());
    code.memory_kinds.push_back(pjrt::kMemoryKind);
    code.memory_kind_sizes.push_back(sizeof pjrt::kMemoryKind - 1);
  }
}

std::shared_ptr<const Code> code_of(nb::object made, std::string source) {
  auto code = std::make_shared<Code>();
  code->name = nb::cast<std::string>(made.attr("name"));
  code->fingerprint = nb::cast<std::string>(made.attr("fingerprint"));
  code->source = std::move(source);
  const nb::object program = made.attr("program");
  if (!program.is_none()) {
    auto* found = nb::cast<PyProgram*>(program);
    code->program = &found->program();
    code->inputs = layouts(found->schedule().inputs);
    code->outputs = layouts(found->schedule().outputs);
  } else {
    code->inputs = layouts(parse_signatures("inputs", made.attr("inputs")));
  }
  code->over.assign(code->outputs.size(), -1);
  for (nb::handle pair : made.attr("donate")) {
    code->over[nb::cast<size_t>(pair[1])] = nb::cast<int64_t>(pair[0]);
  }
  for (nb::handle input : made.attr("donated")) code->donated.push_back(nb::cast<int64_t>(input));
  PyObject* explain = made.attr("explain").ptr();  // `made` keeps it alive
  code->owner = held(made);
  code->explain = [explain](int64_t number, int64_t site, const std::string& detail) {
    const nb::gil_scoped_acquire acquired;
    return nb::cast<std::string>(nb::borrow(explain)(number, site, detail));
  };
  describe(*code);
  return code;
}

// `compile` takes bytes and the word for their format, and gives a program as
// rlx/frontends/pjrt/programs.py describes it, or a number of PJRT's for an error and its message.
pjrt::Compile compiler(nb::object compile) {
  return [owner = held(compile), compile = compile.ptr()](std::string source, std::string format) {
    const nb::gil_scoped_acquire acquired;
    nb::object made =
        nb::borrow(compile)(nb::bytes(source.data(), source.size()), nb::cast(format));
    if (nb::isinstance<nb::tuple>(made)) {
      throw pjrt::Refusal(static_cast<PJRT_Error_Code>(nb::cast<int>(made[0])),
                          nb::cast<std::string>(made[1]));
    }
    return code_of(std::move(made), std::move(source));
  };
}

void take_version(nb::handle version, int64_t* into) {
  for (size_t i = 0; i < 3; ++i) into[i] = nb::cast<int64_t>(version[i]);
}

nb::capsule api(nb::object compile, const std::string& version, nb::handle current,
                nb::handle minimum) {
  pjrt::Host& host = pjrt::host();
  if (host.compile == nullptr) {
    host.compile = compiler(std::move(compile));
    host.version = version;
    take_version(current, host.current);
    take_version(minimum, host.minimum);
  }
  return nb::capsule(pjrt::table(), "pjrt_c_api");
}

}  // namespace

void bind_pjrt(nb::module_& module) {
  module.def("pjrt_api", &api, nb::kw_only(), "compile"_a, "version"_a, "current"_a, "minimum"_a);
}

}  // namespace rlx
