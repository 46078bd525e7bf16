#include "core/notifier.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int vs_notifier_open(struct vs_notifier *n)
{
	char name[32];
	int fds[2], err;

	if (pipe2(fds, O_CLOEXEC))
		return errno;
	snprintf(name, sizeof(name), "/proc/thread-self/fd/%d", fds[0]);
	n->drop_fd = open(name, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	if (n->drop_fd < 0) {
		err = errno;
		close(fds[0]);
		close(fds[1]);
		return err;
	}
	fcntl(fds[1], F_SETFL, O_NONBLOCK);
	n->read_fd = fds[0];
	n->write_fd = fds[1];
	n->head = NULL;
	n->tail = &n->head;
	n->ended = n->end_token = false;
	pthread_mutex_init(&n->lock, NULL);
	return 0;
}

void vs_notifier_close(struct vs_notifier *n)
{
	while (n->head) {
		struct vs_note *note = n->head;

		n->head = note->next;
		free(note);
	}
	close(n->read_fd);
	close(n->write_fd);
	close(n->drop_fd);
	pthread_mutex_destroy(&n->lock);
}

int vs_notifier_post(struct vs_notifier *n, void *element, struct vs_reported *reported, uint32_t type, uint32_t port)
{
	struct vs_note *note = malloc(sizeof(*note));
	int err = 0;

	if (!note)
		return ENOMEM;
	*note = (struct vs_note){ .element = element, .reported = reported, .type = type, .port = port };
	pthread_mutex_lock(&n->lock);
	if (n->ended) {
		err = EIO;
		free(note);
	} else if (write(n->write_fd, "", 1) == 1) {
		*n->tail = note;
		n->tail = &note->next;
	} else {
		err = errno;
		free(note);
	}
	pthread_mutex_unlock(&n->lock);
	return err;
}

static struct vs_note *pop(struct vs_notifier *n)
{
	struct vs_note *note = n->head;

	if (note) {
		n->head = note->next;
		if (!n->head)
			n->tail = &n->head;
		if (note->reported)
			note->reported->count++;
	}
	return note;
}

/* The end has a token of its own, which whoever finds it leaves for the next. A full pipe takes it later. */
static void leave_token(struct vs_notifier *n)
{
	n->end_token = write(n->write_fd, "", 1) == 1;
}

void vs_notifier_end(struct vs_notifier *n)
{
	pthread_mutex_lock(&n->lock);
	if (!n->ended)
		leave_token(n);
	n->ended = true;
	pthread_mutex_unlock(&n->lock);
}

int vs_notifier_take(struct vs_notifier *n, struct vs_note *out)
{
	struct vs_note *note;
	bool ended;
	char token;

	for (;;) {
		ssize_t got = read(n->read_fd, &token, 1);

		if (got != 1)
			return got < 0 ? errno : EBADF;
		pthread_mutex_lock(&n->lock);
		note = pop(n);
		ended = !note && n->ended;
		if (ended || (n->ended && !n->end_token))
			leave_token(n);
		pthread_mutex_unlock(&n->lock);
		if (note)
			break; /* else its notification was taken back in between */
		if (ended)
			return EIO;
	}
	*out = *note;
	free(note);
	return 0;
}

/* Remove one token without ever blocking: a reader who has taken it may be waiting for the lock that is held here. */
static void drop_token(struct vs_notifier *n)
{
	char token;

	(void)!read(n->drop_fd, &token, 1);
}

uint32_t vs_notifier_forget(struct vs_notifier *n, void *element, struct vs_reported *reported)
{
	struct vs_note **at, *note;
	uint32_t count;

	pthread_mutex_lock(&n->lock);
	for (at = &n->head; (note = *at) != NULL;) {
		if (note->element != element) {
			at = &note->next;
			continue;
		}
		*at = note->next;
		free(note);
		drop_token(n);
	}
	n->tail = at;
	count = reported->count;
	pthread_mutex_unlock(&n->lock);
	return count;
}
