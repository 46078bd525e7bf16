// Which task runs when: until one sleeps, on which CPU, and with what precedence.
#ifndef TEST_LIB_TASK_H
#define TEST_LIB_TASK_H

#include <sched.h>

#include <fstream>
#include <stdexcept>
#include <string>

namespace vt
{

// Until a task sleeps: "PID", for the first thread of a process, or "self/task/TID". Who is about to wake it must have done so.
inline void until_it_sleeps(const std::string &task)
{
    for (std::string stat; stat.compare(stat.rfind(')') + 1, 2, " S") != 0; sched_yield()) {
        std::ifstream file("/proc/" + task + "/stat");
        if (!std::getline(file, stat))
            throw std::runtime_error("there is no task " + task);
    }
}

// This thread, and the processes that it forks, stay on the CPU that it is on.
class OneCpu
{
  public:
    OneCpu()
    {
        cpu_set_t here;
        CPU_ZERO(&here);
        CPU_SET(sched_getcpu(), &here);
        if (sched_getaffinity(0, sizeof(before_), &before_) || sched_setaffinity(0, sizeof(here), &here))
            throw std::runtime_error("sched_setaffinity");
    }
    ~OneCpu()
    {
        sched_setaffinity(0, sizeof(before_), &before_);
    }

  private:
    cpu_set_t before_;
};

// This thread runs from now on when its CPU has nothing better to do: who wakes it goes on.
inline void give_way()
{
    const sched_param none = {};
    if (sched_setscheduler(0, SCHED_IDLE, &none))
        throw std::runtime_error("sched_setscheduler");
}

} // namespace vt

#endif
