/* A queue of notifications with a file descriptor that programs poll: asynchronous events of a context, completion events of a
 * channel. One token in a pipe for each queued notification; what it is about lies in memory, so that destroying an object can take
 * back its unread ones, as the kernel does. */
#ifndef VS_NOTIFIER_H
#define VS_NOTIFIER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* How many notifications about an object were read: ibv_destroy_* waits until as many were acknowledged. */
struct vs_reported {
	uint32_t count; /* under the notifier's lock */
};

struct vs_note {
	struct vs_note *next;
	void *element; /* of the event; also the key for forgetting */
	struct vs_reported *reported; /* NULL: nobody waits for acknowledgements */
	uint32_t type;
	uint32_t port;
};

struct vs_notifier {
	int read_fd; /* the program may make it non-blocking */
	int write_fd;
	int drop_fd; /* reads the same pipe and never blocks, whatever the program makes of read_fd */
	pthread_mutex_t lock;
	struct vs_note *head;
	struct vs_note **tail;
	bool ended;
	bool end_token; /* lies in the pipe, behind those of the queue */
};

/* 0 or an errno value (EMFILE, ENFILE, ENOMEM; ENOENT without /proc). */
int vs_notifier_open(struct vs_notifier *n);
void vs_notifier_close(struct vs_notifier *n);

/* Queue one. 0, or ENOMEM / EAGAIN (65536 unread) / EIO (after the end) and nothing queued. */
int vs_notifier_post(struct vs_notifier *n, void *element, struct vs_reported *reported, uint32_t type, uint32_t port);

/* Nothing more will come: what is queued can still be taken, then taking fails with EIO. The descriptor stays readable. */
void vs_notifier_end(struct vs_notifier *n);

/* Take the oldest; blocks unless the descriptor is O_NONBLOCK. 0 or an errno value (EAGAIN, EINTR; EIO after the end). */
int vs_notifier_take(struct vs_notifier *n, struct vs_note *out);

/* Take back every unread notification about element; returns how many were read before. */
uint32_t vs_notifier_forget(struct vs_notifier *n, void *element, struct vs_reported *reported);

#endif
