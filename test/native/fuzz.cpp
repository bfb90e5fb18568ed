// usage: fuzz TARGET COUNT SEED [FILE]
// Gives mutated inputs to the runtime, in this process and without running any: objects (FILE is one
// to start from, by default the tests' own) or schedules. Each must be refused with an Error or
// taken; run it under the sanitizers, which see what goes wrong without a crash.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "elf_loader.h"
#include "error.h"
#include "program.h"
#include "weights.h"

namespace rlx {
namespace {

using Random = std::mt19937_64;
using Bytes = std::vector<char>;

uint64_t below(Random& random, uint64_t limit) { return limit == 0 ? 0 : random() % limit; }

int64_t number(Random& random, int64_t near) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  constexpr std::array<int64_t, 14> kNumbers = {
      0, 1, -1, 2, 7, 8, 64, 255, 65536, int64_t{1} << 31, int64_t{1} << 56, kMax, -kMax - 1, 1000};
  switch (below(random, 4)) {
    case 0:
      return near + 1;
    case 1:
      return near - 1;
    default:
      return kNumbers[below(random, kNumbers.size())];
  }
}

Bytes read_file(const char* path) {
  std::ifstream file(path, std::ios::binary);
  return Bytes(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
}

// Changes a few bytes or numbers; half of them where `hot` says that the structure is.
void mutate(Random& random, Bytes& bytes, const std::vector<size_t>& hot) {
  for (uint64_t left = uint64_t{1} << below(random, 4); left > 0 && !bytes.empty(); --left) {
    size_t at = below(random, bytes.size());
    if (!hot.empty() && below(random, 2) == 0) at = hot[below(random, hot.size())] % bytes.size();
    const int64_t value = number(random, bytes[at]);
    switch (below(random, 16)) {
      case 0:
        bytes.resize(at);
        break;
      case 1:
        bytes.erase(bytes.begin() + static_cast<ptrdiff_t>(at));
        break;
      case 2:
        bytes.insert(bytes.begin() + static_cast<ptrdiff_t>(at), static_cast<char>(value));
        break;
      case 3:
      case 4:
      case 5: {
        const size_t width = std::min(size_t{2} << below(random, 3), bytes.size() - at);
        std::memcpy(bytes.data() + at, &value, width);
        break;
      }
      default:
        bytes[at] = static_cast<char>(below(random, 2) == 0 ? value : bytes[at] ^ (1 << (at % 8)));
    }
  }
}

// -- objects ---------------------------------------------------------------------------------------

std::function<void(Random&)> objects(const char* path) {
  const Bytes start = read_file(path);
  uint64_t headers = 0;
  std::memcpy(&headers, start.data() + 40, sizeof headers);
  std::vector<size_t> hot;
  for (size_t i = 0; i < 64; ++i) hot.push_back(i);
  for (size_t i = headers; i < start.size(); ++i) hot.push_back(i);
  return [start, hot](Random& random) {
    Bytes bytes = start;
    mutate(random, bytes, hot);
    bytes.shrink_to_fit();  // a read past the end is one past the block
    const auto object = ElfObject::load(bytes.data(), bytes.size());
    for (const auto& [name, address] : object->symbols()) object->symbol(name);
  };
}

// -- schedules -------------------------------------------------------------------------------------

constexpr int64_t kSize = 64;

class Schedules {
 public:
  explicit Schedules(const char* path) {
    const Bytes bytes = read_file(path);
    object_ = ElfObject::load(bytes.data(), bytes.size());
  }

  void operator()(Random& random) {
    random_ = &random;
    left_ = uint64_t{1} << below(random, 4);
    Prologue prologue;
    prologue.objects = {object_};
    prologue.params = {signature("w")};
    prologue.packed_bytes = changed(kSize * 4);
    prologue.steps = {{launch(), {changed(0)}}};
    Schedule schedule;
    schedule.objects = {object_};
    schedule.constants = {{numbers_, changed(sizeof numbers_), nullptr}};
    if (schedule.constants[0].bytes > int64_t{sizeof numbers_}) schedule.constants[0].bytes = 0;
    schedule.inputs = {signature("x")};
    schedule.outputs = {signature("out")};
    schedule.arena_bytes = changed(kSize * 4);
    for (uint64_t i = below(random, 4); i > 0; --i) schedule.main.push_back(step(0));
    Program program(std::make_shared<Weights>(std::move(prologue)), std::move(schedule));
    check(program.schedule().main, program.schedule());
  }

 private:
  int64_t changed(int64_t value) {
    if (left_ == 0 || below(*random_, 6) != 0) return value;
    --left_;
    return number(*random_, value);
  }

  Signature signature(const char* name) {
    Signature made{name, DType::kF32, {changed(kSize)}};
    if (below(*random_, 30) == 0) made.shape.push_back(changed(1));
    return made;
  }

  Ref place() { return {changed(static_cast<int64_t>(below(*random_, 7))), changed(0), moves()}; }

  std::optional<Ref> counter() {
    if (below(*random_, 2) == 0) return std::nullopt;
    return place();
  }

  std::vector<Move> moves() {
    std::vector<Move> made;
    if (below(*random_, 4) == 0) made.push_back({changed(0), changed(8)});
    return made;
  }

  Step launch() {
    Launch made;
    made.kernel = reinterpret_cast<uintptr_t>(object_->symbol("add"));
    made.kernel += static_cast<uintptr_t>(changed(0));
    made.grid = {changed(kSize), changed(1), changed(0)};
    for (int i = 0; i < 3; ++i) made.places.push_back({changed(1), changed(0), moves()});
    return {made};
  }

  Steps body(int depth) {
    Steps made;
    for (uint64_t i = below(*random_, 3); i > 0; --i) made.push_back(step(depth + 1));
    return made;
  }

  Step step(int depth) {
    switch (depth > 3 ? 0 : below(*random_, 4)) {
      case 1:
        return {If{place(), body(depth), body(depth)}};
      case 2:
        return {While{place(), changed(3), changed(0), body(depth), body(depth)}};
      case 3:
        return {For{changed(2), false, counter(), body(depth)}};
      default:
        return launch();
    }
  }

  // What was taken names nothing outside: the rule once more, in other words.
  void check(const Steps& steps, const Schedule& schedule) {
    for (const Step& step : steps) {
      if (const auto* launch = std::get_if<Launch>(&step.op)) {
        if (!object_->contains_code(launch->kernel) || launch->range() < 0 || launch->grain() < 1) {
          die("a launch");
        }
        for (const Ref& ref : launch->places) check(ref, schedule, 0);
      } else if (const auto* branch = std::get_if<If>(&step.op)) {
        check(branch->flag, schedule, 1);
        check(branch->then, schedule);
        check(branch->otherwise, schedule);
      } else if (const auto* loop = std::get_if<While>(&step.op)) {
        check(loop->flag, schedule, 1);
        check(loop->test, schedule);
        check(loop->body, schedule);
      } else if (const auto* rounds = std::get_if<For>(&step.op)) {
        if (rounds->rounds < 0) die("a count");
        if (rounds->counter) check(*rounds->counter, schedule, 8);
        counts_.push_back(rounds->rounds);
        check(rounds->body, schedule);
        counts_.pop_back();
      }
    }
  }

  void check(const Ref& ref, const Schedule& schedule, int64_t bytes) {
    const auto size = [](const Signature& s) {
      int64_t all = 4;
      for (int64_t dim : s.shape) all *= dim;
      return all;
    };
    switch (ref.base) {
      case 0:
        return inside(ref, schedule.arena_bytes, bytes);
      case 4:
        return inside(ref, schedule.constants[0].bytes, bytes);
      case 5:
        return inside(ref, size(schedule.inputs[0]), bytes);
      case 6:
        return inside(ref, size(schedule.outputs[0]), bytes);
      default:
        if (ref.base < 0 || ref.base > 6) die("a base");
    }
  }

  void inside(const Ref& ref, int64_t size, int64_t bytes) const {
    if (ref.offset < 0 || ref.offset > size || bytes > size - ref.offset) die("a place");
    long double last = static_cast<long double>(ref.offset + bytes);  // no sum overflows
    for (const Move& move : ref.moves) {
      if (move.loop < 0 || static_cast<size_t>(move.loop) >= counts_.size()) die("a loop");
      if (move.bytes < 0) die("a move");
      const int64_t count = counts_[static_cast<size_t>(move.loop)];
      if (count > 1) last += static_cast<long double>(count - 1) * static_cast<long double>(move.bytes);
    }
    if (last > static_cast<long double>(size)) die("a place that moves");
  }

  [[noreturn]] static void die(const char* what) {
    std::fprintf(stderr, "%s outside of what there is was taken\n", what);
    std::abort();
  }

  std::shared_ptr<const ElfObject> object_;
  Random* random_ = nullptr;
  uint64_t left_ = 0;
  std::vector<int64_t> counts_;  // of the loops around the step that is checked
  int64_t numbers_[8] = {};
};

int run(const std::function<void(Random&)>& attempt, uint64_t count, uint64_t seed) {
  uint64_t refused = 0;
  for (uint64_t i = 0; i < count; ++i) {
    Random random(seed * 0x9E3779B97F4A7C15u + i);  // an input follows from the seed and its number
    try {
      attempt(random);
    } catch (const Error& error) {
      ++refused;
      if (std::strlen(error.what()) == 0) return 1;
    }
  }
  std::printf("%llu taken, %llu refused\n", static_cast<unsigned long long>(count - refused),
              static_cast<unsigned long long>(refused));
  return 0;
}

}  // namespace
}  // namespace rlx

int main(int argc, char** argv) {
  const std::map<std::string, std::function<std::function<void(rlx::Random&)>(const char*)>>
      targets = {{"objects", rlx::objects},
                 {"schedules", [](const char* path) { return rlx::Schedules(path); }}};
  const auto target = argc < 4 ? targets.end() : targets.find(argv[1]);
  if (target == targets.end()) {
    std::fprintf(stderr, "usage: fuzz objects|schedules COUNT SEED [FILE]\n");
    return 2;
  }
  const char* path = argc > 4 ? argv[4] : RLX_TEST_KERNELS;
  return rlx::run(target->second(path), std::strtoull(argv[2], nullptr, 10),
                  std::strtoull(argv[3], nullptr, 10));
}
