#include "api/real.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static void *library;

/* By name and version, not RTLD_NEXT: that fails where this library came in as some plug-in's dependency. */
static void load(void)
{
	library = dlopen("libibverbs.so.1", RTLD_LAZY | RTLD_LOCAL);
}

void *vs_real(const char *name, const char *version)
{
	void *f;

	pthread_once(&once, load);
	f = library ? dlvsym(library, name, version) : NULL;
	if (!f)
		errno = EOPNOTSUPP;
	return f;
}
