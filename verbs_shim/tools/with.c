/* vshim with ORDERS -- COMMAND: a fabric with faults already in place before the command's first process joins it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/context.h"
#include "tools/tool.h"

int vshim_split(char *line, char **words, int max)
{
	int n = 0;
	char *save = NULL;

	line[strcspn(line, "#\n")] = '\0';
	for (char *w = strtok_r(line, " \t", &save); w && n < max - 1; w = strtok_r(NULL, " \t", &save))
		words[n++] = w;
	words[n] = NULL;
	return n;
}

/* Semicolons part orders. */
static int run_orders(char *text)
{
	char *save = NULL, *words[VSHIM_WORDS];
	int bad = 0;

	for (char *order = strtok_r(text, ";", &save); order && !bad; order = strtok_r(NULL, ";", &save)) {
		int n = vshim_split(order, words, VSHIM_WORDS);

		bad = n > 0 && vshim_run_order(n, words);
	}
	return bad;
}

static int run_command(char **argv)
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		execvp(argv[0], argv);
		fprintf(stderr, "vshim: cannot run %s: %s\n", argv[0], strerror(errno));
		_exit(127);
	}
	if (pid < 0)
		return 127;
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return 127;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int vshim_with(int argc, char **argv)
{
	int err, status;

	if (argc < 4 || strcmp(argv[2], "--")) {
		fprintf(stderr, "usage: vshim with 'ORDER; ORDER ...' -- COMMAND ...\n");
		return 2;
	}
	err = vs_attach_keeper();
	if (err) {
		fprintf(stderr, "vshim: cannot make a fabric: %s\n", strerror(err));
		return 1;
	}
	status = run_orders(argv[1]) ? 2 : run_command(argv + 3);
	vs_detach();
	return status;
}
