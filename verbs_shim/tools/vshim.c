#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/context.h"
#include "tools/answer.h"
#include "tools/tool.h"

static const struct {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *help;
} commands[] = {
	{ "list", vshim_list, "list [--json]                 objects of the software HCAs by host, process and type; clears away dead processes" },
	{ "counters", vshim_counters, "counters [--json]             what ports and QPs went through" },
	{ "check", vshim_check, "check [--json]                walk every structure; name the first broken invariant" },
	{ "hosts", vshim_hosts, "hosts HOSTSxRANKS             mpirun options for RANKS ranks on each of HOSTS simulated hosts: mpirun $(vshim hosts 2x2) ./app" },
	{ "with", vshim_with, "with 'ORDER; ...' -- COMMAND  run COMMAND on a fabric with these orders already in force" },
	{ "plan", vshim_plan, "plan FILE [--dry-run] [--json]   carry out the orders of a file, see the README for its words" },
};

#define NUM_COMMANDS (sizeof(commands) / sizeof(commands[0]))

static int usage(FILE *out)
{
	fprintf(out, "usage: vshim COMMAND\n\n");
	for (size_t i = 0; i < NUM_COMMANDS; i++)
		fprintf(out, "  %s\n", commands[i].help);
	if (out == stdout) {
		printf("\nor an order to the fabric, [--json]:\n\n");
		vshim_order_usage("  ");
	}
	fprintf(out, "\nVERBS_SHIM_FABRIC names the fabric's directory (default: /dev/shm/verbs_shim.<uid>).\n");
	return out == stderr ? 2 : 0;
}

int vshim_attach(void)
{
	int err = vs_attach_observer();

	if (err && err != ENOENT)
		vshim_refuse(err, "cannot look at the fabric: %s%s", strerror(err),
			     err == EPERM  ? " (its directory or files belong to another user, or are open to others)" :
			     err == EPROTO ? " (another version of verbs_shim is using it)" :
					     "");
	return err;
}

int main(int argc, char **argv)
{
	if (argc < 2)
		return usage(stderr);
	if (!strcmp(argv[1], "help") || !strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))
		return usage(stdout);
	for (size_t i = 0; i < NUM_COMMANDS; i++)
		if (!strcmp(argv[1], commands[i].name))
			return commands[i].run(argc - 1, argv + 1);
	return vshim_order(argc - 1, argv + 1);
}
