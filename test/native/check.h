// A small test harness: TEST registers a function, CHECK ends the program on the first failure.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "error.h"

namespace rlx::test {

struct Case {
  const char* name;
  void (*body)();
};

inline std::vector<Case>& cases() {
  static std::vector<Case> all;
  return all;
}

struct Registered {
  Registered(const char* name, void (*body)()) { cases().push_back({name, body}); }
};

[[noreturn]] inline void fail(const char* file, int line, const std::string& what) {
  std::fprintf(stderr, "%s:%d: %s\n", file, line, what.c_str());
  std::exit(1);
}

// Runs `body`, which must throw an Error whose message contains `part`.
inline void check_refused(const char* file, int line, const std::string& part,
                          const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    if (std::string(error.what()).find(part) != std::string::npos) return;
    fail(file, line, "the error '" + std::string(error.what()) + "' does not name '" + part + "'");
  }
  fail(file, line, "nothing was refused, expected an error that names '" + part + "'");
}

}  // namespace rlx::test

#define TEST(name)                                                      \
  static void name();                                                   \
  static const ::rlx::test::Registered registered_##name(#name, &name); \
  static void name()

#define CHECK(condition) \
  if (!(condition)) ::rlx::test::fail(__FILE__, __LINE__, "not so: " #condition)

#define CHECK_REFUSED(part, ...) \
  ::rlx::test::check_refused(__FILE__, __LINE__, part, [&] { __VA_ARGS__; })
