#include "artifact.h"

#include <algorithm>
#include <set>
#include <utility>

#include "cpu_features.h"
#include "error.h"
#include "words.h"

namespace rlx {

namespace {

// Deeper trees come from a mistake, and would overflow the stack that walks them.
constexpr int kMaxDepth = 64;
// No array of numpy's has more dims.
constexpr size_t kMaxRank = 64;
// Each variant has its own copy of the signatures.
constexpr size_t kMaxVariants = 64;
// The words of the shortest step and of the shortest signature.
constexpr size_t kStepWords = 6, kSignatureWords = 3;

std::string number(int64_t value) { return std::to_string(value); }

Signature read_signature(Words& words) {
  Signature signature;
  signature.name = words.text();
  signature.dtype = parse_dtype("'" + signature.name + "'", words.text());
  signature.shape = words.list();
  if (signature.shape.size() > kMaxRank) {
    words.refuse(number(static_cast<int64_t>(signature.shape.size())) + " dims",
                 "at most " + std::to_string(kMaxRank));
  }
  signature.bytes();  // refuses what is no shape
  return signature;
}

std::vector<Signature> read_signatures(Words& words) {
  std::vector<Signature> signatures(words.count(kSignatureWords));
  for (Signature& signature : signatures) signature = read_signature(words);
  return signatures;
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

// Reads steps; the numbers of their kernels are below `kernels`.
class StepReader {
 public:
  StepReader(Words& words, size_t kernels) : words_(words), kernels_(kernels) {}

  Steps steps(int depth) {
    if (depth > kMaxDepth) {
      words_.refuse("steps nested deeper", "at most " + number(kMaxDepth) + " levels");
    }
    Steps steps;  // grown as they are read: each level may claim all that is left
    for (size_t left = words_.count(kStepWords); left > 0; --left) steps.push_back(step(depth));
    return steps;
  }

  Step step(int depth) {
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

 private:
  Launch launch() {
    Launch launch;
    launch.kernel = words_.below(kernels_, "kernel");
    launch.range = words_.next();
    launch.grain = words_.next();
    launch.scratch_bytes = words_.next();
    launch.buffers.resize(words_.count(3));
    for (Ref& ref : launch.buffers) ref = read_ref(words_);
    launch.sizes = words_.list();
    return launch;
  }

  If branch(int depth) {
    If branch;
    branch.condition = read_ref(words_);
    branch.then_steps = steps(depth + 1);
    branch.else_steps = steps(depth + 1);
    return branch;
  }

  While repeat(int depth) {
    While loop;
    loop.condition = read_ref(words_);
    loop.max_iterations = words_.next();
    loop.site = words_.next();
    loop.condition_steps = steps(depth + 1);
    loop.body = steps(depth + 1);
    return loop;
  }

  For loop(int depth) {
    For loop;
    loop.count = words_.next();
    loop.reverse = words_.below(2, "flag") != 0;
    loop.counts = words_.below(2, "flag") != 0;
    loop.counter = read_ref(words_);
    loop.body = steps(depth + 1);
    return loop;
  }

  Words& words_;
  size_t kernels_;
};

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

void read_steps(Words& words, Variant& variant) {
  StepReader reader(words, variant.kernels.size());
  variant.prologue.steps.resize(words.count(1 + kStepWords));
  for (PrologueStep& item : variant.prologue.steps) {
    item.follows = words.list();
    item.step = reader.step(0);
  }
  variant.schedule.main = reader.steps(0);
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

void read_schedule(const Part& part, const std::vector<Part>& parts, Variant& variant) {
  Words words(part);
  variant.schedule.arena_bytes = words.next();
  variant.prologue.packed_bytes = words.next();
  variant.schedule.constants.resize(words.count(1 + kSignatureWords));
  for (Constant& constant : variant.schedule.constants) {
    const Signature signature = read_signature(words);
    const Part& values = read_part(words, parts, "constants/");
    check_size(words, values, signature);
    constant.data = values.data;
    constant.bytes = signature.bytes();
  }
  variant.prologue.constants = variant.schedule.constants;
  read_kernels(words, parts, variant);
  read_steps(words, variant);
  read_facts(words, variant);
  words.end();
  check_prologue(variant.prologue, Kernels::kNumbers);
  check_schedule(variant.schedule, variant.prologue, Kernels::kNumbers);
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
  Variant common;
  common.prologue.params = read_signatures(words);
  common.schedule.inputs = read_signatures(words);
  common.schedule.outputs = read_signatures(words);
  check_names(words, common.prologue.params, common.schedule.inputs);
  for (const Signature& param : common.prologue.params) {
    artifact.values.emplace_back();
    if (words.below(2, "flag") == 0) continue;
    artifact.values.back() = read_part(words, parts, "params/");
    check_size(words, artifact.values.back(), param);
  }
  const size_t variants = words.count(4);
  if (variants == 0 || variants > kMaxVariants) {
    words.refuse(std::to_string(variants) + " variants", "1.." + std::to_string(kMaxVariants));
  }
  for (size_t i = 0; i < variants; ++i) {
    Variant& variant = artifact.variants.emplace_back(common);
    variant.features = words.text();
    variant.machine = words.text();
    variant.required.resize(words.count());
    for (std::string& feature : variant.required) feature = words.text();
    read_schedule(read_part(words, parts, "variants/"), parts, variant);
  }
  words.end();
  return artifact;
}

size_t fitting_variant(const Artifact& artifact) {
  const std::string machine = machine_name(host_machine());
  const std::vector<std::string> has = cpu_features();
  std::string lacks;
  for (size_t i = 0; i < artifact.variants.size(); ++i) {
    const Variant& variant = artifact.variants[i];
    std::string missing = variant.machine == machine ? "" : " " + variant.machine;
    for (const std::string& feature : variant.required) {
      if (variant.machine != machine) break;
      if (std::find(has.begin(), has.end(), feature) == has.end()) missing += " " + feature;
    }
    if (missing.empty()) return i;
    lacks += (i == 0 ? "" : ", ") + variant.features + " (needs" + missing + ")";
  }
  throw Error("artifact", "code for " + lacks, "code for this machine, " + machine,
              "compile the artifact for this machine's CPU too");
}

Loaded load_artifact(Artifact artifact, std::shared_ptr<void> owner) {
  if (artifact.target != "cpu") {
    throw Error("artifact", "code for the target '" + artifact.target + "'", "'cpu'");
  }
  Variant variant = std::move(artifact.variants[fitting_variant(artifact)]);
  std::vector<std::shared_ptr<const ElfObject>> objects;
  for (const Part& part : variant.objects) objects.push_back(ElfObject::load(part.data, part.size));
  std::vector<uintptr_t> addresses;
  for (const KernelSymbol& kernel : variant.kernels) {
    addresses.push_back(
        reinterpret_cast<uintptr_t>(objects[kernel.object]->symbol(kernel.symbol)));
  }
  for (PrologueStep& item : variant.prologue.steps) resolve(item.step, addresses);
  resolve(variant.schedule.main, addresses);
  for (Constant& constant : variant.prologue.constants) constant.owner = owner;
  for (Constant& constant : variant.schedule.constants) constant.owner = owner;
  variant.prologue.objects = variant.schedule.objects = std::move(objects);
  Loaded loaded;
  loaded.sites = std::move(variant.sites);
  loaded.weights = std::make_shared<Weights>(std::move(variant.prologue));
  loaded.program = std::make_unique<Program>(loaded.weights, std::move(variant.schedule));
  for (size_t i = 0; i < artifact.values.size(); ++i) {
    const Part& value = artifact.values[i];
    if (value.data != nullptr) loaded.weights->set_param(i, value.data, owner);
  }
  return loaded;
}

}  // namespace rlx
