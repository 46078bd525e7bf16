// Ordering faults from a test, and reading what came of them: the vshim tool, run as its users run it.
#ifndef TEST_CONFORM_FAULTS_H
#define TEST_CONFORM_FAULTS_H

#include "conform/verbs.h"

#include <cstdio>

namespace vt
{

struct Told {
    int status;
    std::string text; // standard output and error
};

inline Told run(const std::string &program, const std::string &words)
{
    FILE *f = popen(("exec '" + program + "' " + words + " 2>&1").c_str(), "re");
    need(f != nullptr, "popen");
    Told told = {0, ""};
    char part[4096];
    for (size_t n; (n = fread(part, 1, sizeof(part), f)) > 0;)
        told.text.append(part, n);
    int status = pclose(f);
    told.status = WIFEXITED(status) ? WEXITSTATUS(status) : 256 + WTERMSIG(status);
    return told;
}

inline std::string tool()
{
    const char *vshim = getenv("VSHIM");
    need(vshim && *vshim, "VSHIM names no tool");
    return vshim;
}

inline Told vshim(const std::string &words)
{
    return run(tool(), words);
}

inline void order(const std::string &words)
{
    Told told = vshim(words);
    EXPECT_EQ(told.status, 0) << "vshim " << words << ": " << told.text;
}

// Every structure of the segment is sound.
inline void check_fabric()
{
    Told told = vshim("check");
    EXPECT_EQ(told.status, 0) << told.text;
}

// Objects of all processes, as text to compare.
inline std::string objects()
{
    return vshim("list").text;
}

// A counter in the row of `vshim counters` that begins with name; 0 if it is not there.
inline long counter_of(const std::string &name, const std::string &counter)
{
    std::string text = vshim("counters").text;
    for (size_t at = 0, end; at < text.size(); at = end + 1) {
        end = std::min(text.find('\n', at), text.size());
        std::string row = text.substr(at, end - at) + " ";
        size_t found = row.find("  " + counter + " ");
        if (row.compare(0, name.size() + 1, name + " ") == 0)
            return found == std::string::npos ? 0 : atol(row.c_str() + found + counter.size() + 3);
    }
    return 0;
}

inline long qp_counter(uint32_t qpn, const std::string &counter)
{
    char name[32];
    snprintf(name, sizeof(name), "QP 0x%06x", qpn);
    return counter_of(name, counter);
}

// A variable of the environment for as long as this lives.
class Setting
{
  public:
    Setting(const char *name, const std::string &value) : name_(name)
    {
        need(setenv(name, value.c_str(), 1) == 0, "setenv");
    }
    Setting(const Setting &) = delete;
    ~Setting()
    {
        unsetenv(name_);
    }

  private:
    const char *name_;
};

// Until cond holds: what another process's engine does is waited for, and the watchdog ends a wait for what never comes.
template <class Cond> void until(Cond cond)
{
    while (!cond())
        sched_yield();
}

// A port's LID, also while its link is down.
inline uint16_t lid_of(const std::string &port)
{
    return (uint16_t)atoi(vshim("counters | sed -n 's|^" + port + " .*LID \\([0-9]*\\).*|\\1|p'").text.c_str());
}

} // namespace vt

#endif
