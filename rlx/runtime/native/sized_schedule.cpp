#include "sized_schedule.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

#include "error.h"

namespace rlx {

namespace {

// Puts numbers in the places of words, for which it counts the words that a step was read from
// (step_reader.cpp). What says how many of something follow, or what kind of it, is not replaced.
class Patcher {
 public:
  Patcher(const std::vector<Patch>& patches, const std::vector<int64_t>& numbers)
      : patches_(patches), numbers_(numbers) {}

  // Returns how many were put: the next one is of no number.
  size_t all(Steps& steps) {
    at_ = 1;
    next_ = 0;
    walk(steps);
    return next_;
  }

 private:
  void walk(Steps& steps) {
    ++at_;  // their count
    for (Step& step : steps) {
      ++at_;  // its kind
      std::visit(
          [&](auto& op) {
            each_field(op, [&](auto& field) { walk(field); });
          },
          step.op);
    }
  }

  void walk(uintptr_t&) { ++at_; }
  void walk(bool&) { ++at_; }
  void walk(int64_t& word) {
    if (next_ < patches_.size() && patches_[next_].word == at_) {
      word = numbers_[patches_[next_++].value];
    }
    ++at_;
  }
  void walk(std::array<int64_t, 3>& grid) {
    for (int64_t& word : grid) walk(word);
  }
  void walk(std::vector<int64_t>& list) {
    ++at_;
    for (int64_t& word : list) walk(word);
  }
  void walk(Ref& place) {
    ++at_;  // the memory
    walk(place.offset);
    ++at_;
    for (Move& move : place.moves) {
      ++at_;  // the loop
      walk(move.bytes);
    }
  }
  void walk(std::optional<Ref>& place) {
    ++at_;
    if (place) {
      walk(*place);
    } else {
      at_ += kPlaceWords;
    }
  }
  void walk(std::vector<Ref>& places) {
    ++at_;
    for (Ref& place : places) walk(place);
  }

  const std::vector<Patch>& patches_;
  const std::vector<int64_t>& numbers_;
  size_t at_ = 0, next_ = 0;
};

// Gives signatures the dims that come next.
void set_shapes(std::vector<Signature>& signatures, const int64_t*& dims) {
  for (Signature& signature : signatures) {
    for (int64_t& dim : signature.shape) dim = *dims++;
  }
}

}  // namespace

void check_patches(const SizeProgram& program, const Schedule& schedule, size_t memories,
                   size_t facts) {
  Steps steps = schedule.main;
  size_t most = 0;
  for (const Patch& patch : program.patches()) most = std::max(most, patch.value + 1);
  const std::vector<int64_t> zeros(most);
  const size_t done = Patcher(program.patches(), zeros).all(steps);
  if (done < program.patches().size()) {
    throw Error("a schedule of symbolic sizes",
                "word " + std::to_string(program.patches()[done].word) + " to be replaced",
                "one that is a number of a step, and each once", "it was written wrongly");
  }
  size_t dims = memories;
  for (const Signature& s : schedule.inputs) dims += s.shape.size();
  for (const Signature& s : schedule.outputs) dims += s.shape.size();
  const size_t results = dims + facts;
  if (program.result_count() != results) {
    throw Error("a schedule of symbolic sizes", std::to_string(program.result_count()) + " results",
                std::to_string(results), "it was written wrongly");
  }
}

size_t fact_count(const Schedule& schedule) { return 2 * launch_count(schedule.main); }

SizedSchedule::SizedSchedule(std::shared_ptr<const SizeProgram> program, Schedule schedule)
    : program_(std::move(program)), schedule_(std::move(schedule)) {
  check_patches(*program_, schedule_, 1, fact_count(schedule_));
  check_kernels(schedule_);
}

std::optional<Schedule> SizedSchedule::bind(const std::vector<int64_t>& sizes) const {
  const std::optional<std::vector<int64_t>> numbers = program_->numbers(sizes);
  if (!numbers) return std::nullopt;
  Schedule bound = schedule_;
  Patcher(program_->patches(), *numbers).all(bound.main);
  const std::vector<int64_t> results = program_->results(*numbers);
  const int64_t* dims = results.data();
  bound.arena_bytes = *dims++;
  set_shapes(bound.inputs, dims);
  set_shapes(bound.outputs, dims);
  return bound;
}

}  // namespace rlx
