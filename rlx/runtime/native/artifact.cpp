#include "artifact.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <memory>
#include <set>
#include <utility>

#include "cpu_features.h"
#include "error.h"
#include "memory.h"
#include "sized_schedule.h"
#include "step_reader.h"
#include "words.h"

namespace rlx {

namespace {

// No array of numpy's has more dims.
constexpr size_t kMaxRank = 64;
// Each variant has its own copy of the signatures.
constexpr size_t kMaxVariants = 256;
// Larger sizes, and larger numbers in dims, are refused.
constexpr int64_t kMostSize = int64_t{1} << 60;
// More null pointers than any compiler of kernels asks for.
constexpr size_t kMostSpare = 16;
// The words of the shortest signature.
constexpr size_t kSignatureWords = 3;

std::string number(int64_t value) { return std::to_string(value); }

// The dims that are no numbers are -1, -2 and so on, as many as `named`.
Signature read_signature(Words& words, size_t named = 0) {
  Signature signature;
  signature.name = words.text();
  signature.dtype = parse_dtype("'" + signature.name + "'", words.text());
  signature.shape = words.list();
  if (signature.shape.size() > kMaxRank) {
    words.refuse(number(static_cast<int64_t>(signature.shape.size())) + " dims",
                 "at most " + std::to_string(kMaxRank));
  }
  bool known = true;
  for (int64_t& dim : signature.shape) {
    if (dim >= 0) continue;
    if (static_cast<uint64_t>(-(dim + 1)) >= named) {
      words.refuse("dim " + number(dim), "one of the artifact's " + std::to_string(named));
    }
    dim = kUnknown;
    known = false;
  }
  if (known) signature.bytes();  // refuses what is no shape
  return signature;
}

std::vector<Signature> read_signatures(Words& words, size_t named) {
  std::vector<Signature> signatures(words.count(kSignatureWords));
  for (Signature& signature : signatures) signature = read_signature(words, named);
  return signatures;
}

std::vector<Symbol> read_symbols(Words& words) {
  std::vector<Symbol> symbols(words.count(7));
  std::set<std::string> names;
  for (Symbol& symbol : symbols) {
    symbol.name = words.text();
    if (!names.insert(symbol.name).second) words.refuse("a second dim '" + symbol.name + "'", "one");
    symbol.least = words.next();
    symbol.most = words.next();
    symbol.input = words.below(std::numeric_limits<size_t>::max(), "input");
    symbol.axis = words.below(std::numeric_limits<size_t>::max(), "axis");
    symbol.factor = words.next();
    symbol.number = words.next();
    if (symbol.factor < 1 || symbol.factor > kMostSize || symbol.number < -kMostSize ||
        symbol.number > kMostSize) {
      words.refuse("a dim of " + number(symbol.factor) + " times a size and " +
                       number(symbol.number),
                   "numbers up to 2**60, the first from 1 on");
    }
  }
  return symbols;
}

void check_symbols(const Words& words, const Artifact& artifact) {
  for (const Symbol& symbol : artifact.symbols) {
    if (symbol.input < artifact.inputs.size()) {
      const std::vector<int64_t>& shape = artifact.inputs[symbol.input].shape;
      if (symbol.axis < shape.size() && shape[symbol.axis] == kUnknown) continue;
    }
    words.refuse("a dim '" + symbol.name + "' that no input has", "a dim of an input");
  }
}

// The part that the next word numbers, one of a folder such as "objects/".
const Part& read_part(Words& words, const std::vector<Part>& parts, const std::string& folder) {
  const Part& part = parts[words.below(parts.size(), "part")];
  if (part.name.compare(0, folder.size(), folder) != 0) {
    words.refuse("part '" + part.name + "'", "one of " + folder);
  }
  return part;
}

void check_size(const Words& words, const Part& part, const Signature& signature) {
  if (part.size == static_cast<size_t>(signature.bytes())) return;
  words.refuse("part '" + part.name + "' of " + std::to_string(part.size) + " bytes",
               signature.type() + ", " + number(signature.bytes()) + " bytes");
}

void read_constants(Words& words, const std::vector<Part>& parts, Variant& variant) {
  variant.schedule.constants.resize(words.count(1 + kSignatureWords));
  for (Constant& constant : variant.schedule.constants) {
    const Signature signature = read_signature(words);
    const Part& values = read_part(words, parts, "constants/");
    check_size(words, values, signature);
    constant.data = values.data;
    constant.bytes = signature.bytes();
  }
}

void read_kernels(Words& words, const std::vector<Part>& parts, Variant& variant) {
  const size_t objects = words.count();
  for (size_t i = 0; i < objects; ++i) {
    variant.objects.push_back(read_part(words, parts, "objects/"));
  }
  variant.kernels.resize(words.count(3));
  std::set<std::string> names;
  for (KernelSymbol& kernel : variant.kernels) {
    const std::string name = words.text();
    if (!names.insert(name).second) words.refuse("a second kernel '" + name + "'", "one");
    kernel.object = words.below(objects, "object");
    kernel.symbol = words.text();
  }
}

// Returns the words of main.
Part read_steps(Words& words, Variant& variant, StepReader of_prologue, StepReader of_main) {
  variant.prologue_words = words.block_ahead();
  const size_t prologue = words.begin_block();
  variant.prologue.steps = of_prologue.prologue();
  words.end_block(prologue);
  const Part of_all = words.block_ahead();
  const size_t main = words.begin_block();
  variant.schedule.main = of_main.main();
  words.end_block(main);
  return of_all;
}

void require_part(const Words& words, const char* what, int64_t part, size_t all) {
  if (part >= 0 && static_cast<uint64_t>(part) <= all) return;
  words.refuse(number(part) + " " + what + " of the prologue", "0.." + std::to_string(all));
}

// What each launch is for, which only tools ask for, and the messages of faults.
void read_facts(Words& words, Variant& variant) {
  std::vector<std::string> texts(words.count());
  for (std::string& text : texts) text = words.text();
  const size_t launches = words.count(5);
  const size_t expected = launch_count(variant.prologue) + launch_count(variant.schedule.main);
  if (launches != expected) {
    words.refuse("facts of " + std::to_string(launches) + " launches", std::to_string(expected));
  }
  for (size_t i = 0; i < launches; ++i) {
    words.below(texts.size(), "ops");
    words.below(texts.size(), "file");
    for (int number = 0; number < 3; ++number) words.next();  // line, flops, bytes
  }
  variant.sites.resize(words.count(3));
  for (Site& site : variant.sites) {
    site.message = words.text();
    site.file = texts[words.below(texts.size(), "file")];
    site.line = words.next();
  }
}

// What puts the numbers of sizes into the main steps, whose words are `main`, and says how large so
// many memories are, and so many facts of launches.
void read_sizes(Words& words, const Artifact& artifact, const Part& main, size_t memories,
                size_t facts, Variant& variant) {
  const size_t conditions = words.count();
  for (size_t i = 0; i < conditions; ++i) {
    variant.conditions += (i == 0 ? "" : ", ") + words.text();
  }
  SizeRows rows;
  rows.instructions = words.list();
  rows.guards = words.list();
  rows.buffers = words.list();
  rows.patches = words.list();
  rows.results = words.list();
  rows.words.resize(main.size / sizeof(int64_t));
  if (main.size > 0) std::memcpy(rows.words.data(), main.data, main.size);
  variant.sizes = std::make_shared<SizeProgram>(artifact.symbols.size(), std::move(rows));
  check_patches(*variant.sizes, variant.schedule, memories, facts);
}

// The memory that the prologue would make, with room behind it for what kernels read too much.
void read_packed(Words& words, const std::vector<Part>& parts, const Artifact& artifact,
                 Variant& variant) {
  variant.prologue.packed_params = artifact.packed_params;
  if (words.below(2, "flag") == 1) {
    variant.packed = read_part(words, parts, "packed/");
    const size_t size = variant.packed.size, slack = std::min(size, kSlack);
    if (size < kSlack || static_cast<int64_t>(size - slack) != variant.prologue.packed_bytes) {
      words.refuse("part '" + variant.packed.name + "' of " + std::to_string(size) + " bytes",
                   number(variant.prologue.packed_bytes) + " and " + std::to_string(kSlack));
    }
    return;
  }
  const std::vector<bool>& stands = artifact.packed_params;
  if (std::find(stands.begin(), stands.end(), true) == stands.end()) return;
  words.refuse("params that are packed, in a variant without", "what they were packed into");
}

void read_schedule(const Part& part, const std::vector<Part>& parts, const Artifact& artifact,
                   Variant& variant) {
  Words words(part);
  variant.schedule.arena_bytes = words.next();
  variant.prologue.packed_bytes = words.next();
  read_packed(words, parts, artifact, variant);
  // The prologue has the first so many constants and kernels.
  const int64_t constants = words.next(), kernels = words.next();
  read_constants(words, parts, variant);
  const std::vector<Constant>& all = variant.schedule.constants;
  require_part(words, "constants", constants, all.size());
  variant.prologue.constants.assign(all.begin(), all.begin() + constants);
  read_kernels(words, parts, variant);
  require_part(words, "kernels", kernels, variant.kernels.size());
  variant.prologue_kernels = static_cast<size_t>(kernels);
  const Part main = read_steps(words, variant, StepReader(words, static_cast<size_t>(kernels)),
                               StepReader(words, variant.kernels.size()));
  read_facts(words, variant);
  if (!artifact.symbols.empty()) {
    read_sizes(words, artifact, main, 1, fact_count(variant.schedule), variant);
  }
  words.end();
  check_prologue(variant.prologue, Kernels::kNumbers);
  if (!artifact.symbols.empty()) return;  // the steps are checked for the sizes of each call
  check_schedule(variant.schedule, variant.prologue, Kernels::kNumbers);
}

// The most rounds that an invocation of each launch makes in its loops, -1 if that is not known.
void read_rounds(Words& words, const Variant& variant) {
  const std::vector<int64_t> rounds = words.list();
  const size_t expected = launch_count(variant.prologue) + launch_count(variant.schedule.main);
  if (rounds.size() != expected) {
    words.refuse("rounds of " + std::to_string(rounds.size()) + " launches",
                 std::to_string(expected));
  }
  for (int64_t most : rounds) {
    if (most < -1) words.refuse(number(most) + " rounds", "-1 or more");
  }
}

// The sizes of a device's memories. Those of params, constants, inputs and outputs, and the error
// record of 8 bytes, are there once each, in order; the others have any size, as have inputs and
// outputs where a call brings sizes (`sized`).
std::vector<int64_t> read_memories(Words& words, const Variant& variant, bool sized) {
  enum Role { kArena, kPacked, kError, kParam, kConstant, kInput, kOutput, kRoles };
  std::array<std::vector<int64_t>, kRoles> declared;
  declared[kError] = {8};
  for (const Signature& s : variant.prologue.params) declared[kParam].push_back(s.bytes());
  for (const Constant& c : variant.schedule.constants) declared[kConstant].push_back(c.bytes);
  const auto bytes = [sized](const Signature& s) { return sized ? 0 : s.bytes(); };
  for (const Signature& s : variant.schedule.inputs) declared[kInput].push_back(bytes(s));
  for (const Signature& s : variant.schedule.outputs) declared[kOutput].push_back(bytes(s));
  std::array<size_t, kRoles> seen{};
  std::vector<int64_t> sizes(words.count(3));
  for (int64_t& size : sizes) {
    const size_t role = words.below(kRoles, "role of a memory"), index = seen[role]++;
    if (words.next() != static_cast<int64_t>(index)) {
      words.refuse("a memory out of its order", "number " + std::to_string(index));
    }
    size = words.next();
    if (role <= kPacked) continue;
    const bool open = sized && role >= kInput;
    if (index >= declared[role].size() || (!open && size != declared[role][index])) {
      words.refuse("a memory of " + number(size) + " bytes", "one that the signature has");
    }
  }
  for (size_t role = kError; role < kRoles; ++role) {
    if (seen[role] == declared[role].size()) continue;
    words.refuse("memories without all that the signature needs", "one for each");
  }
  return sizes;
}

std::vector<DeviceKernel> read_device_kernels(Words& words, const std::vector<Part>& parts) {
  const size_t objects = words.count();
  for (size_t i = 0; i < objects; ++i) read_part(words, parts, "objects/");
  std::vector<DeviceKernel> kernels(words.count(9));
  for (DeviceKernel& kernel : kernels) {
    words.below(objects, "object");
    const std::string symbol = words.text();
    for (int axis = 0; axis < 3; ++axis) {
      if (words.below(size_t{1} << 31, "size of a group") == 0) words.refuse("no group", "one");
    }
    kernel.bindings = words.count(2);
    for (size_t i = 0; i < kernel.bindings; ++i) {
      parse_dtype("kernel '" + symbol + "'", words.text());
      words.below(2, "access");
    }
    kernel.params = static_cast<int64_t>(words.below(size_t{1} << 31, "params"));
    words.below(size_t{1} << 31, "shared memory");
    words.below(kMostSpare, "null pointers");
  }
  return kernels;
}

// A program for a device: steps on numbered memories, and code that its driver takes. Launches have
// their groups in place of range, grain and scratch.
void read_program(const Part& part, const std::vector<Part>& parts, const Artifact& artifact,
                  Variant& variant) {
  const bool sized = !artifact.symbols.empty();
  Words words(part);
  read_constants(words, parts, variant);
  const std::vector<int64_t> sizes = read_memories(words, variant, sized);
  const std::vector<DeviceKernel> kernels = read_device_kernels(words, parts);
  const StepReader reader(words, kernels.size(), &kernels);
  const Part main = read_steps(words, variant, reader, reader);
  read_facts(words, variant);
  read_rounds(words, variant);
  if (sized) read_sizes(words, artifact, main, sizes.size(), 0, variant);
  words.end();
  if (!sized) check_steps("main", variant.schedule.main, sizes);
  for (const PrologueStep& item : variant.prologue.steps) {
    check_steps("prologue", {item.step}, sizes);
    for (int64_t param : item.follows) {
      if (param >= 0 && static_cast<size_t>(param) < variant.prologue.params.size()) continue;
      words.refuse("a step that follows param " + number(param), "one of the signature");
    }
  }
}

void check_names(const Words& words, const std::vector<Signature>& params,
                 const std::vector<Signature>& inputs) {
  std::set<std::string> names;
  for (const std::vector<Signature>* signatures : {&params, &inputs}) {
    for (const Signature& signature : *signatures) {
      if (names.insert(signature.name).second) continue;
      words.refuse("two inputs or params called '" + signature.name + "'", "one");
    }
  }
}

}  // namespace

Artifact read_artifact(const void* data, size_t size) {
  const std::vector<Part> parts = unpack(data, size);
  if (parts.empty() || parts[0].name != "manifest") {
    throw Error("directory", "no manifest as the first part", "one", "compile the artifact again");
  }
  Words words(parts[0]);
  Artifact artifact;
  artifact.target = words.text();
  artifact.symbols = read_symbols(words);
  size_t named = artifact.symbols.size() + words.count();
  for (size_t i = artifact.symbols.size(); i < named; ++i) words.text();
  if (artifact.symbols.empty()) named = 0;
  artifact.params = read_signatures(words, 0);
  artifact.inputs = read_signatures(words, named);
  artifact.outputs = read_signatures(words, named);
  check_names(words, artifact.params, artifact.inputs);
  check_symbols(words, artifact);
  for (const Signature& param : artifact.params) {
    artifact.values.emplace_back();
    const size_t how = words.below(3, "flag");
    artifact.packed_params.push_back(how == 2);
    if (how != 1) continue;
    artifact.values.back() = read_part(words, parts, "params/");
    check_size(words, artifact.values.back(), param);
  }
  const size_t variants = words.count(4);
  if (variants == 0 || variants > kMaxVariants) {
    words.refuse(std::to_string(variants) + " variants", "1.." + std::to_string(kMaxVariants));
  }
  for (size_t i = 0; i < variants; ++i) {
    Variant& variant = artifact.variants.emplace_back();
    variant.prologue.params = artifact.params;
    variant.schedule.inputs = artifact.inputs;
    variant.schedule.outputs = artifact.outputs;
    variant.features = words.text();
    variant.machine = words.text();
    variant.required.resize(words.count());
    for (std::string& feature : variant.required) feature = words.text();
    const Part& part = read_part(words, parts, "variants/");
    (artifact.target == "cpu" ? read_schedule : read_program)(part, parts, artifact, variant);
  }
  words.end();
  return artifact;
}

std::vector<size_t> fitting_variants(const Artifact& artifact) {
  const std::string machine = machine_name(host_machine());
  const std::vector<std::string> has = cpu_features();
  std::vector<size_t> found;
  std::string lacks;
  for (size_t i = 0; i < artifact.variants.size(); ++i) {
    const Variant& variant = artifact.variants[i];
    std::string missing = variant.machine == machine ? "" : " " + variant.machine;
    for (const std::string& feature : variant.required) {
      if (variant.machine != machine) break;
      if (std::find(has.begin(), has.end(), feature) == has.end()) missing += " " + feature;
    }
    if (missing.empty()) found.push_back(i);
    lacks += (i == 0 ? "" : ", ") + variant.features + " (needs" + missing + ")";
  }
  if (!found.empty()) return found;
  throw Error("artifact", "code for " + lacks, "code for this machine, " + machine,
              "compile the artifact for this machine's CPU too");
}

}  // namespace rlx
