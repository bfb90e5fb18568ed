#include "step_reader.h"

#include <limits>
#include <string>

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

Steps StepReader::steps(int depth) {
  if (depth > kMaxDepth) {
    words_.refuse("steps nested deeper", "at most " + number(kMaxDepth) + " levels");
  }
  Steps steps;  // grown as they are read: each level may claim all that is left
  for (size_t left = words_.count(kWords); left > 0; --left) steps.push_back(step(depth));
  return steps;
}

Step StepReader::step(int depth) {
  switch (words_.below(4, "kind of step")) {
    case 0:
      return {launch()};
    case 1:
      return {branch(depth)};
    case 2:
      return {repeat(depth)};
    default:
      return {loop(depth)};
  }
}

Launch StepReader::launch() {
  Launch launch;
  launch.kernel = words_.below(kernels_, "kernel");
  launch.range = words_.next();
  launch.grain = words_.next();
  launch.scratch_bytes = words_.next();
  launch.buffers.resize(words_.count(3));
  for (Ref& ref : launch.buffers) ref = read_ref(words_);
  launch.sizes = words_.list();
  if (device_ != nullptr) check((*device_)[launch.kernel], launch);
  return launch;
}

void StepReader::check(const DeviceKernel& kernel, const Launch& launch) const {
  constexpr int64_t most = std::numeric_limits<int32_t>::max(), least = -most - 1;
  for (int64_t groups : {launch.range, launch.grain, launch.scratch_bytes}) {
    if (groups < 0 || groups > most) words_.refuse(number(groups) + " groups", "0.." + number(most));
  }
  const auto params = static_cast<int64_t>(launch.sizes.size() + launch.buffers.size());
  if (launch.buffers.size() != kernel.bindings || params != kernel.params) {
    words_.refuse("a launch with " + std::to_string(launch.buffers.size()) + " buffers and " +
                      std::to_string(launch.sizes.size()) + " numbers",
                  "what its kernel binds");
  }
  for (int64_t size : launch.sizes) {
    if (size < least || size > most) words_.refuse("number " + number(size), "one of 32 bits");
  }
}

If StepReader::branch(int depth) {
  If branch;
  branch.condition = read_ref(words_);
  branch.then_steps = steps(depth + 1);
  branch.else_steps = steps(depth + 1);
  return branch;
}

While StepReader::repeat(int depth) {
  While loop;
  loop.condition = read_ref(words_);
  loop.max_iterations = words_.next();
  loop.site = words_.next();
  loop.condition_steps = steps(depth + 1);
  loop.body = steps(depth + 1);
  return loop;
}

For StepReader::loop(int depth) {
  For loop;
  loop.count = words_.next();
  loop.reverse = words_.below(2, "flag") != 0;
  loop.counts = words_.below(2, "flag") != 0;
  loop.counter = read_ref(words_);
  loop.body = steps(depth + 1);
  return loop;
}

}  // namespace rlx
