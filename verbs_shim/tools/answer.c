#include "tools/answer.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static cJSON *whole, *step;

bool vshim_answer_open(int *argc, char **argv)
{
	if (*argc < 2 || strcmp(argv[*argc - 1], "--json"))
		return false;
	argv[--*argc] = NULL;
	whole = cJSON_CreateObject();
	return true;
}

cJSON *vshim_answer(void)
{
	return step ? step : whole;
}

static void add_words(cJSON *to, const char *name, int argc, char **argv)
{
	char text[1024] = "";
	size_t used = 0;

	for (int i = 0; i < argc && used < sizeof(text); i++)
		used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s", i ? " " : "", argv[i]);
	cJSON_AddStringToObject(to, name, text);
}

void vshim_answer_words(const char *name, int argc, char **argv)
{
	add_words(vshim_answer(), name, argc, argv);
}

/* The array of this name, made if it is not there; NULL where nothing is filled. */
static cJSON *array(cJSON *answer, const char *name)
{
	cJSON *found = cJSON_GetObjectItem(answer, name);

	return found || !answer ? found : cJSON_AddArrayToObject(answer, name);
}

void vshim_answer_about(const char *kind, const char *name)
{
	cJSON *names = array(vshim_answer(), kind);
	const cJSON *known;

	if (!names)
		return;
	cJSON_ArrayForEach (known, names)
		if (!strcmp(known->valuestring, name))
			return;
	cJSON_AddItemToArray(names, cJSON_CreateString(name));
}

void vshim_answer_process(int pid)
{
	cJSON *pids = array(vshim_answer(), "processes");

	if (pids)
		cJSON_AddItemToArray(pids, cJSON_CreateNumber(pid));
}

void vshim_step_begin(int line, int argc, char **argv)
{
	cJSON *steps = array(whole, "steps");

	if (!steps)
		return;
	step = cJSON_CreateObject();
	cJSON_AddItemToArray(steps, step);
	cJSON_AddNumberToObject(step, "line", line);
	add_words(step, "order", argc, argv);
}

void vshim_step_end(bool ok)
{
	cJSON_AddBoolToObject(step, "ok", ok);
	step = NULL;
}

int vshim_refuse(int err, const char *format, ...)
{
	const char *name = strerrorname_np(err);
	char text[512];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (!whole) {
		fprintf(stderr, "vshim: %s\n", text);
	} else if (!cJSON_HasObjectItem(vshim_answer(), "message")) {
		cJSON_AddStringToObject(vshim_answer(), "errno", name ? name : "EINVAL");
		cJSON_AddStringToObject(vshim_answer(), "message", text);
	}
	return 1;
}

void vshim_answer_drop(void)
{
	cJSON_Delete(whole);
	whole = NULL;
}

/* Bytes of the UTF-8 sequence at s; 0: it is none (RFC 3629). */
static unsigned utf8_length(const unsigned char *s)
{
	unsigned n = s[0] < 0x80 ? 1 : s[0] >= 0xc2 && s[0] <= 0xdf ? 2 : (s[0] & 0xf0) == 0xe0 ? 3 : s[0] >= 0xf0 && s[0] <= 0xf4 ? 4 : 0;

	for (unsigned i = 1; i < n; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) || (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f))
		return 0;
	return n;
}

/* Names come as bytes: of processes, cut by the kernel wherever 15 end; of hosts and files, as the user likes. JSON is UTF-8. */
void vshim_print_json(const cJSON *tree)
{
	char *json = cJSON_Print(tree);

	if (!json)
		return;
	for (char *at = json; *at;) {
		unsigned n = utf8_length((unsigned char *)at);

		if (n == 0)
			*at = '?';
		at += n ? n : 1;
	}
	puts(json);
	free(json);
}

int vshim_answer_close(int status)
{
	if (!whole)
		return status;
	cJSON_AddBoolToObject(whole, "ok", status == 0);
	vshim_print_json(whole);
	vshim_answer_drop();
	return status;
}
