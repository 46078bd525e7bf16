#include "memory/point.h"

#ifdef VS_CRASH_POINTS

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "memory/atomic.h"

const char *const vs_point_name[VS_NUM_POINTS] = {
#define POINT_NAME(name) #name,
	VS_POINTS(POINT_NAME)
#undef POINT_NAME
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static enum vs_point die_at = VS_NUM_POINTS;
static uint32_t passes_left;

static void read_environment(void)
{
	const char *env = getenv("VERBS_SHIM_DIE_AT");
	size_t len = env ? strcspn(env, ":") : 0;

	for (int p = 0; env && p < VS_NUM_POINTS; p++)
		if (strlen(vs_point_name[p]) == len && !strncmp(env, vs_point_name[p], len))
			die_at = (enum vs_point)p;
	passes_left = env && env[len] == ':' ? (uint32_t)strtoul(env + len + 1, NULL, 10) : 1;
}

void (*vs_point_hook)(enum vs_point point);

void vs_point_pass(enum vs_point point)
{
	void (*hook)(enum vs_point) = vs_load(&vs_point_hook);

	if (hook)
		hook(point);
	pthread_once(&once, read_environment);
	if (point == die_at && vs_add(&passes_left, -1u) == 1)
		kill(getpid(), SIGKILL);
}

#else

typedef int vs_point_none; /* ISO C wants something in every file */

#endif
