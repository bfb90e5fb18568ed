#include "schedule.h"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <type_traits>
#include <utility>

#include "checksum.h"
#include "error.h"

namespace rlx {

namespace {

constexpr int64_t kErrorBytes = 2 * sizeof(int64_t);

std::string number(int64_t value) { return std::to_string(value); }

[[noreturn]] void refuse(const std::string& where, const std::string& found,
                         const std::string& expected) {
  throw Error(where, found, expected, "the schedule was built wrongly");
}

// The path of a step, such as "main[3].body[0]". It is written out for an error alone: programs are
// checked for the sizes of each call.
struct Path {
  const Path* up = nullptr;
  const char* field = nullptr;  // null: an index
  size_t index = 0;

  std::string text() const {
    const std::string before = up == nullptr ? "" : up->text();
    if (field == nullptr) return before + "[" + std::to_string(index) + "]";
    return before + (up == nullptr ? "" : ".") + field;
  }
};

bool contains(const std::vector<std::shared_ptr<const ElfObject>>& objects,
              const std::vector<uintptr_t>& functions, uintptr_t address) {
  return std::any_of(objects.begin(), objects.end(),
                     [&](const auto& object) { return object->contains_code(address); }) ||
         std::find(functions.begin(), functions.end(), address) != functions.end();
}

[[noreturn]] void refuse_kernel(const std::string& where, uintptr_t address) {
  refuse(where, "function address " + std::to_string(address),
         "one inside the code of the program's objects");
}

// Checks the steps of one entry, naming each by its path.
class Checker {
 public:
  // `sizes` are the bytes of the memories that may be named, by number.
  Checker(const std::vector<std::shared_ptr<const ElfObject>>& objects,
          const std::vector<uintptr_t>& functions, Kernels kernels, std::vector<int64_t> sizes,
          bool meets = true)
      : objects_(objects),
        functions_(functions),
        kernels_(kernels),
        sizes_(std::move(sizes)),
        meets_(meets) {}

  void steps(const Path& where, const Steps& steps) {
    for (size_t i = 0; i < steps.size(); ++i) step({&where, nullptr, i}, steps[i]);
  }

  void step(const Path& where, const Step& step) {
    std::visit([&](const auto& op) { check(where, op); }, step.op);
  }

 private:
  void check(const Path& where, const Launch& launch) {
    if (kernels_ == Kernels::kAddresses && !contains(objects_, functions_, launch.kernel)) {
      refuse_kernel(where.text(), launch.kernel);
    }
    bound(where, "range", launch.range(), 0);
    bound(where, "grain", launch.grain(), 1);
    if (launch.scratch_bytes() < 0 || launch.scratch_bytes() > kMaxBytes) {
      refuse(where.text(), number(launch.scratch_bytes()) + " bytes of scratch", "at least 0");
    }
    each_bound(launch, Bounds<Launch>{*this, where, launch});
  }

  template <typename Control>
  void check(const Path& where, const Control& control) {
    each_bound(control, Bounds<Control>{*this, where, control});
    agree(where, control);
  }

  // What the table of kinds says of the fields of a step.
  template <typename Control>
  struct Bounds {
    template <typename... Bound>
    void word(const char* name, int64_t word, Bound... bounds) {
      checker.bound(where, name, word, bounds...);
    }
    void words(const char* name, const std::vector<int64_t>& words, int64_t least, int64_t most) {
      for (int64_t word : words) checker.bound(where, name, word, least, most);
    }
    void place(const char* name, const Ref& ref, int64_t bytes) {
      checker.place({&where, name}, ref, bytes);
    }
    void place(const char* name, const std::optional<Ref>& ref, int64_t bytes) {
      if (ref) place(name, *ref, bytes);
    }
    void places(const char*, const std::vector<Ref>& places) {
      for (const Ref& ref : places) checker.place(where, ref, 0);
    }
    void steps(const char* name, const Steps& steps) {
      checker.inside(control, [&] { checker.steps({&where, name}, steps); });
    }

