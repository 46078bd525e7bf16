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
enum { NOWHERE = VS_NUM_POINTS, ANYWHERE };

static uint32_t die_at = NOWHERE;
static uint32_t passes_left;

static void parse(const char *where)
{
	size_t len = where ? strcspn(where, ":") : 0;

	vs_store(&die_at, len == 3 && !strncmp(where, "any", len) ? ANYWHERE : NOWHERE);
	vs_store(&passes_left, where && where[len] == ':' ? (uint32_t)strtoul(where + len + 1, NULL, 10) : 1);
	for (uint32_t p = 0; where && p < VS_NUM_POINTS; p++)
		if (strlen(vs_point_name[p]) == len && !strncmp(where, vs_point_name[p], len))
			vs_store(&die_at, p);
}

static void read_environment(void)
{
	parse(getenv("VERBS_SHIM_DIE_AT"));
}

void vs_point_stop_at(const char *where)
{
	pthread_once(&once, read_environment);
	parse(where);
}

void (*vs_point_hook)(enum vs_point point);

void vs_point_pass(enum vs_point point)
{
	void (*hook)(enum vs_point) = vs_load(&vs_point_hook);
	uint32_t where;

	if (hook)
		hook(point);
	pthread_once(&once, read_environment);
	where = vs_load(&die_at);
	if ((where == point || where == ANYWHERE) && vs_add(&passes_left, -1u) == 1)
		kill(getpid(), SIGKILL);
}

#else

typedef int vs_point_none; /* ISO C wants something in every file */

#endif
