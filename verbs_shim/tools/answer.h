/* What an order or a plan answers. To a person: nothing, or what is wrong, on standard error. With --json: one object on standard output.
 * It has "order" or "plan", the words; "ok"; "ports", "devices", "hosts", "processes": what it was about; and if it was refused "errno" and "message".
 * A plan's has "steps", an array of such objects, one for each line that was carried out. */
#ifndef VSHIM_ANSWER_H
#define VSHIM_ANSWER_H

#include <cjson/cJSON.h>
#include <stdbool.h>

/* Take --json off the end of a command line. true: it was there, and there is an object to fill. */
bool vshim_answer_open(int *argc, char **argv);

/* The object to fill, or NULL, which cJSON_Add...ToObject takes for nowhere. In a step it is the step's. */
cJSON *vshim_answer(void);

/* The words under this name, as one string. */
void vshim_answer_words(const char *name, int argc, char **argv);

/* One more name in the array of this kind, unless it is there. */
void vshim_answer_about(const char *kind, const char *name);
void vshim_answer_process(int pid);

/* What is said between these two is about one line of a plan. */
void vshim_step_begin(int line, int argc, char **argv);
void vshim_step_end(bool ok);

/* Something is wrong: say so. The object keeps what was said first, as the cause. Returns 1. */
int vshim_refuse(int err, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Print the object, if there is one, and let go of it. Returns status, which is 0 if all went well. */
int vshim_answer_close(int status);

/* To standard output, a question mark for each byte that is not UTF-8's. */
void vshim_print_json(const cJSON *tree);

/* Let go of it without printing: there is something else to print. */
void vshim_answer_drop(void);

#endif
