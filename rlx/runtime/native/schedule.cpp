#include "schedule.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "error.h"

namespace rlx {

namespace {

struct DTypeFact {
  const char* name;
  size_t size;
};

// In the order of the enumeration.
constexpr DTypeFact kDTypes[] = {{"f16", 2}, {"bf16", 2}, {"f32", 4}, {"f64", 8}, {"i8", 1},
                                 {"i16", 2}, {"i32", 4},  {"i64", 8}, {"u8", 1},  {"u16", 2},
                                 {"u32", 4}, {"u64", 8},  {"bool", 1}};

// Room for a kernel's over-read behind any block, without overflow anywhere.
constexpr int64_t kMaxBytes = int64_t{1} << 56;

std::string number(int64_t value) { return std::to_string(value); }

void require(bool holds, const std::string& where, const std::string& found,
             const std::string& expected) {
  if (!holds) throw Error(where, found, expected, "the schedule was built wrongly");
}

// Checks the steps of one entry, naming each by its path, such as "main[3].body[0]".
class Checker {
 public:
  // Only the first `bases` memories may be named.
  Checker(const Schedule& schedule, size_t bases) : schedule_(schedule), bases_(bases) {
    sizes_ = {schedule.arena_bytes, schedule.packed_bytes, 2 * sizeof(int64_t)};
    for (const auto* group : {&schedule.params, &schedule.inputs, &schedule.outputs}) {
      for (const Signature& signature : *group) sizes_.push_back(signature.bytes());
    }
  }

  void steps(const std::string& where, const Steps& steps) const {
    for (size_t i = 0; i < steps.size(); ++i) {
      step(where + "[" + std::to_string(i) + "]", steps[i]);
    }
  }

  void step(const std::string& where, const Step& step) const {
    std::visit([&](const auto& op) { check(where, op); }, step.op);
  }

 private:
  void check(const std::string& where, const Launch& launch) const {
    const auto& objects = schedule_.objects;
    require(std::any_of(objects.begin(), objects.end(),
                        [&](const auto& object) { return object->contains_code(launch.kernel); }),
            where, "function address " + std::to_string(launch.kernel),
            "one inside the code of the program's objects");
    require(launch.range >= 0, where, "range " + number(launch.range), "at least 0");
    require(launch.grain >= 1, where, "grain " + number(launch.grain), "at least 1");
    require(launch.scratch_bytes >= 0 && launch.scratch_bytes <= kMaxBytes, where,
            number(launch.scratch_bytes) + " bytes of scratch", "at least 0");
    for (const Ref& buffer : launch.buffers) place(where, buffer, 0);
  }

  void check(const std::string& where, const If& branch) const {
    place(where + ".condition", branch.condition, 1);
    steps(where + ".then", branch.then_steps);
    steps(where + ".else", branch.else_steps);
  }

  void check(const std::string& where, const While& loop) const {
    steps(where + ".cond", loop.condition_steps);
    place(where + ".condition", loop.condition, 1);
    steps(where + ".body", loop.body);
    require(loop.max_iterations >= -1, where, "max_iterations " + number(loop.max_iterations),
            "a limit, or -1 for none");
  }

  void check(const std::string& where, const For& loop) const {
    require(loop.count >= 0, where, "count " + number(loop.count), "at least 0");
    steps(where + ".body", loop.body);
    if (loop.counts) place(where + ".counter", loop.counter, sizeof(int64_t));
  }

  // `bytes` must lie behind the place; 0 admits the end of the memory (an empty tensor).
  void place(const std::string& where, const Ref& ref, int64_t bytes) const {
    require(ref.base >= 0 && static_cast<size_t>(ref.base) < bases_, where,
            "base " + number(ref.base), "a base below " + std::to_string(bases_));
    const int64_t size = sizes_[static_cast<size_t>(ref.base)];
    require(ref.offset >= 0 && ref.offset <= size - bytes, where,
            "offset " + number(ref.offset) + " in base " + number(ref.base),
            number(bytes) + " bytes inside its " + number(size));
  }

  const Schedule& schedule_;
  size_t bases_;
  std::vector<int64_t> sizes_;
};

size_t most_buffers(const Steps& steps);

struct MostBuffers {
  size_t operator()(const Launch& launch) const { return launch.buffers.size(); }
  size_t operator()(const If& branch) const {
    return std::max(most_buffers(branch.then_steps), most_buffers(branch.else_steps));
  }
  size_t operator()(const While& loop) const {
    return std::max(most_buffers(loop.condition_steps), most_buffers(loop.body));
  }
  size_t operator()(const For& loop) const { return most_buffers(loop.body); }
};

size_t most_buffers(const Steps& steps) {
  size_t most = 0;
  for (const Step& step : steps) most = std::max(most, std::visit(MostBuffers{}, step.op));
  return most;
}

}  // namespace

const char* dtype_name(DType dtype) { return kDTypes[static_cast<size_t>(dtype)].name; }
size_t dtype_size(DType dtype) { return kDTypes[static_cast<size_t>(dtype)].size; }

DType parse_dtype(const std::string& where, const std::string& name) {
  std::string known;
  for (size_t i = 0; i < std::size(kDTypes); ++i) {
    if (name == kDTypes[i].name) return static_cast<DType>(i);
    known += (i == 0 ? "" : " ") + std::string(kDTypes[i].name);
  }
  throw Error(where, "dtype '" + name + "'", "one of " + known);
}

int64_t Signature::bytes() const {
  int64_t bytes = static_cast<int64_t>(dtype_size(dtype));
  for (int64_t dim : shape) {
    if (dim < 0) throw Error("'" + name + "'", "dim " + number(dim), "at least 0");
    if (dim > 0 && bytes > kMaxBytes / dim) {
      throw Error("'" + name + "'", type(), "at most " + number(kMaxBytes) + " bytes");
    }
    bytes *= dim;
  }
  return bytes;
}

std::string Signature::type() const {
  std::string text = dtype_name(dtype);
  text += "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ", ") + number(shape[i]);
  return text + "]";
}

void check_schedule(const Schedule& schedule) {
  for (const auto& [name, bytes] : {std::pair("arena_bytes", schedule.arena_bytes),
                                    std::pair("packed_bytes", schedule.packed_bytes)}) {
    require(bytes >= 0 && bytes <= kMaxBytes, name, number(bytes),
            "0.." + number(kMaxBytes) + " bytes");
  }
  const size_t params = kBaseFirstParam + schedule.params.size();
  const Checker prologue(schedule, params);
  for (size_t i = 0; i < schedule.prologue.size(); ++i) {
    const std::string where = "prologue[" + std::to_string(i) + "]";
    prologue.step(where, schedule.prologue[i].step);
    for (int64_t param : schedule.prologue[i].follows) {
      require(param >= 0 && static_cast<size_t>(param) < schedule.params.size(), where,
              "param " + number(param), "an index below " + std::to_string(schedule.params.size()));
    }
  }
  Checker(schedule, params + schedule.inputs.size() + schedule.outputs.size())
      .steps("main", schedule.main);
}

size_t most_buffers(const Schedule& schedule) {
  size_t most = most_buffers(schedule.main);
  for (const PrologueStep& item : schedule.prologue) {
    most = std::max(most, std::visit(MostBuffers{}, item.step.op));
  }
  return most;
}

}  // namespace rlx
