// A process of a fabric of its own, for the tests of parts that need one.
#ifndef TEST_UNIT_ATTACHED_H
#define TEST_UNIT_ATTACHED_H

#include <gtest/gtest.h>

extern "C" {
#include "core/context.h"
}

#include <unistd.h>

#include <cstdlib>
#include <string>

// One that whoever runs the test has not named.
inline void use_own_fabric()
{
    if (!getenv("VERBS_SHIM_FABRIC"))
        setenv("VERBS_SHIM_FABRIC", ("/dev/shm/vt." + std::to_string(getpid())).c_str(), 1);
}

class Attached : public ::testing::Test
{
  protected:
    void SetUp() override
    {
        alarm(120);
        use_own_fabric();
        ASSERT_EQ(vs_attach(), 0);
        attached_ = true;
    }
    void TearDown() override
    {
        if (attached_)
            vs_detach();
    }

  private:
    bool attached_ = false;
};

#endif
