#include "program.h"

#include <atomic>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "memory.h"
#include "watch.h"

namespace rlx {
namespace {

constexpr int64_t kSize = 64;

std::shared_ptr<const ElfObject> kernels() {
  std::ifstream file(RLX_TEST_KERNELS, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  return ElfObject::load(bytes.data(), bytes.size());
}

Step launch(const std::shared_ptr<const ElfObject>& object, const char* kernel,
            std::vector<Ref> buffers, std::vector<int64_t> sizes = {}) {
  Launch step;
  step.kernel = reinterpret_cast<uintptr_t>(object->symbol(kernel));
  step.grid[0] = kSize;
  step.places = std::move(buffers);
  step.sizes = std::move(sizes);
  return {step};
}

// 2 * w in packed memory.
std::shared_ptr<Weights> doubled_weight(const std::shared_ptr<const ElfObject>& object) {
  Prologue prologue;
  prologue.objects = {object};
  prologue.params = {{"w", DType::kF32, {kSize}}};
  prologue.packed_bytes = (kSize + 1) * 4;
  prologue.steps = {{launch(object, "pack", {{3, 0}, {kBasePacked, 0}}, {kSize}), {0}}};
  return std::make_shared<Weights>(std::move(prologue));
}

// out = x + 2 * w
Schedule added(const std::shared_ptr<const ElfObject>& object) {
  Schedule schedule;
  schedule.objects = {object};
  schedule.inputs = {{"x", DType::kF32, {kSize}}};
  schedule.outputs = {{"out", DType::kF32, {kSize}}};
  schedule.arena_bytes = kSize * 4;
  schedule.main = {launch(object, "add", {{4, 0}, {kBasePacked, 0}, {5, 0}})};
  return schedule;
}

TEST(a_program_needs_its_params) {
  const auto object = kernels();
  Program program(doubled_weight(object), added(object));
  std::vector<float> x(kSize, 1), out(kSize, 0);
  void *in = x.data(), *result = out.data();
  CHECK_REFUSED("'w'", program.run(&in, &result));
}

// Callers of two programs run while another thread sets the param anew: each result must come from
// one weight.
TEST(params_change_while_callers_run) {
  Pool::instance().set_threads(3);
  const auto object = kernels();
  const auto shared = doubled_weight(object);
  Program first(shared, added(object)), second(shared, added(object));
  std::vector<std::vector<float>> weights;
  for (int value : {1, 5, 9}) weights.emplace_back(kSize, static_cast<float>(value));
  shared->set_param(0, weights[0].data(), nullptr);

  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&program = caller % 2 == 0 ? first : second] {
      std::vector<float> x(kSize, 1), out(kSize, 0);
      void *in = x.data(), *result = out.data();
      for (int i = 0; i < 1500; ++i) {
        program.run(&in, &result);
        CHECK(out[0] == 3 || out[0] == 11 || out[0] == 19);
        for (float value : out) CHECK(value == out[0]);
      }
    });
  }
  for (int i = 0; i < 300; ++i) shared->set_param(0, weights[i % 3].data(), nullptr);
  for (std::thread& caller : callers) caller.join();
}

TEST(programs_on_the_same_weights_share_arenas) {
  const auto object = kernels();
  const auto weights = doubled_weight(object);
  std::vector<float> weight(kSize, 1), x(kSize, 1), out(kSize, 0);
  weights->set_param(0, weight.data(), nullptr);
  Schedule larger = added(object);
  larger.arena_bytes = 1 << 20;
  Program first(weights, added(object)), second(weights, larger);
  void *in = x.data(), *result = out.data();
  for (Program* program : {&first, &second, &first}) {
    program->run(&in, &result);
    CHECK(out[0] == 3);
  }
  const std::unique_ptr<AlignedBuffer> arena(weights->arenas().take());
  CHECK(arena != nullptr && arena->capacity() >= (1 << 20));
  CHECK(weights->arenas().take() == nullptr);
}

// Ends a call at the first time that it is asked.
class Ends final : public Watch {
 public:
  int asked = 0;

 private:
  bool end_now() override { return ++asked > 0; }
};

TEST(a_watch_ends_a_call_and_the_next_is_right) {
  const auto object = kernels();
  const auto weights = doubled_weight(object);
  std::vector<float> weight(kSize, 1), x(kSize, 1), out(kSize, 0);
  weights->set_param(0, weight.data(), nullptr);
  Schedule endless = added(object);
  For loop;
  loop.rounds = int64_t{1} << 50;
  loop.body = {endless.main[0]};
  endless.main = {Step{loop}};
  Program program(weights, added(object)), watched(weights, endless);
  void *in = x.data(), *result = out.data();
  for (int i = 0; i < 2; ++i) {
    Ends ends;
    bool ended = false;
    try {
      watched.run(&in, &result, &ends);
    } catch (const Interrupted&) {
      ended = true;
    }
    CHECK(ended && ends.ended() && ends.asked == 1);
  }
  Ends unasked;
  program.run(&in, &result, &unasked);
  CHECK(out[0] == 3 && unasked.asked == 0);
}

TEST(a_prologue_that_was_ended_is_due_again) {
  const auto object = kernels();
  Prologue prologue = doubled_weight(object)->prologue();
  For loop;
  loop.rounds = int64_t{1} << 50;
  loop.body = {prologue.steps[0].step};
  prologue.steps.push_back({Step{loop}, {0}});
  const auto weights = std::make_shared<Weights>(std::move(prologue));
  std::vector<float> weight(kSize, 1), x(kSize, 1), out(kSize, 0);
  weights->set_param(0, weight.data(), nullptr);
  Program program(weights, added(object));
  void *in = x.data(), *result = out.data();
  for (int i = 0; i < 2; ++i) {
    Ends ends;
    bool ended = false;
    try {
      program.run(&in, &result, &ends);
    } catch (const Interrupted&) {
      ended = true;
    }
    CHECK(ended && ends.asked == 1);
  }
}

TEST(a_kernel_is_told_when_its_loops_are_to_end) {
  Record record;
  for (int i = 0; i < 100; ++i) CHECK(record.rounds(&record) > 0);
  Ends ends;
  record.watch = &ends;
  while (record.rounds(&record) > 0) {
  }
  CHECK(ends.ended() && ends.asked == 1);
  CHECK(record.rounds(&record) == 0);
}

TEST(an_owner_lives_until_its_param_is_replaced) {
  const auto weights = doubled_weight(kernels());
  std::vector<float> weight(kSize, 1);
  auto first = std::make_shared<int>(0);
  const std::weak_ptr<int> watch = first;
  weights->set_param(0, weight.data(), std::move(first));
  CHECK(!watch.expired());
  weights->set_param(0, weight.data(), nullptr);
  CHECK(watch.expired());
}

TEST(a_place_outside_its_memory_is_refused) {
  const auto object = kernels();
  const auto weights = doubled_weight(object);
  Schedule schedule = added(object);
  std::get<Launch>(schedule.main[0].op).places[0].offset = kSize * 4 + 1;
  CHECK_REFUSED("main[0]", Program(weights, schedule));
  Prologue prologue = weights->prologue();
  std::get<Launch>(prologue.steps[0].step.op).places[0].base = 4;
  CHECK_REFUSED("prologue[0]", Weights{prologue});
}

}  // namespace
}  // namespace rlx
