#include "model.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "error.h"

namespace rlx {

namespace {

// No tensor is larger, and sums of a few such numbers fit 64 bits.
constexpr int64_t kMostSize = int64_t{1} << 60;

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (int64_t dim : shape) {
    text += (text.size() == 1 ? "" : ", ") + (dim == kUnknown ? "?" : std::to_string(dim));
  }
  return text + "]";
}

void check_shape(const Signature& input, const std::vector<int64_t>& shape) {
  bool fits = shape.size() == input.shape.size();
  for (size_t axis = 0; fits && axis < shape.size(); ++axis) {
    const int64_t wanted = input.shape[axis];
    fits = wanted == kUnknown ? shape[axis] >= 0 && shape[axis] <= kMostSize : shape[axis] == wanted;
  }
  if (!fits) {
    throw Error("input '" + input.name + "'", "shape " + shape_text(shape), shape_text(input.shape));
  }
}

}  // namespace

Model::Model(Artifact artifact, std::shared_ptr<void> owner)
    : artifact_(std::move(artifact)), owner_(std::move(owner)) {
  if (artifact_.target != "cpu") {
    throw Error("artifact", "code for the target '" + artifact_.target + "'", "'cpu'");
  }
  std::vector<size_t> fitting = fitting_variants(artifact_);
  if (artifact_.symbols.empty()) fitting.resize(1);
  for (size_t i : fitting) variants_.push_back({std::move(artifact_.variants[i]), {}, {}, nullptr});
  artifact_.variants.clear();
  for (const Part& value : artifact_.values) values_.push_back({value.data, owner_});
  if (artifact_.symbols.empty()) load(variants_[0]);
}

SizedProgram Model::bind(const Shapes& shapes) {
  for (size_t i = 0; i < inputs().size(); ++i) check_shape(inputs()[i], shapes[i]);
  std::lock_guard<std::mutex> lock(mutex_);
  if (symbols().empty()) {
    return program(variants_[0], variants_[0].variant.schedule, Kernels::kAddresses);
  }
  const std::vector<int64_t> sizes = sizes_of(shapes);
  std::string conditions, found;
  for (Loaded& variant : variants_) {
    if (variant.weights != nullptr || variant.variant.sizes->numbers(sizes)) load(variant);
    std::optional<Schedule> bound = variant.sized ? variant.sized->bind(sizes) : std::nullopt;
    if (bound) {
      for (size_t i = 0; i < shapes.size(); ++i) check_shape(bound->inputs[i], shapes[i]);
      return program(variant, std::move(*bound), Kernels::kKnown);
    }
    conditions += (conditions.empty() ? "" : "; or ") + variant.variant.conditions;
  }
  for (size_t i = 0; i < sizes.size(); ++i) {
    found += (i == 0 ? "" : ", ") + symbols()[i].name + "=" + std::to_string(sizes[i]);
  }
  throw Error("sizes", found, conditions, "compile the artifact for these sizes too");
}

std::vector<int64_t> Model::sizes_of(const Shapes& shapes) const {
  std::vector<int64_t> sizes;
  for (const Symbol& symbol : symbols()) {
    const int64_t dim = shapes[symbol.input][symbol.axis] - symbol.number;
    const int64_t size = std::max<int64_t>(dim / symbol.factor, 0);
    if (size < symbol.least || (symbol.most >= 0 && size > symbol.most)) {
      const std::string most = symbol.most < 0 ? " on" : " to " + std::to_string(symbol.most);
      throw Error("dim '" + symbol.name + "'", std::to_string(size),
                  "a size from " + std::to_string(symbol.least) + most);
    }
    sizes.push_back(size);
  }
  return sizes;
}

SizedProgram Model::program(const Loaded& loaded, Schedule schedule, Kernels kernels) {
  return {std::make_unique<Program>(loaded.weights, std::move(schedule), kernels),
          &loaded.variant.sites};
}

