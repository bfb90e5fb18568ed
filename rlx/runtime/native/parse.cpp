#include "parse.h"

#include <nanobind/stl/string.h>

#include <string>
#include <utility>

#include "error.h"

namespace nb = nanobind;

namespace rlx {

namespace {

std::string type_of(nb::handle value) { return Py_TYPE(value.ptr())->tp_name; }

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

Ref parse_ref(const std::string& where, nb::handle value) {
  const char* expected = "(base, offset, (loop, bytes), ...)";
  nb::object items = sequence(where, value, expected);
  const size_t size = nb::len(items);
  if (size < 2) throw Error(where, std::to_string(size) + " items", expected);
  Ref ref{integer(where + ".base", items[0]), integer(where + ".offset", items[1]), {}};
  for (size_t i = 2; i < size; ++i) {
    nb::object move = sequence(where + ".move", items[i], "(loop, bytes)", 2);
    ref.moves.push_back(
        {integer(where + ".move.loop", move[0]), integer(where + ".move.bytes", move[1])});
  }
  return ref;
}

Step parse_step(const std::string& where, nb::handle value, int depth);

Steps parse_steps(const std::string& where, nb::handle value, int depth) {
  if (depth > kMaxDepth) {
    throw Error(where, "steps nested deeper", "at most " + std::to_string(kMaxDepth) + " levels");
  }
  Steps steps;
  for (nb::handle item : sequence(where, value, "steps")) {
    steps.push_back(parse_step(where + "[" + std::to_string(steps.size()) + "]", item, depth));
  }
  return steps;
}

Launch parse_launch(const std::string& where, nb::handle value) {
  nb::object items =
      sequence(where, value, "('launch', fn, range, grain, scratch_bytes, buffers, sizes)", 7);
  Launch launch;
  launch.kernel = static_cast<uintptr_t>(integer(where + ".fn", items[1]));
  launch.range = integer(where + ".range", items[2]);
  launch.grain = integer(where + ".grain", items[3]);
  launch.scratch_bytes = integer(where + ".scratch_bytes", items[4]);
  for (nb::handle ref : sequence(where + ".buffers", items[5], "(base, offset) pairs")) {
    launch.buffers.push_back(parse_ref(where + ".buffers", ref));
  }
  launch.sizes = integers(where + ".sizes", items[6]);
  return launch;
}

If parse_if(const std::string& where, nb::handle value, int depth) {
  nb::object items = sequence(where, value, "('if', (base, offset), then_steps, else_steps)", 4);
  return {parse_ref(where + ".condition", items[1]),
          parse_steps(where + ".then", items[2], depth + 1),
          parse_steps(where + ".else", items[3], depth + 1)};
}

While parse_while(const std::string& where, nb::handle value, int depth) {
  nb::object items = sequence(
      where, value, "('while', cond_steps, (base, offset), body_steps, max_iterations, site)", 6);
  return {parse_steps(where + ".cond", items[1], depth + 1),
          parse_ref(where + ".condition", items[2]),
          parse_steps(where + ".body", items[3], depth + 1),
          integer(where + ".max_iterations", items[4]), integer(where + ".site", items[5])};
}

For parse_for(const std::string& where, nb::handle value, int depth) {
  nb::object items =
      sequence(where, value, "('for', count, body_steps, (base, offset) or None, reverse)", 5);
  For loop;
  loop.count = integer(where + ".count", items[1]);
  loop.body = parse_steps(where + ".body", items[2], depth + 1);
  nb::object counter = items[3];
  if (!counter.is_none()) {
    loop.counts = true;
    loop.counter = parse_ref(where + ".counter", counter);
  }
  if (!nb::try_cast<bool>(items[4], loop.reverse)) {
    throw Error(where + ".reverse", type_of(items[4]), "a bool");
  }
  return loop;
}

Step parse_step(const std::string& where, nb::handle value, int depth) {
  const char* expected = "a step: ('launch' | 'if' | 'while' | 'for', ...)";
  nb::object items = sequence(where, value, expected);
  if (nb::len(items) == 0) throw Error(where, "an empty tuple", expected);
  const std::string kind = text(where, items[0]);
  if (kind == "launch") return {parse_launch(where, value)};
  if (kind == "if") return {parse_if(where, value, depth)};
  if (kind == "while") return {parse_while(where, value, depth)};
  if (kind == "for") return {parse_for(where, value, depth)};
  throw Error(where, "'" + kind + "'", expected);
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

std::vector<PrologueStep> parse_prologue(nb::handle value) {
  std::vector<PrologueStep> steps;
  for (nb::handle item : sequence("prologue", value, "(step, params) pairs")) {
    const std::string here = "prologue[" + std::to_string(steps.size()) + "]";
    nb::object pair = sequence(here, item, "(step, params)", 2);
    steps.push_back({parse_step(here, pair[0], 0), integers(here + ".params", pair[1])});
  }
  return steps;
}

Steps parse_main(nb::handle value) { return parse_steps("main", value, 0); }

}  // namespace rlx
