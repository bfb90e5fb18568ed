// Features that this CPU has and the system has enabled.
#pragma once

#include <string>
#include <vector>

namespace rlx {

// Names as LLVM spells target features. A feature whose registers the system does not save is left
// out.
std::vector<std::string> cpu_features();

}  // namespace rlx
