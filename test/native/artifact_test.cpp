// Artifacts, written here word by word as docs/artifact.md says: they run by the C interface, and
// whatever is changed in one, reading it does no harm.
#include "artifact.h"

#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "check.h"
#include "checksum.h"
#include "container.h"
#include "memory.h"
#include "model.h"
#include "rlx.h"
#include "step_format.h"

namespace rlx {
namespace {

constexpr int64_t kSize = 64;

class Writer {
 public:
  Writer& words(std::initializer_list<int64_t> values) {
    for (int64_t value : values) bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }

  Writer& text(const std::string& text) {
    words({static_cast<int64_t>(text.size())});
    bytes += text + std::string((8 - text.size() % 8) % 8, '\0');
    return *this;
  }

  // Steps, after their number of words and the number of the format.
  Writer& block(const Writer& steps) {
    const Writer whole = Writer().words({kStepsVersion}).words(steps);
    return words({static_cast<int64_t>(whole.bytes.size() / 8)}).words(whole);
  }

  Writer& words(const Writer& other) {
    bytes += other.bytes;
    return *this;
  }

  Writer& signature(const std::string& name) { return text(name).text("f32").words({1, kSize}); }

  std::string bytes;
};

using NamedParts = std::vector<std::pair<std::string, std::string>>;

template <typename T>
std::string raw(const T& value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof value);
}

std::string raw(float value, int64_t count) {
  std::string bytes;
  for (int64_t i = 0; i < count; ++i) bytes += raw(value);
  return bytes;
}

uint64_t checksum(const std::string& bytes) { return rlx::checksum(bytes.data(), bytes.size()); }

std::string container(const NamedParts& parts, uint32_t format = kArtifactFormat,
                      uint32_t abi = 2) {
  std::string entries, names, body;
  for (const auto& [name, data] : parts) names += name;
  const size_t start = 64 + 32 * parts.size() + names.size();
  for (const auto& [name, data] : parts) {
    const size_t step = data.size() >= 65536 ? 4096 : 64;
    while ((start + body.size()) % step != 0) body += '\0';
    entries += raw(uint64_t{start + body.size()}) + raw(uint64_t{data.size()}) +
               raw(checksum(data)) + raw(static_cast<uint32_t>(name.size())) + raw(uint32_t{0});
    body += data;
  }
  const std::string directory = entries + names;
  std::string header = "\x89RLX\r\n\x1a\n" + raw(format) + raw(abi) +
                       raw(uint64_t{start + body.size()}) +
                       raw(static_cast<uint32_t>(parts.size())) +
                       raw(static_cast<uint32_t>(directory.size())) + raw(checksum(directory)) +
                       std::string(16, '\0');
  header += raw(checksum(header));
  return header + directory + body;
}

std::string kernels() {
  std::ifstream file(RLX_TEST_KERNELS, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
}

enum PartNumber { kManifest, kVariant, kObject, kConstant, kParam };

// out = c + 2 * w + x, if x is not nothing; found three times over.
NamedParts parts(const std::string& machine = machine_name(host_machine()),
                 const std::vector<std::string>& required = {}) {
  Writer manifest;
  manifest.text("cpu").words({0, 0});
  manifest.words({1}).signature("w");
  manifest.words({1}).signature("x");
  manifest.words({1}).signature("out");
  manifest.words({1, kParam});
  manifest.words({1}).text("some CPU").text(machine);
  manifest.words({static_cast<int64_t>(required.size())});
  for (const std::string& feature : required) manifest.text(feature);
  manifest.words({kVariant});

  enum Memory { kW = kBaseFirstParam, kC, kX, kOut };
  Writer schedule;
  // The arena and the packed memory, which is not there; of the prologue none of the constants, and
  // one kernel.
  schedule.words({(kSize + 2) * 4, (kSize + 1) * 4, 0, 0, 1});
  schedule.words({1}).signature("").words({kConstant});
  schedule.words({1, kObject});
  schedule.words({2}).text("first").words({0}).text("pack");
  schedule.text("second").words({0}).text("add");
  // The prologue: packed = 2 * w, for param 0.
  Writer prologue;
  prologue.words({1, 1, 0});
  prologue.words({0, 0, kSize, 1, 0, 2, kW, 0, 0, kBasePacked, 0, 0, 1, kSize});
  // The main steps: the arena is packed + c, then out is the arena + x.
  Writer main;
  main.words({2});
  // Three times, the last first; a round moves the arena by a float, which nothing sees.
  main.words({3, 3, 1, 0, 0, 0, 0, 1});
  main.words({0, 1, kSize, 1, 0, 3, kBasePacked, 0, 0, kC, 0, 0, kBaseArena, 0, 1, 0, 4, 0});
  main.words({1, kX, 3, 0, 1});  // if x: the last byte of a float that is not 0
  main.words({0, 1, kSize, 1, 0, 3, kBaseArena, 0, 0, kX, 0, 0, kOut, 0, 0, 0});
  main.words({0});
  schedule.block(prologue).block(main);
  schedule.words({2}).text("model.py").text("add");
  schedule.words({3});  // of each launch: ops, file, line, flops, bytes
  schedule.words({1, 0, 7, 0, 0}).words({1, 0, 8, kSize, 0}).words({1, 0, 9, kSize, 0});
  schedule.words({1}).text("bad data").words({0, 9});
  return {{"manifest", manifest.bytes},
          {"variants/0", schedule.bytes},
          {"objects/a1", kernels()},
          {"constants/b2", raw(100, kSize)},
          {"params/0", raw(10, kSize)}};
}

// As parts(), with what its prologue makes in place of the param.
NamedParts packed_parts() {
  NamedParts packed = parts();
  std::string& manifest = packed[kManifest].second;
  const std::string carried = raw(int64_t{1}) + raw(int64_t{kParam});
  manifest.replace(manifest.find(carried), carried.size(), raw(int64_t{2}));
  packed[kVariant].second.replace(16, 8, raw(int64_t{1}) + raw(int64_t{kParam}));
  packed[kParam] = {"packed/c3", raw(20, kSize + 1) + std::string(kSlack, '\0')};
  return packed;
}

// out = c + 2 * w + x of n floats, n up to kSize: a variant for more than half of it, and one for what
// is less, but 7. They differ in their guards alone.
NamedParts sized_parts() {
  enum Memory { kW = kBaseFirstParam, kC, kX, kOut };
  enum SizedPart { kLarge = 1, kSmall, kCode, kLiteral, kValue };
  Writer manifest;
  manifest.text("cpu");
  manifest.words({1}).text("n").words({1, kSize, 0, 0, 1, 0});
  manifest.words({1}).text("n + 1");  // which no signature has
  manifest.words({1}).signature("w");
  manifest.words({1}).text("x").text("f32").words({1, -1});
  manifest.words({1}).text("out").text("f32").words({1, -1});
  manifest.words({1, kValue});
  manifest.words({2});
  for (int64_t part : {kLarge, kSmall}) {
    manifest.text("some CPU").text(machine_name(host_machine())).words({0, part});
  }
  const auto schedule = [&](const Writer& guards, const std::string& condition) {
    Writer words;
    words.words({0, (kSize + 1) * 4, 0, 0, 1});
    words.words({1}).signature("").words({kLiteral});
    words.words({1, kCode});
    words.words({2}).text("first").words({0}).text("pack");
    words.text("second").words({0}).text("add");
    Writer prologue, main;
    prologue.words({1, 1, 0});
    prologue.words({0, 0, kSize, 1, 0, 2, kW, 0, 0, kBasePacked, 0, 0, 1, kSize});
    main.words({2});
    main.words({0, 1, 0, 1, 0, 3, kBasePacked, 0, 0, kC, 0, 0, kBaseArena, 0, 0, 0});
    main.words({0, 1, 0, 1, 0, 3, kBaseArena, 0, 0, kX, 0, 0, kOut, 0, 0, 0});
    words.block(prologue).block(main);
    words.words({1}).text("model.py");
    words.words({3}).words({0, 0, 7, 0, 0}).words({0, 0, 8, 0, 0}).words({0, 0, 9, 0, 0});
    words.words({0});
    words.words({1}).text(condition);
    words.words({12, 1, 0, 0, 0, 4, 0, 3, 0, 1, 1, 2, 0});  // n, 4, 4 * n, the arena's size
    words.words({static_cast<int64_t>(guards.bytes.size() / 8)}).words(guards);
    words.words({3, 2, 0, 1});      // the buffer between the steps
    words.words({4, 4, 0, 20, 0});  // both ranges are n
    // The arena, the dim of x and that of out, and what both launches do: n flops of 4 * n bytes.
    words.words({7, 3, 0, 0, 0, 2, 0, 2});
    return words.bytes;
  };
  return {{"manifest", manifest.bytes},
          {"variants/0", schedule(Writer().words({0, 2, kSize / 2}), "n >= 32")},
          {"variants/1", schedule(Writer().words({0, 1, 7}), "n != 7")},
          {"objects/a1", kernels()},
          {"constants/b2", raw(100, kSize)},
          {"params/0", raw(10, kSize)}};
}

// The same for a device, whose driver takes the code as it is.
NamedParts device_parts() {
  Writer manifest;
  manifest.text("cuda").words({0, 0});
  manifest.words({1}).signature("w");
  manifest.words({1}).signature("x");
  manifest.words({1}).signature("out");
  manifest.words({1, kParam});
  manifest.words({1}).text("sm_80").text("cuda").words({1}).text("sm_80").words({kVariant});

  enum Role { kArena, kPacked, kError, kParams, kConstants, kInputs, kOutputs };
  Writer program;
  program.words({1}).signature("").words({kConstant});
  // Memories, by number: two of the arena, one that is packed, and those that every program has.
  program.words({8, kArena, 0, 4 * kSize, kArena, 1, 1, kPacked, 0, 4 * kSize, kError, 0, 8});
  program.words({kParams, 0, 4 * kSize, kConstants, 0, 4 * kSize, kInputs, 0, 4 * kSize});
  program.words({kOutputs, 0, 4 * kSize});
  program.words({1, kObject});
  program.words({1, 0}).text("add").words({64, 1, 1, 2}).text("f32").words({0}).text("f32");
  // Access, and one number beside the starts of two views; shared memory, and null pointers.
  program.words({1, 3, 100000, 2});
  Writer prologue, main;
  prologue.words({1, 1, 0});  // a step, which follows param 0
  prologue.words({0, 0, 1, 1, 1, 2, 4, 0, 0, 2, 0, 0, 1, kSize});
  main.words({2});
  main.words({3, 3, 0, 0, 0, 0, 0, 1});
  main.words({0, 0, 1, 1, 1, 2, 2, 0, 0, 0, 0, 1, 0, 4, 1, kSize});
  main.words({2, 1, 0, 0, 9, 0, 0});  // while the bool in memory 1 is set, at most 9 times
  main.words({1, 0, 0, 1, 1, 1, 2, 0, 0, 0, 7, 0, 0, 1, kSize});
  program.block(prologue).block(main);
  program.words({2}).text("model.py").text("add");
  program.words({3}).words({1, 0, 7, 0, 0}).words({1, 0, 8, 0, 0}).words({1, 0, 9, 0, 0});
  program.words({1}).text("bad data").words({0, 9});
  program.words({3, 0, -1, 70000});  // the rounds of the launches, of one not known
  return {{"manifest", manifest.bytes},
          {"variants/0", program.bytes},
          {"objects/a1", "code"},
          {"constants/b2", raw(100, kSize)},
          {"params/0", raw(10, kSize)}};
}

struct Handle {
  explicit Handle(const std::string& file) {
    CHECK(rlx_load_memory(file.data(), file.size(), &model) == RLX_OK);
  }
  // From a file.
  Handle(const std::string& path, std::nullptr_t) {
    CHECK(rlx_load(path.c_str(), &model) == RLX_OK);
  }
  ~Handle() { rlx_free(model); }

  rlx_status run(std::vector<float>& x, std::vector<float>& out) {
    const rlx_buffer in = {x.data(), x.size() * 4}, result = {out.data(), out.size() * 4};
    return rlx_run(model, &in, &result);
  }

  rlx_model* model = nullptr;
};

bool last_error_names(const char* part) {
  return std::string(rlx_last_error()).find(part) != std::string::npos;
}

TEST(an_artifact_runs_by_the_c_interface) {
  Handle m(container(parts()));
  std::vector<float> x(kSize, 1), out(kSize, 0), w(kSize, 5);
  CHECK(m.run(x, out) == RLX_OK);
  CHECK(out == std::vector<float>(kSize, 121));
  CHECK(rlx_set_param(m.model, "w", w.data(), w.size() * 4) == RLX_OK);
  w.assign(kSize, 0);  // it was copied
  CHECK(m.run(x, out) == RLX_OK);
  CHECK(out == std::vector<float>(kSize, 111));
}

Artifact read(const std::string& file) { return read_artifact(file.data(), file.size()); }

TEST(what_is_packed_is_used_until_its_param_is_set) {
  const std::string path = std::string(RLX_TEST_KERNELS) + ".packed.rlx";
  NamedParts used = packed_parts();
  used[kParam].second.replace(0, 4, raw(21.0f));  // which the prologue would not make
  std::ofstream(path, std::ios::binary) << container(used);
  Handle m(path, nullptr);
  std::vector<float> x(kSize, 1), out(kSize, 0), w(kSize, 5), wanted(kSize, 121);
  wanted[0] = 122;
  for (int run = 0; run < 2; ++run) {
    CHECK(m.run(x, out) == RLX_OK);
    CHECK(out == wanted);
  }
  CHECK(rlx_set_param(m.model, "w", w.data(), w.size() * 4) == RLX_OK);
  CHECK(m.run(x, out) == RLX_OK);
  CHECK(out == std::vector<float>(kSize, 111));
  std::remove(path.c_str());
}

TEST(what_is_packed_is_checked) {
  const auto changed = [](size_t part, size_t at, size_t bytes, const std::string& to) {
    NamedParts broken = packed_parts();
    broken[part].second.replace(at, bytes, to);
    return container(broken);
  };
  const std::string none = raw(int64_t{0}), param = raw(int64_t{kBaseFirstParam}) + none;
  const size_t size = (kSize + 1) * 4;
  CHECK_REFUSED("in a variant without, expected what", read(changed(kVariant, 16, 16, none)));
  CHECK_REFUSED("260 and 65536", read(changed(kParam, 0, 1, "")));
  CHECK_REFUSED("of 9 bytes, expected 260", read(changed(kParam, 9, size + kSlack, "")));
  CHECK_REFUSED("one of packed/", read(changed(kVariant, 24, 8, raw(int64_t{kConstant}))));
  // A param without a value that main reads: there is nothing of it.
  const std::string add = Writer().words({kSize, 1, 0, 3, kBasePacked, 0, 0}).bytes;
  const size_t at = packed_parts()[kVariant].second.find(add);
  CHECK_REFUSED("in base 3", read(changed(kVariant, at + 32, 16, param)));
}

TEST(the_c_interface_describes_a_model) {
  Handle m(container(parts()));
  CHECK(rlx_num_inputs(m.model) == 1 && rlx_num_outputs(m.model) == 1);
  CHECK(rlx_num_params(m.model) == 1);
  rlx_tensor tensor;
  CHECK(rlx_param(m.model, 0, &tensor) == RLX_OK);
  CHECK(std::string(tensor.name) == "w" && tensor.dtype == RLX_F32 && tensor.rank == 1);
  CHECK(tensor.shape[0] == kSize && tensor.bytes == kSize * 4);
  CHECK(rlx_input(m.model, 0, &tensor) == RLX_OK && std::string(tensor.name) == "x");
  CHECK(rlx_output(m.model, 0, &tensor) == RLX_OK && std::string(tensor.name) == "out");
  CHECK(rlx_output(m.model, 1, &tensor) == RLX_REFUSED && last_error_names("output 1"));
}

TEST(a_model_is_bound_to_sizes) {
  Handle m(container(sized_parts()));
  rlx_tensor tensor;
  CHECK(rlx_output(m.model, 0, &tensor) == RLX_OK);
  CHECK(tensor.rank == 1 && tensor.shape[0] == -1 && tensor.bytes == 0);
  rlx_dim dim;
  CHECK(rlx_num_dims(m.model) == 1 && rlx_get_dim(m.model, 0, &dim) == RLX_OK);
  CHECK(std::string(dim.name) == "n" && dim.least == 1 && dim.most == kSize);
  CHECK(rlx_get_dim(m.model, 1, &dim) == RLX_REFUSED && last_error_names("dim 1"));
  std::vector<float> w(kSize, 5);
  for (int64_t n : {kSize, int64_t{3}, int64_t{40}, int64_t{1}}) {
    const int64_t* shapes[] = {&n};
    rlx_model* bound = nullptr;
    CHECK(rlx_bind(m.model, shapes, &bound) == RLX_OK);
    CHECK(rlx_output(bound, 0, &tensor) == RLX_OK && tensor.shape[0] == n);
    CHECK(tensor.bytes == static_cast<size_t>(n) * 4);
    std::vector<float> x(static_cast<size_t>(n), 1), out(static_cast<size_t>(n), 0);
    const rlx_buffer in = {x.data(), x.size() * 4}, result = {out.data(), out.size() * 4};
    CHECK(rlx_run(bound, &in, &result) == RLX_OK);
    CHECK(out == std::vector<float>(x.size(), n == 1 ? 111 : 121));
    if (n == 40) CHECK(rlx_set_param(bound, "w", w.data(), w.size() * 4) == RLX_OK);
    rlx_free(bound);
  }
}

TEST(sizes_that_an_artifact_is_not_for_are_refused) {
  Handle m(container(sized_parts()));
  const auto bind = [&](int64_t n) {
    const int64_t* shapes[] = {&n};
    rlx_model* bound = nullptr;
    return rlx_bind(m.model, shapes, &bound);
  };
  CHECK(bind(7) == RLX_REFUSED && last_error_names("found n=7, expected n >= 32; or n != 7"));
  CHECK(bind(0) == RLX_REFUSED && last_error_names("dim 'n': found 0, expected a size from 1 to 64"));
  CHECK(bind(-5) == RLX_REFUSED && last_error_names("input 'x': found shape [-5], expected [?]"));
  CHECK(bind(65) == RLX_REFUSED && last_error_names("a size from 1 to 64"));
  rlx_model* bound = nullptr;
  CHECK(rlx_bind(m.model, nullptr, &bound) == RLX_REFUSED && last_error_names("shapes: found NULL"));
  std::vector<float> x(kSize, 1), out(kSize, 0);
  CHECK(m.run(x, out) == RLX_REFUSED && last_error_names("rlx_bind"));
  Handle fixed(container(parts()));
  const int64_t n = 3;
  const int64_t* shapes[] = {&n};
  CHECK(rlx_bind(fixed.model, shapes, &bound) == RLX_REFUSED && last_error_names("expected [64]"));
  CHECK(bound == nullptr);
}

TEST(the_c_interface_refuses_and_says_why) {
  Handle m(container(parts()));
  std::vector<float> x(kSize + 1, 1), out(kSize, 0);
  CHECK(m.run(x, out) == RLX_REFUSED && last_error_names("input 'x': found 260 bytes"));
  x.pop_back();
  CHECK(m.run(x, x) == RLX_REFUSED && last_error_names("memory shared with input 'x'"));
  char* odd = reinterpret_cast<char*>(x.data()) + 1;
  const rlx_buffer in = {odd, kSize * 4}, result = {out.data(), kSize * 4};
  CHECK(rlx_run(m.model, &in, &result) == RLX_REFUSED && last_error_names("not aligned"));
  const rlx_buffer none = {nullptr, kSize * 4};
  CHECK(rlx_run(m.model, &none, &result) == RLX_REFUSED && last_error_names("found NULL"));
  CHECK(rlx_run(m.model, nullptr, &result) == RLX_REFUSED && last_error_names("input: found NULL"));
  CHECK(rlx_run(nullptr, &in, &result) == RLX_REFUSED && last_error_names("model: found NULL"));
  CHECK(rlx_set_param(m.model, "v", x.data(), 4) == RLX_REFUSED && last_error_names("'v'"));
  CHECK(rlx_set_param(m.model, "w", x.data(), 4) == RLX_REFUSED && last_error_names("256, f32"));
  CHECK(rlx_set_threads(0) == RLX_REFUSED);
  rlx_model* model = nullptr;
  CHECK(rlx_load("no such file", &model) == RLX_REFUSED && last_error_names("'no such file'"));
  CHECK(rlx_load(".", &model) == RLX_REFUSED && last_error_names("no plain file"));
  CHECK(model == nullptr);
}

TEST(an_artifact_loads_from_a_file) {
  const std::string path = std::string(RLX_TEST_KERNELS) + ".rlx", file = container(parts());
  std::ofstream(path, std::ios::binary) << file;
  rlx_model* model = nullptr;
  CHECK(rlx_load(path.c_str(), &model) == RLX_OK);
  std::vector<float> x(kSize, 1), out(kSize, 0);
  const rlx_buffer in = {x.data(), kSize * 4}, result = {out.data(), kSize * 4};
  for (int run = 0; run < 2; ++run) {  // the first gives the file's pages back
    CHECK(rlx_run(model, &in, &result) == RLX_OK);
    CHECK(out == std::vector<float>(kSize, 121));
  }
  rlx_free(model);
  std::ofstream(path, std::ios::binary) << file.substr(0, 300);
  CHECK(rlx_load(path.c_str(), &model) == RLX_REFUSED && last_error_names("cut short"));
  CHECK(last_error_names(path.c_str()));
  std::ofstream(path, std::ios::binary | std::ios::trunc).close();
  CHECK(rlx_load(path.c_str(), &model) == RLX_REFUSED && last_error_names("0 bytes"));
  std::remove(path.c_str());
}

TEST(what_is_not_for_this_machine_or_version_is_refused) {
  CHECK_REFUSED("format 5", read(container(parts(), 5)));
  read(container(parts(), kArtifactFormat, 1));  // the kernels of the first ABI run here too
  for (uint32_t abi : {0u, 3u}) {
    CHECK_REFUSED("runtime ABI " + std::to_string(abi),
                  read(container(parts(), kArtifactFormat, abi)));
  }
  CHECK_REFUSED("needs riscv64", Model(read(container(parts("riscv64"))), nullptr));
  const std::string here = machine_name(host_machine());
  const std::string file = container(parts(here, {"avx2000"}));
  CHECK_REFUSED("some CPU (needs avx2000)", Model(read(file), nullptr));
}

TEST(the_first_variant_that_fits_is_taken) {
  const auto variant = [](const char* machine, const char* feature) {
    Variant v;
    v.machine = machine;
    if (*feature != '\0') v.required = {feature};
    return v;
  };
  const char* here = machine_name(host_machine());
  Artifact artifact;
  artifact.variants = {variant("riscv64", ""), variant(here, "avx2000"), variant(here, "")};
  CHECK(fitting_variants(artifact) == std::vector<size_t>{2});
}

// Whether a file with sums that fit is let through; if so it is loaded, but not run: its code and
// the sizes that it is called with are trusted.
bool admitted(const std::string& file) {
  try {
    Model model(read(file), nullptr);
    for (int64_t n : {1, 40}) {
      if (!model.symbols().empty()) model.bind({{n}});
    }
    return true;
  } catch (const Error&) {
    return false;
  }
}

// As that, of what is read alone: a device's artifact is loaded by no native code.
bool sound(const std::string& file) {
  try {
    read(file);
    return true;
  } catch (const Error&) {
    return false;
  }
}

void no_word_does_harm(const NamedParts& whole, bool (*admitted)(const std::string&)) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  CHECK(admitted(container(whole)));
  for (const PartNumber part : {kManifest, kVariant}) {
    const std::string& sound = whole[part].second;
    for (size_t at = 0; at < sound.size(); at += 8) {
      int64_t value;
      std::memcpy(&value, sound.data() + at, sizeof value);
      for (int64_t changed : {int64_t{-1}, value - 1, value + 1, int64_t{1} << 40, kMost / 8, kMost,
                              std::numeric_limits<int64_t>::min()}) {
        NamedParts broken = whole;
        std::memcpy(broken[part].second.data() + at, &changed, sizeof changed);
        admitted(container(broken));
      }
      NamedParts cut = whole;
      cut[part].second.resize(at);
      CHECK(!admitted(container(cut)));
    }
  }
}

TEST(no_word_of_the_structure_does_harm) {
  no_word_does_harm(parts(), admitted);
  no_word_does_harm(packed_parts(), admitted);
  no_word_does_harm(sized_parts(), admitted);
  no_word_does_harm(device_parts(), sound);
}

TEST(what_is_wrong_in_a_device_s_program_is_refused_by_name) {
  const auto changed = [](const std::string& from, const std::string& to) {
    NamedParts broken = device_parts();
    std::string& bytes = broken[kVariant].second;
    const size_t at = bytes.find(from);
    CHECK(at != std::string::npos);
    bytes.replace(at, from.size(), to);
    return container(broken);
  };
  const auto words = [](std::initializer_list<int64_t> values) {
    return Writer().words(values).bytes;
  };
  CHECK_REFUSED("role of a memory 7", read(changed(words({6, 0, 256}), words({7, 0, 256}))));
  CHECK_REFUSED("out of its order", read(changed(words({0, 1, 1}), words({0, 0, 1}))));
  CHECK_REFUSED("255 bytes", read(changed(words({6, 0, 256}), words({6, 0, 255}))));
  CHECK_REFUSED("all that the signature", read(changed(words({6, 0, 256}), words({0, 2, 256}))));
  CHECK_REFUSED("dtype 'f33'", read(changed(Writer().text("f32").bytes.substr(8) + words({1, 3}),
                                            Writer().text("f33").bytes.substr(8) + words({1, 3}))));
  const std::string size = words({64, 1, 1, 2});
  CHECK_REFUSED("no group", read(changed(size, words({64, 0, 1, 2}))));
  const std::string kernel = words({1, 3, 100000, 2});
  CHECK_REFUSED("shared memory 2147483648",
                read(changed(kernel, words({1, 3, int64_t{1} << 31, 2}))));
  CHECK_REFUSED("null pointers 16", read(changed(kernel, words({1, 3, 100000, 16}))));
  CHECK_REFUSED("access 2", read(changed(kernel, words({2, 3, 100000, 2}))));
  CHECK_REFUSED("2 buffers and 1 numbers", read(changed(kernel, words({1, 4, 100000, 2}))));
  const std::string first = words({0, 0, 1, 1, 1, 2, 4});
  CHECK_REFUSED("2147483648 groups",
                read(changed(first, words({0, 0, int64_t{1} << 31, 1, 1, 2, 4}))));
  CHECK_REFUSED("base 8", read(changed(first, words({0, 0, 1, 1, 1, 2, 8}))));
  CHECK_REFUSED("param 1", read(changed(words({1, 1, 0, 0, 0}), words({1, 1, 1, 0, 0}))));
  const std::string repeat = words({2, 1, 0, 0, 9});
  CHECK_REFUSED("offset 1 in base 1", read(changed(repeat, words({2, 1, 1, 0, 9}))));
  const std::string move = words({0, 0, 1, 0, 4, 1, kSize});
  CHECK_REFUSED("a move by 133 bytes", read(changed(move, words({0, 0, 1, 0, 133, 1, kSize}))));
  CHECK_REFUSED("number 4294967296",
                read(changed(move, words({0, 0, 1, 0, 4, 1, int64_t{1} << 32}))));
  const std::string rounds = words({3, 0, -1, 70000});
  CHECK_REFUSED("-2 rounds", read(changed(rounds, words({3, 0, -2, 70000}))));
  CHECK_REFUSED("rounds of 2 launches", read(changed(rounds, words({2, 0, -1}))));
  CHECK_REFUSED("the target 'cuda'", Model(read(container(device_parts())), nullptr));
}

// The refusals that the mutations above count on, one by one.
TEST(what_is_out_of_range_is_refused_by_name) {
  const auto changed = [](PartNumber part, int64_t from, int64_t to, const std::string& before) {
    NamedParts broken = parts();
    std::string& bytes = broken[part].second;
    const size_t near = bytes.find(before);
    const size_t at = bytes.find(raw(from), near);
    CHECK(near != std::string::npos && at != std::string::npos);
    bytes.replace(at, 8, raw(to));
    return container(broken);
  };
  const std::string pack_ref = raw(int64_t{kBaseFirstParam}) + raw(int64_t{0});
  CHECK_REFUSED("base 99", read(changed(kVariant, kBaseFirstParam, 99, pack_ref)));
  CHECK_REFUSED("base -1", read(changed(kVariant, kBaseFirstParam, -1, pack_ref)));
  const std::string if_x = raw(int64_t{1}) + raw(int64_t{5}) + raw(int64_t{3}) + raw(int64_t{0});
  CHECK_REFUSED("offset 256 in base 5", read(changed(kVariant, 3, kSize * 4, if_x)));
  const std::string moved = raw(int64_t{1}) + raw(int64_t{0}) + raw(int64_t{4}) + raw(int64_t{0});
  CHECK_REFUSED("a move by 133 bytes a round, in 3", read(changed(kVariant, 4, 133, moved)));
  NamedParts astray = parts();
  std::string& sound = astray[kVariant].second;
  sound.replace(sound.find(moved) + 8, 8, raw(int64_t{1}));
  CHECK_REFUSED("a move with loop 1", read(container(astray)));
  const auto head = [](int64_t constants, int64_t kernels) {
    NamedParts broken = parts();
    std::string& bytes = broken[kVariant].second;
    bytes.replace(24, 16, raw(constants) + raw(kernels));
    return container(broken);
  };
  CHECK_REFUSED("2 constants of the prologue", read(head(2, 1)));
  CHECK_REFUSED("-1 constants of the prologue", read(head(-1, 1)));
  CHECK_REFUSED("3 kernels of the prologue", read(head(0, 3)));
  CHECK_REFUSED("kernel 0, expected one below 0", read(head(0, 0)));
  const std::string steps =
      raw(kStepsVersion) + raw(int64_t{2}) + raw(int64_t{3}) + raw(int64_t{3});
  NamedParts longer = parts();
  std::string& whole = longer[kVariant].second;
  const size_t main = whole.find(steps);
  CHECK(main != std::string::npos);
  int64_t words;
  std::memcpy(&words, whole.data() + main - 8, sizeof words);
  whole.replace(main - 8, 8, raw(words + 1));
  CHECK_REFUSED("a block that does not end here", read(container(longer)));
  whole.replace(main - 8, 16, raw(words) + raw(kStepsVersion + 1));
  const auto version = [](int64_t number) { return "version " + std::to_string(number); };
  CHECK_REFUSED("steps of " + version(kStepsVersion + 1) + ", expected " + version(kStepsVersion),
                read(container(longer)));
  CHECK_REFUSED("kind of step " + std::to_string(kStepKinds),
                read(changed(kVariant, 1, int64_t{kStepKinds}, if_x)));
  CHECK_REFUSED("one of constants/",
                read(changed(kVariant, kConstant, kParam, raw(kSize) + raw(int64_t{kConstant}))));
  const std::string one = raw(int64_t{1});
  CHECK_REFUSED("one of objects/",
                read(changed(kVariant, kObject, kManifest, one + raw(int64_t{kObject}))));
  CHECK_REFUSED("part 99", read(changed(kManifest, kParam, 99, one + raw(int64_t{kParam}))));
  const std::string first = raw(int64_t{0}) + raw(int64_t{4}) + "pack";
  CHECK_REFUSED("object 1", read(changed(kVariant, 0, 1, first)));
  CHECK_REFUSED("f32[65], 260 bytes", read(changed(kManifest, kSize, kSize + 1, "w")));
  NamedParts renamed = parts();
  renamed[kVariant].second.replace(renamed[kVariant].second.find("pack"), 4, "puck");
  CHECK_REFUSED("no symbol 'puck'", Model(read(container(renamed)), nullptr));
  for (const char* name : {"", "/a", "a/", "../a", "a//b", "a b", "params/0"}) {
    NamedParts named = parts();
    named[kConstant].first = name;
    CHECK(!admitted(container(named)));
  }
}

TEST(what_is_wrong_in_dims_is_refused_by_name) {
  const auto changed = [](PartNumber part, const std::string& from, const std::string& to) {
    NamedParts broken = sized_parts();
    std::string& bytes = broken[part].second;
    const size_t at = bytes.find(from);
    CHECK(at != std::string::npos);
    bytes.replace(at, from.size(), to);
    return container(broken);
  };
  const auto words = [](std::initializer_list<int64_t> values) {
    return Writer().words(values).bytes;
  };
  const std::string told = words({1, kSize, 0, 0, 1, 0});
  CHECK_REFUSED("'n' that no input has", read(changed(kManifest, told, words({1, 9, 1, 0, 1, 0}))));
  CHECK_REFUSED("'n' that no input has", read(changed(kManifest, told, words({1, 9, 0, 1, 1, 0}))));
  CHECK_REFUSED("0 times a size", read(changed(kManifest, told, words({1, 9, 0, 0, 0, 0}))));
  const std::string out = words({1, -1, 1});
  CHECK_REFUSED("dim -3", read(changed(kManifest, out, words({1, -3, 1}))));
  const std::string first = words({1}) + Writer().text("n").bytes + told;
  const std::string twice = words({2}) + Writer().text("n").bytes + told + first.substr(8);
  CHECK_REFUSED("a second dim 'n'", read(changed(kManifest, first, twice)));
  const std::string results = words({7, 3, 0, 0, 0, 2, 0, 2});
  CHECK_REFUSED("3 results, expected 7", read(changed(kVariant, results, words({3, 3, 0, 0}))));
  CHECK_REFUSED("3 words", read(changed(kVariant, words({4, 4, 0, 20, 0}), words({3, 4, 0, 20}))));
}

TEST(steps_are_nested_to_a_limit) {
  // How many loops, each in the one before, stand before the first main step.
  const auto nested = [](int64_t levels) {
    NamedParts deep = parts();
    std::string& schedule = deep[kVariant].second;
    const std::string loop = raw(int64_t{3}) + raw(int64_t{1}) + std::string(40, '\0');
    const std::string first = raw(int64_t{3}) + raw(int64_t{3}) + raw(int64_t{1});
    std::string loops;
    for (int64_t level = 0; level < levels; ++level) loops += loop + raw(int64_t{1});
    const size_t at = schedule.find(first + std::string(32, '\0'));
    CHECK(at != std::string::npos);
    // In front of it stand the words of main: how many, the number of the format, and of the steps.
    int64_t words;
    std::memcpy(&words, schedule.data() + at - 24, sizeof words);
    words += 8 * levels;
    std::memcpy(schedule.data() + at - 24, &words, sizeof words);
    schedule.insert(at, loops);
    return container(deep);
  };
  CHECK(admitted(nested(60)));
  CHECK_REFUSED("nested deeper", read(nested(65)));
}

TEST(texts_are_utf8_without_zeros) {
  const auto text = [](const std::string& name) {
    NamedParts changed = parts();
    std::string& schedule = changed[kVariant].second;
    schedule.replace(schedule.find("model.py"), 8, name);
    return container(changed);
  };
  CHECK(admitted(text("\xc3\xa9\xe2\x82\xacpqr")));
  CHECK(admitted(text("\xf0\x9f\x98\x80\xf4\x8f\xbf\xbf")));
  for (const char* wrong :
       {"model.p\xff", "model.p\xc3", "\xc0\x80odel.p", "\xed\xa0\x80pqrst", "\xf4\x90\x80\x80pqrs",
        "\xe0\x80\x80pqrst", "\xf0\x80\x80\x80pqrs"}) {
    CHECK_REFUSED("no UTF-8", read(text(wrong)));
  }
  CHECK_REFUSED("no UTF-8", read(text(std::string("model\0py", 8))));
}

TEST(no_byte_of_an_object_does_harm) {
  const NamedParts whole = parts();
  std::minstd_rand random(1);
  for (int round = 0; round < 3000; ++round) {
    NamedParts broken = whole;
    std::string& object = broken[kObject].second;
    for (int i = 0; i < 1 + round % 4; ++i) object[random() % object.size()] ^= 1 << random() % 8;
    admitted(container(broken));
  }
}

TEST(no_file_that_is_cut_or_changed_is_let_through) {
  const std::string file = container(parts());
  for (size_t size = 0; size < file.size(); size += size < 1024 ? 1 : 61) {
    CHECK(!admitted(file.substr(0, size)));
  }
  for (size_t at = 0; at < file.size(); at += at < 1024 ? 1 : 61) {
    std::string broken = file;
    broken[at] ^= 0x10;
    CHECK(!admitted(broken));
  }
  CHECK(!admitted(file + '\0'));
}

}  // namespace
}  // namespace rlx
