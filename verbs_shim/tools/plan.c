/* Plan files: orders in a row, with waits, repetition and chance; the same seed gives the same plan.
 *
 *     seed 7                    # for what follows; else from the file's words
 *     wait 10..50               # milliseconds, any of them; wait 10 is exactly 10
 *     repeat 20                 # what is between here and end
 *       choose                  # one of the alternatives, parted by or
 *         link down h0
 *       or
 *         drop packet nth 3
 *       end
 *     end
 *
 * Each line that is carried out is printed, as what it came to. --dry-run prints the same, and does nothing. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/context.h"
#include "tools/answer.h"
#include "tools/tool.h"

#define MAX_LINES 1024
#define MAX_WORDS VSHIM_WORDS
#define MAX_DEPTH 16
#define MAX_STEPS 200000u /* repeats of repeats end somewhere */

struct plan {
	char *line[MAX_LINES];
	int num_lines;
	uint64_t random;
	unsigned steps; /* lines carried out */
	uint64_t began;
	bool dry, json;
};

/* splitmix64: small, and the same everywhere. */
static uint64_t next_random(struct plan *p)
{
	uint64_t z = p->random += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

static int complain(int line, const char *what)
{
	return vshim_refuse(EINVAL, "plan, line %d: %s", line + 1, what);
}

static int words_of(const struct plan *p, int line, char *copy, size_t size, char **words)
{
	snprintf(copy, size, "%s", p->line[line]);
	return vshim_split(copy, words, MAX_WORDS);
}

static bool starts(const struct plan *p, int line, const char *word)
{
	char copy[512], *words[MAX_WORDS];

	return words_of(p, line, copy, sizeof(copy), words) > 0 && !strcmp(words[0], word);
}

static bool opens(const struct plan *p, int line)
{
	return starts(p, line, "repeat") || starts(p, line, "choose");
}

/* The line of the end that closes the block begun at line, and the or lines of the block itself. -1: none. */
static int find_end(const struct plan *p, int line, int *ors, int max_ors, int *num_ors)
{
	int depth = 0;

	*num_ors = 0;
	for (int i = line + 1; i < p->num_lines; i++) {
		if (opens(p, i))
			depth++;
		else if (starts(p, i, "end") && depth-- == 0)
			return i;
		else if (depth == 0 && starts(p, i, "or") && *num_ors < max_ors)
			ors[(*num_ors)++] = i;
	}
	return -1;
}

static int run_block(struct plan *p, int from, int to, int depth);

/* A line comes to this. */
static void begin(const struct plan *p, int line, int n, char **words)
{
	vshim_step_begin(line + 1, n, words);
	if (!p->dry)
		cJSON_AddNumberToObject(vshim_answer(), "at_ms", (double)((vs_now() - p->began) / 1000) / 1000);
	for (int i = 0; i < n && !p->json; i++)
		printf("%s%c", words[i], i + 1 < n ? ' ' : '\n');
}

static int run_wait(struct plan *p, int line, int n, char **words)
{
	unsigned low, high;
	char rest, ms[16];

	if (n != 2)
		return complain(line, "wait MS or wait LOW..HIGH");
	if (sscanf(words[1], "%u..%u%c", &low, &high, &rest) != 2) {
		if (sscanf(words[1], "%u%c", &low, &rest) != 1)
			return complain(line, "wait MS or wait LOW..HIGH");
		high = low;
	}
	if (high < low || high > 3600000)
		return complain(line, "that wait is none");
	low += (unsigned)(next_random(p) % (high - low + 1));
	snprintf(ms, sizeof(ms), "%u", low);
	begin(p, line, 2, (char *[]){ words[0], ms });
	if (!p->dry) {
		struct timespec ts = { .tv_sec = low / 1000, .tv_nsec = (long)(low % 1000) * 1000000 };

		fflush(stdout);
		nanosleep(&ts, NULL);
	}
	vshim_step_end(true);
	return 0;
}

static int run_repeat(struct plan *p, int line, int end, int n, char **words, int depth)
{
	unsigned times;
	char rest;
	int bad = 0;

	if (n != 2 || sscanf(words[1], "%u%c", &times, &rest) != 1 || times > 1000000)
		return complain(line, "repeat TIMES");
	for (unsigned i = 0; i < times && !bad; i++)
		bad = run_block(p, line + 1, end, depth + 1);
	return bad;
}

static int run_choose(struct plan *p, int line, int end, const int *ors, int num_ors, int depth)
{
	int which = (int)(next_random(p) % (unsigned)(num_ors + 1));
	int from = which == 0 ? line + 1 : ors[which - 1] + 1;
	int to = which == num_ors ? end : ors[which];

	return run_block(p, from, to, depth + 1);
}

static int run_order(struct plan *p, int line, int n, char **words)
{
	int bad;

	begin(p, line, n, words);
	bad = !p->dry && vshim_run_order(n, words);
	vshim_step_end(!bad);
	return bad && complain(line, "this order failed");
}

static int run_line(struct plan *p, int *line, int depth)
{
	char copy[512], *words[MAX_WORDS];
	int n = words_of(p, *line, copy, sizeof(copy), words), ors[64], num_ors, at = *line, end;

	if (n == 0)
		return 0;
	if (++p->steps > MAX_STEPS)
		return complain(at, "too many steps");
	if (opens(p, at)) {
		end = find_end(p, at, ors, 64, &num_ors);
		if (end < 0 || depth >= MAX_DEPTH)
			return complain(at, end < 0 ? "no end for this" : "too deep");
		*line = end;
		return starts(p, at, "repeat") ? run_repeat(p, at, end, n, words, depth) : run_choose(p, at, end, ors, num_ors, depth);
	}
	if (!strcmp(words[0], "seed")) {
		char *rest = words[0];

		if (n == 2)
			p->random = strtoull(words[1], &rest, 0);
		return n == 2 && words[1][0] >= '0' && words[1][0] <= '9' && !*rest ? 0 : complain(at, "seed NUMBER");
	}
	if (!strcmp(words[0], "wait"))
		return run_wait(p, at, n, words);
	return run_order(p, at, n, words);
}

static int run_block(struct plan *p, int from, int to, int depth)
{
	int bad = 0;

	for (int i = from; i < to && !bad; i++)
		bad = run_line(p, &i, depth);
	return bad;
}

static int read_plan(struct plan *p, const char *path)
{
	FILE *f = fopen(path, "re");
	const char *bad = NULL;
	char line[512];

	if (!f)
		return vshim_refuse(errno, "cannot read %s: %s", path, strerror(errno));
	while (fgets(line, sizeof(line), f)) {
		bad = p->num_lines == MAX_LINES ? "too many lines" : !strchr(line, '\n') && !feof(f) ? "too long a line" : NULL;
		if (bad)
			break;
		for (const char *c = line; *c; c++)
			p->random = p->random * 31 + (unsigned char)*c;
		p->line[p->num_lines++] = strdup(line);
	}
	if (ferror(f)) {
		vshim_refuse(errno, "cannot read %s: %s", path, strerror(errno));
		fclose(f);
		return 1;
	}
	fclose(f);
	return bad ? complain(p->num_lines, bad) : 0;
}

static int run_plan(struct plan *p, const char *path)
{
	int bad = read_plan(p, path), err = 0;
	bool attached = false;

	if (!bad && !p->dry) {
		err = vshim_attach();
		attached = !err;
		if (err == ENOENT)
			vshim_refuse(err, "nobody uses a software HCA: there is no fabric for a plan");
	}
	p->began = vs_now();
	if (!bad && !err)
		bad = run_block(p, 0, p->num_lines, 0);
	if (attached)
		vs_detach();
	for (int i = 0; i < p->num_lines; i++)
		free(p->line[i]);
	return bad || err;
}

int vshim_plan(int argc, char **argv)
{
	bool json = vshim_answer_open(&argc, argv);
	struct plan p = { .dry = argc == 3 && !strcmp(argv[2], "--dry-run"), .json = json };

	if (argc < 2 || (argc == 3 && !p.dry) || argc > 3) {
		vshim_refuse(EINVAL, "usage: vshim plan FILE [--dry-run] [--json]");
		return vshim_answer_close(2);
	}
	cJSON_AddStringToObject(vshim_answer(), "plan", argv[1]);
	cJSON_AddBoolToObject(vshim_answer(), "dry_run", p.dry);
	return vshim_answer_close(run_plan(&p, argv[1]));
}