void Model::load(Loaded& loaded) {
  if (loaded.weights != nullptr) return;
  Variant& variant = loaded.variant;
  std::vector<std::shared_ptr<const ElfObject>> objects;
  for (const Part& part : variant.objects) {
    std::shared_ptr<const ElfObject>& object = objects_[part.data];
    if (object == nullptr) object = ElfObject::load(part.data, part.size);
    objects.push_back(object);
  }
  std::vector<uintptr_t> addresses;
  for (const KernelSymbol& kernel : variant.kernels) {
    addresses.push_back(
        reinterpret_cast<uintptr_t>(objects[kernel.object]->symbol(kernel.symbol)));
  }
  Prologue prologue = variant.prologue;
  for (PrologueStep& item : prologue.steps) resolve(item.step, addresses);
  for (Constant& constant : prologue.constants) constant.owner = owner_;
  std::shared_ptr<Weights> weights;
  for (const Loaded& other : variants_) {
    if (other.weights != nullptr && packs_alike(other, variant, addresses)) weights = other.weights;
  }
  prologue.objects = objects;
  if (weights == nullptr) {
    weights = std::make_shared<Weights>(std::move(prologue));
    // What is packed is of the artifact's own values: others come after it.
    for (bool own : {true, false}) {
      for (size_t i = 0; i < values_.size(); ++i) {
        const Param& value = values_[i];
        if (value.data == nullptr || (value.data == artifact_.values[i].data) != own) continue;
        weights->set_param(i, value.data, value.owner);
      }
      const Part& packed = variant.packed;
      if (!own || packed.data == nullptr) continue;
      weights->use_packed({packed.data, static_cast<int64_t>(packed.size), owner_});
    }
    if (file_.data != nullptr) weights->release_when_packed(file_);
  }
  Schedule schedule = variant.schedule;
  for (Constant& constant : schedule.constants) constant.owner = owner_;
  resolve(schedule.main, addresses);
  schedule.objects = std::move(objects);
  if (variant.sizes != nullptr) loaded.sized.emplace(variant.sizes, schedule);
  // Nothing of the below fails: a variant is loaded whole or not at all.
  variant.schedule = std::move(schedule);
  loaded.addresses = std::move(addresses);
  loaded.weights = std::move(weights);
}

bool Model::packs_alike(const Loaded& loaded, const Variant& variant,
                        const std::vector<uintptr_t>& addresses) {
  const Prologue &a = loaded.variant.prologue, &b = variant.prologue;
  const Part &left = loaded.variant.prologue_words, &right = variant.prologue_words;
  const auto kernels = static_cast<std::ptrdiff_t>(variant.prologue_kernels);
  return a.packed_bytes == b.packed_bytes &&
         loaded.variant.prologue_kernels == variant.prologue_kernels &&
         loaded.variant.packed.data == variant.packed.data && left.size == right.size && std::equal(left.data, left.data + left.size, right.data) &&
         std::equal(addresses.begin(), addresses.begin() + kernels, loaded.addresses.begin()) &&
         std::equal(a.constants.begin(), a.constants.end(), b.constants.begin(), b.constants.end(),
                    [](const Constant& x, const Constant& y) { return x.data == y.data; });
}

void Model::set_param(size_t index, const void* data, std::shared_ptr<void> owner) {
  std::lock_guard<std::mutex> lock(mutex_);
  values_[index] = {data, owner};
  for (const std::shared_ptr<Weights>& weights : distinct_weights()) {
    weights->set_param(index, data, owner);
  }
}

void Model::release_when_packed(Constant file) {
  std::lock_guard<std::mutex> lock(mutex_);
  file_ = file;
  for (const std::shared_ptr<Weights>& weights : distinct_weights()) {
    weights->release_when_packed(file);
  }
}

std::set<std::shared_ptr<Weights>> Model::distinct_weights() const {
  std::set<std::shared_ptr<Weights>> found;
  for (const Loaded& variant : variants_) {
    if (variant.weights != nullptr) found.insert(variant.weights);
  }
  return found;
}

}  // namespace rlx
