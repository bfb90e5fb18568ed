// Runs every test, or those whose name contains the first argument.
#include "check.h"

int main(int argc, char** argv) {
  int run = 0;
  for (const rlx::test::Case& item : rlx::test::cases()) {
    if (argc > 1 && std::string(item.name).find(argv[1]) == std::string::npos) continue;
    std::printf("%s\n", item.name);
    std::fflush(stdout);
    item.body();
    ++run;
  }
  std::printf("%d passed\n", run);
  return run > 0 ? 0 : 1;
}