    Checker& checker;
    const Path& where;
    const Control& control;
  };

  // What the fields of a step must have with one another, beyond their bounds.
  template <typename Control>
  void agree(const Path&, const Control&) {}
  void agree(const Path& where, const Collective& step) {
    if (!meets_) refuse(where.text(), "a collective", "one in main, where ranks meet");
    const bool permutes = step.kind == kPermute, broadcasts = step.kind == kBroadcast;
    if (permutes ? step.peers.size() % 2 != 0 : step.peers.size() != (broadcasts ? 1u : 0u)) {
      refuse(where.text(), std::to_string(step.peers.size()) + " peers", "those of its kind");
    }
    if (step.source.has_value() == (step.kind == kAxisIndex)) {
      refuse(where.text(), step.source ? "a source" : "no source", "one, but for axis_index");
    }
  }

  // Walks the steps inside a step. Places inside a loop may move with its rounds.
  template <typename Control, typename Walk>
  void inside(const Control&, Walk walk) {
    walk();
  }
  template <typename Walk>
  void inside(const For& loop, Walk walk) {
    counts_.push_back(loop.rounds);
    walk();
    counts_.pop_back();
  }

  void bound(const Path& where, const char* name, int64_t word, int64_t least) {
    if (word < least) {
      refuse(where.text(), name + (" " + number(word)), "at least " + number(least));
    }
  }
  void bound(const Path& where, const char* name, int64_t word, int64_t least, int64_t most) {
    if (word < least || word > most) {
      refuse(where.text(), name + (" " + number(word)), number(least) + ".." + number(most));
    }
  }

  // `bytes` must lie behind the place; 0 admits the end of the memory (an empty tensor).
  void place(const Path& where, const Ref& ref, int64_t bytes) const {
    if (ref.base < 0 || static_cast<size_t>(ref.base) >= sizes_.size()) {
      refuse(where.text(), "base " + number(ref.base),
             "a base below " + std::to_string(sizes_.size()));
    }
    const int64_t size = sizes_[static_cast<size_t>(ref.base)];
    if (ref.offset < 0 || ref.offset > size || bytes > size - ref.offset) {
      refuse(where.text(), "offset " + number(ref.offset) + " in base " + number(ref.base),
             number(bytes) + " bytes inside its " + number(size));
    }
    int64_t left = size - ref.offset - bytes;
    for (const Move& move : ref.moves) left -= reach(where, move, left);
  }

  // How far a place moves in the last round, which must be at most `left`.
  int64_t reach(const Path& where, const Move& move, int64_t left) const {
    if (move.loop < 0 || static_cast<size_t>(move.loop) >= counts_.size()) {
      refuse(where.text(), "a move with loop " + number(move.loop),
             "one of the " + std::to_string(counts_.size()) + " around it");
    }
    const int64_t rounds = std::max(counts_[static_cast<size_t>(move.loop)] - 1, int64_t{0});
    if (move.bytes < 0 || (rounds != 0 && move.bytes > left / rounds)) {
      refuse(where.text(),
             "a move by " + number(move.bytes) + " bytes a round, in " + number(rounds + 1),
             "one of at least 0, in all at most " + number(left));
    }
    return rounds * move.bytes;
  }

