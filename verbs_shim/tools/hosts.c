#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/tool.h"

#define MAX_HOSTS 64
#define MAX_RANKS 256

/* "2x2": two hosts, two ranks on each. */
static int parse(const char *text, int *hosts, int *ranks)
{
	char rest;

	if (sscanf(text, "%dx%d%c", hosts, ranks, &rest) != 2)
		return -1;
	return *hosts >= 1 && *hosts <= MAX_HOSTS && *ranks >= 1 && *ranks <= MAX_RANKS ? 0 : -1;
}

/* Major version of the Open MPI in PATH, or 0. */
static int openmpi_major(void)
{
	FILE *f = popen("ompi_info --version 2>/dev/null", "r");
	int major = 0;

	if (!f)
		return 0;
	if (fscanf(f, "Open MPI v%d", &major) != 1)
		major = 0;
	pclose(f);
	return major;
}

/* The launch agent lies beside this program in a build tree, else where it was installed. */
static void find_agent(char *agent, size_t size)
{
	char self[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	char *slash;

	if (n > 0) {
		self[n] = '\0';
		slash = strrchr(self, '/');
		snprintf(agent, size, "%.*s/../libexec/vshim-host-agent", (int)(slash - self), self);
		if (access(agent, X_OK) == 0)
			return;
	}
	snprintf(agent, size, "%s", VSHIM_HOST_AGENT);
}

int vshim_hosts(int argc, char **argv)
{
	int hosts, ranks, major;
	char agent[PATH_MAX];

	if (argc != 2 || parse(argv[1], &hosts, &ranks)) {
		fprintf(stderr, "usage: vshim hosts HOSTSxRANKS   (1x1 to %dx%d)\n", MAX_HOSTS, MAX_RANKS);
		return 2;
	}
	major = openmpi_major();
	if (!major) {
		fprintf(stderr, "vshim: no Open MPI found: ompi_info is not in PATH\n");
		return 1;
	}
	find_agent(agent, sizeof(agent));
	if (access(agent, X_OK)) {
		fprintf(stderr, "vshim: the launch agent %s is missing\n", agent);
		return 1;
	}
	printf("-np %d --host ", hosts * ranks);
	for (int i = 0; i < hosts; i++)
		printf("%sh%d:%d", i ? "," : "", i, ranks);
	/* All hosts have the same cores, and each would bind its first rank to the first one. */
	printf(" --bind-to none");
	/* The ranks stay on this machine; the launcher's own messages need no other interface than lo. */
	if (major >= 5)
		printf(" --prtemca plm_ssh_agent %s --prtemca if_include lo\n", agent);
	else
		printf(" --mca plm_rsh_agent %s --mca oob_tcp_if_include lo\n", agent);
	return 0;
}
