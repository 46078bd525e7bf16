// What every googletest program includes, and most of its compiling goes into: compiled once for all of them. The Makefile names it to the
// compiler, so a program still includes for itself what it uses.
#ifndef TEST_LIB_PRECOMPILED_H
#define TEST_LIB_PRECOMPILED_H

#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#endif