  const std::vector<std::shared_ptr<const ElfObject>>& objects_;
  const std::vector<uintptr_t>& functions_;
  const Kernels kernels_;
  std::vector<int64_t> sizes_;
  const bool meets_;             // whether there may be collectives
  std::vector<int64_t> counts_;  // rounds of the loops around the step, the outermost first
};

// Calls `found` with each launch of steps, in the order in which a reader meets them. `S` is Steps or
// Step, or a const one.
template <typename S, typename F>
void each_launch(S& steps, F& found) {
  if constexpr (std::is_same_v<std::remove_const_t<S>, Steps>) {
    for (auto& step : steps) each_launch(step, found);
  } else {
    std::visit(
        [&](auto& op) {
          using Op = std::remove_const_t<std::remove_reference_t<decltype(op)>>;
          if constexpr (std::is_same_v<Op, Launch>) {
            found(op);
          } else {
            each_field(op, [&](auto& field) {
              using Field = std::remove_const_t<std::remove_reference_t<decltype(field)>>;
              if constexpr (std::is_same_v<Field, Steps>) each_launch(field, found);
            });
          }
        },
        steps.op);
  }
}

LaunchNumbers numbered(const std::vector<Launch*>& launches) {
  static std::atomic<uint32_t> next{1};
  const auto count = static_cast<uint32_t>(launches.size());
  const uint32_t first = next.fetch_add(std::max(count, 1u), std::memory_order_relaxed);
  for (uint32_t i = 0; i < count; ++i) launches[i]->number = first + i;
  return {first, count};
}

void append_sizes(std::vector<int64_t>& sizes, const std::vector<Signature>& signatures) {
  for (const Signature& signature : signatures) sizes.push_back(signature.bytes());
}

void append_sizes(std::vector<int64_t>& sizes, const std::vector<Constant>& constants) {
  for (const Constant& constant : constants) sizes.push_back(constant.bytes);
}

void require_bytes(const char* name, int64_t bytes) {
  if (bytes < 0 || bytes > kMaxBytes) {
    refuse(name, number(bytes), "0.." + number(kMaxBytes) + " bytes");
  }
}

}  // namespace

const char* dtype_name(DType dtype) { return kDTypes[static_cast<size_t>(dtype)].name; }
size_t dtype_size(DType dtype) { return kDTypes[static_cast<size_t>(dtype)].size; }
size_t dtype_alignment(DType dtype) { return kDTypes[static_cast<size_t>(dtype)].alignment; }

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
  bool empty = false;
  for (int64_t dim : shape) {
    if (dim < 0) throw Error("'" + name + "'", "dim " + number(dim), "at least 0");
    // Where one dim is 0, numpy still wants the others to fit.
    empty = empty || dim == 0;
    if (dim > 0 && bytes > kMaxBytes / dim) {
      throw Error("'" + name + "'", type(), "at most " + number(kMaxBytes) + " bytes");
    }
    bytes *= std::max(dim, int64_t{1});
  }
  return empty ? 0 : bytes;
}

std::string Signature::type() const {
  std::string text = dtype_name(dtype);
  text += "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ", ") + number(shape[i]);
  return text + "]";
}

void check_prologue(const Prologue& prologue, Kernels kernels) {
  require_bytes("packed_bytes", prologue.packed_bytes);
  std::vector<int64_t> sizes = {0, prologue.packed_bytes, kErrorBytes};
  append_sizes(sizes, prologue.params);
  append_sizes(sizes, prologue.constants);
  Checker checker(prologue.objects, prologue.functions, kernels, std::move(sizes), false);
  for (size_t i = 0; i < prologue.steps.size(); ++i) {
    const Path root{nullptr, "prologue"}, where{&root, nullptr, i};
    checker.step(where, prologue.steps[i].step);
    for (int64_t param : prologue.steps[i].follows) {
      if (param >= 0 && static_cast<size_t>(param) < prologue.params.size()) continue;
      refuse(where.text(), "param " + number(param),
             "an index below " + std::to_string(prologue.params.size()));
    }
  }
}

void check_schedule(const Schedule& schedule, const Prologue& prologue, Kernels kernels) {
  require_bytes("arena_bytes", schedule.arena_bytes);
  std::vector<int64_t> sizes = {schedule.arena_bytes, prologue.packed_bytes, kErrorBytes};
  append_sizes(sizes, prologue.params);
  for (size_t i = 0; i < prologue.params.size(); ++i) {
    if (prologue.only_packed(i)) sizes[kBaseFirstParam + i] = -1;  // no place is in it
  }
  append_sizes(sizes, schedule.constants);
  append_sizes(sizes, schedule.inputs);
  append_sizes(sizes, schedule.outputs);
  Checker(schedule.objects, schedule.functions, kernels, std::move(sizes))
      .steps({nullptr, "main"}, schedule.main);
}

