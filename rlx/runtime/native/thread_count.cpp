#include "thread_count.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "affinity.h"
#include "error.h"

namespace rlx {

namespace {

// ceil(quota / period), or 0 when either is no positive number ("max", -1).
int whole_cpus(const std::string& quota, const std::string& period) {
  const long long q = std::strtoll(quota.c_str(), nullptr, 10);
  const long long p = std::strtoll(period.c_str(), nullptr, 10);
  if (q <= 0 || p <= 0) return 0;
  return static_cast<int>(std::min<long long>(q / p + (q % p != 0), kMaxThreads));
}

int tighter(int a, int b) { return a == 0 ? b : b == 0 ? a : std::min(a, b); }

std::string read_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

int quota_v2(const std::string& directory) {
  std::istringstream line(read_line(directory + "/cpu.max"));
  std::string quota, period;
  line >> quota >> period;
  return whole_cpus(quota, period);
}

int quota_v1(const std::string& directory) {
  return whole_cpus(read_line(directory + "/cpu.cfs_quota_us"),
                    read_line(directory + "/cpu.cfs_period_us"));
}

// The tightest quota of a group and its ancestors. Inside a container the group's own path often
// does not exist below the mount, but the mount's root then is the group.
template <typename Quota>
int tightest(const std::string& mount, std::string group, Quota quota) {
  int found = quota(mount);
  while (group.size() > 1) {
    found = tighter(found, quota(mount + group));
    group.resize(group.rfind('/'));
  }
  return found;
}

bool has_controller(const std::string& list, const std::string& name) {
  std::istringstream controllers(list);
  for (std::string item; std::getline(controllers, item, ',');) {
    if (item == name) return true;
  }
  return false;
}

}  // namespace

int cgroup_cpu_quota(const std::string& root) {
  const std::string mount = root + "/sys/fs/cgroup";
  std::ifstream groups(root + "/proc/self/cgroup");
  int found = 0;
  for (std::string line; std::getline(groups, line);) {  // "id:controllers:/path"
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos || line[second + 1] != '/') continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string group = line.substr(second + 1);
    if (controllers.empty()) {
      found = tighter(found, tightest(mount, group, quota_v2));
    } else if (has_controller(controllers, "cpu")) {
      for (const std::string& name : {std::string("cpu"), controllers}) {
        found = tighter(found, tightest(mount + "/" + name, group, quota_v1));
      }
    }
  }
  return found;
}

int parse_thread_count(const std::string& where, const std::string& text) {
  char* end = nullptr;
  const long long count = std::strtoll(text.c_str(), &end, 10);
  const bool whole = !text.empty() && end == text.c_str() + text.size();
  if (!whole || count < 1 || count > kMaxThreads) {
    throw Error(where, "'" + text + "'", "an integer in 1.." + std::to_string(kMaxThreads),
                "unset it to use every CPU that this process may use");
  }
  return static_cast<int>(count);
}

int default_threads() {
  if (const char* wanted = std::getenv("RLX_NUM_THREADS")) {
    return parse_thread_count("environment variable RLX_NUM_THREADS", wanted);
  }
  return std::min(tighter(Affinity().count(), cgroup_cpu_quota()), kMaxThreads);
}

}  // namespace rlx
