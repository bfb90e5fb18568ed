#include "step_reader.h"

#include <array>
#include <limits>
#include <optional>
#include <string>
#include <variant>

#include "step_format.h"

namespace rlx {

namespace {

std::string number(int64_t value) { return std::to_string(value); }

Ref read_ref(Words& words) {
  Ref ref;
  ref.base = words.next();
  ref.offset = words.next();
  ref.moves.resize(words.count(2));
  for (Move& move : ref.moves) {
    move.loop = words.next();
    move.bytes = words.next();
  }
  return ref;
}

}  // namespace

// Reads the fields of a step, by their types.
struct StepReader::Fields {
  void operator()(uintptr_t& kernel) { kernel = reader.words_.below(reader.kernels_, "kernel"); }
  void operator()(int64_t& word) { word = reader.words_.next(); }
  void operator()(bool& flag) { flag = reader.words_.below(2, "flag") != 0; }
  void operator()(std::array<int64_t, 3>& grid) {
    for (int64_t& word : grid) word = reader.words_.next();
  }
  void operator()(std::vector<int64_t>& list) { list = reader.words_.list(); }
  void operator()(Ref& place) { place = read_ref(reader.words_); }
  void operator()(std::optional<Ref>& place) {
    const bool there = reader.words_.below(2, "flag") != 0;
    const Ref read = read_ref(reader.words_);
    if (there) place = read;
  }
  void operator()(std::vector<Ref>& places) {
    places.resize(reader.words_.count(kPlaceWords));
    for (Ref& place : places) place = read_ref(reader.words_);
  }
  void operator()(Steps& steps) { steps = reader.steps(depth + 1); }

  StepReader& reader;
  int depth;
};

Steps StepReader::main() {
  version();
  return steps(0);
}

std::vector<PrologueStep> StepReader::prologue() {
  version();
  std::vector<PrologueStep> prologue(words_.count(1 + kLeastStepWords));
  for (PrologueStep& item : prologue) {
    item.follows = words_.list();
    item.step = step(0);
  }
  return prologue;
}

void StepReader::version() {
  const int64_t found = words_.next();
  if (found != kStepsVersion) {
    words_.refuse("steps of version " + number(found), "version " + number(kStepsVersion));
  }
}

Steps StepReader::steps(int depth) {
  if (depth > kMaxDepth) {
    words_.refuse("steps nested deeper", "at most " + number(kMaxDepth) + " levels");
  }
  Steps steps;  // grown as they are read: each level may claim all that is left
  for (size_t left = words_.count(kLeastStepWords); left > 0; --left) steps.push_back(step(depth));
  return steps;
}

Step StepReader::step(int depth) {
  Step step = empty_step(words_.below(kStepKinds, "kind of step"));
  Fields read{*this, depth};
  std::visit(
      [&](auto& op) {
        each_field(op, [&](auto& field) { read(field); });
      },
      step.op);
  const auto* launch = std::get_if<Launch>(&step.op);
  if (launch != nullptr && device_ != nullptr) check((*device_)[launch->kernel], *launch);
  return step;
}

void StepReader::check(const DeviceKernel& kernel, const Launch& launch) const {
  constexpr int64_t most = std::numeric_limits<int32_t>::max(), least = -most - 1;
  for (int64_t groups : launch.grid) {
    if (groups < 0 || groups > most) words_.refuse(number(groups) + " groups", "0.." + number(most));
  }
  const auto params = static_cast<int64_t>(launch.sizes.size() + launch.places.size());
  if (launch.places.size() != kernel.bindings || params != kernel.params) {
    words_.refuse("a launch with " + std::to_string(launch.places.size()) + " buffers and " +
                      std::to_string(launch.sizes.size()) + " numbers",
                  "what its kernel binds");
  }
  for (int64_t size : launch.sizes) {
    if (size < least || size > most) words_.refuse("number " + number(size), "one of 32 bits");
  }
}

}  // namespace rlx