void check_kernels(const Schedule& schedule) {
  const auto check = [&](const Launch& launch) {
    if (contains(schedule.objects, schedule.functions, launch.kernel)) return;
    refuse_kernel("main", launch.kernel);
  };
  each_launch(schedule.main, check);
}

void check_steps(const char* where, const Steps& steps, std::vector<int64_t> sizes) {
  for (int64_t bytes : sizes) require_bytes("a memory", bytes);
  Checker({}, {}, Kernels::kNumbers, std::move(sizes)).steps({nullptr, where}, steps);
}

void resolve(Step& step, const std::vector<uintptr_t>& addresses) {
  const auto put = [&](Launch& launch) { launch.kernel = addresses[launch.kernel]; };
  each_launch(step, put);
}

void resolve(Steps& steps, const std::vector<uintptr_t>& addresses) {
  for (Step& step : steps) resolve(step, addresses);
}

LaunchNumbers number_launches(Steps& steps) {
  std::vector<Launch*> launches;
  const auto add = [&](Launch& launch) { launches.push_back(&launch); };
  each_launch(steps, add);
  return numbered(launches);
}

LaunchNumbers number_launches(Prologue& prologue) {
  std::vector<Launch*> launches;
  const auto add = [&](Launch& launch) { launches.push_back(&launch); };
  for (PrologueStep& item : prologue.steps) each_launch(item.step, add);
  return numbered(launches);
}

namespace {

void collect(const Steps& steps, std::vector<const Collective*>& found) {
  for (const Step& step : steps) {
    std::visit(
        [&](const auto& op) {
          using Op = std::remove_const_t<std::remove_reference_t<decltype(op)>>;
          if constexpr (std::is_same_v<Op, Collective>) {
            found.push_back(&op);
          } else {
            each_field(op, [&](const auto& field) {
              using Field = std::remove_const_t<std::remove_reference_t<decltype(field)>>;
              if constexpr (std::is_same_v<Field, Steps>) collect(field, found);
            });
          }
        },
        step.op);
  }
}

}  // namespace

std::vector<const Collective*> collectives(const Steps& steps) {
  std::vector<const Collective*> found;
  collect(steps, found);
  return found;
}

uint64_t collective_digest(const Steps& steps) {
  std::vector<int64_t> words;
  const auto add = [&](const std::vector<int64_t>& list) {
    words.push_back(static_cast<int64_t>(list.size()));
    words.insert(words.end(), list.begin(), list.end());
  };
  for (const Collective* step : collectives(steps)) {
    if (step->kind == kAxisIndex) continue;  // which nobody waits for
    add({step->kind, step->reduction, step->dtype, step->count, step->ranks});
    add(step->axis);
    add(step->peers);
  }
  return checksum(words.data(), words.size() * sizeof(int64_t));
}

std::string axis_of(const Collective& step) {
  std::string name;
  for (int64_t word : step.axis) {
    for (int shift = 0; shift < 64; shift += 8) {
      const auto letter = static_cast<char>(static_cast<uint64_t>(word) >> shift & 0xFF);
      if (letter != 0) name += letter;
    }
  }
  return name;
}

size_t launch_count(const Steps& steps) {
  size_t count = 0;
  const auto add = [&](const Launch&) { ++count; };
  each_launch(steps, add);
  return count;
}

size_t launch_count(const Prologue& prologue) {
  size_t count = 0;
  const auto add = [&](const Launch&) { ++count; };
  for (const PrologueStep& item : prologue.steps) each_launch(item.step, add);
  return count;
}

size_t most_buffers(const Steps& steps) {
  size_t most = 0;
  const auto look = [&](const Launch& launch) { most = std::max(most, launch.places.size()); };
  each_launch(steps, look);
  return most;
}

size_t most_buffers(const Prologue& prologue) {
  size_t most = 0;
  const auto look = [&](const Launch& launch) { most = std::max(most, launch.places.size()); };
  for (const PrologueStep& item : prologue.steps) each_launch(item.step, look);
  return most;
}

}  // namespace rlx
