// The failures of the native runtime. The first two are values of plain text and numbers, so that any
// front (Python, C++) can turn them into its own.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <utility>

namespace rlx {

// A refused argument, object, schedule or environment variable: where it is, what was found there,
// what was expected, and what to do about it (may be empty).
class Error : public std::exception {
 public:
  Error(std::string where, std::string found, std::string expected, std::string hint = "")
      : where(std::move(where)),
        found(std::move(found)),
        expected(std::move(expected)),
        hint(std::move(hint)) {
    message_ = this->where + ": found " + this->found + ", expected " + this->expected;
    if (!this->hint.empty()) message_ += "; " + this->hint;
  }

  const char* what() const noexcept override { return message_.c_str(); }

  std::string where, found, expected, hint;
  // Whether launches may have run before: arrays that the call writes hold old and new values.
  bool partly_run = false;

 private:
  std::string message_;
};

// Error codes that the runtime writes itself; kernels own all the others. 0 means no fault.
inline constexpr int64_t kFaultLoopLimit = 1;
// Of a collective: the fault says more in `detail`.
inline constexpr int64_t kFaultCollective = 1;

// A call whose error record was nonzero at its end. Its outputs are unspecified.
class Fault : public std::exception {
 public:
  Fault(int64_t code, int64_t site)
      : code(code),
        site(site),
        message_("the call wrote error code " + std::to_string(code) + " at site " +
                 std::to_string(site) +
                 (code == kFaultLoopLimit ? " (a loop reached its iteration limit)" : "")) {}

  // With more than the site's message says.
  Fault(int64_t code, int64_t site, std::string message, std::string detail)
      : code(code), site(site), detail(std::move(detail)), message_(std::move(message)) {}

  // With what the site means, where that is known.
  Fault(int64_t code, int64_t site, std::string message)
      : code(code), site(site), message_(std::move(message)) {}

  const char* what() const noexcept override { return message_.c_str(); }

  int64_t code, site;
  std::string detail;

 private:
  std::string message_;
};

// A call that its watch ended. Its outputs are unspecified; the next call is as any.
class Interrupted : public std::exception {
 public:
  const char* what() const noexcept override { return "the call was interrupted"; }
};

}  // namespace rlx
