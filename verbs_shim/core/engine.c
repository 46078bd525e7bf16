#include "core/engine.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "core/cq.h"
#include "core/event.h"

struct vs_engine_ops vs_engine_ops;

static pthread_t thread;
static bool running;
static uint32_t stopping;

static void sleep_until(uint32_t seen, uint64_t deadline)
{
	struct timespec ts, *timeout = NULL;
	uint64_t now = vs_now();

	if (deadline) {
		if (deadline <= now)
			return;
		ts.tv_sec = (time_t)((deadline - now) / 1000000000u);
		ts.tv_nsec = (long)((deadline - now) % 1000000000u);
		timeout = &ts;
	}
	syscall(SYS_futex, &vs_me->wake, FUTEX_WAIT, seen, timeout, NULL, 0);
}

static __thread bool is_engine __attribute__((tls_model("initial-exec")));

bool vs_engine_is_me(void)
{
	return is_engine;
}

static void *engine(void *arg)
{
	(void)arg;
	is_engine = true;
	vs_store(&vs_me->thread, (int32_t)syscall(SYS_gettid));
	for (;;) {
		/* Before everything that a kick can be about, vs_engine_stop's included: one that comes later ends the sleep. */
		uint32_t seen = vs_load(&vs_me->wake);
		uint64_t deadline;

		if (vs_load(&stopping))
			return NULL;
		vs_event_drain();
		vs_event_tell_lost();
		vs_cq_notify_fired();
		vs_cq_right_resizing();
		vs_engine_ops.serve_copies();
		deadline = vs_engine_ops.run_timers(vs_now());
		sleep_until(seen, deadline);
	}
}

int vs_engine_start(void)
{
	sigset_t all, old;
	int err;

	sigfillset(&all);
	vs_store(&stopping, 0);
	vs_store(&vs_cq_stall_seen, 0); /* by an engine before this one */
	vs_event_drain(); /* what was raised before anybody could hear it */
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&thread, NULL, engine, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	running = err == 0;
	return err;
}

void vs_engine_stop(void)
{
	if (!running)
		return;
	vs_store(&stopping, 1);
	vs_engine_kick();
	pthread_join(thread, NULL);
	running = false;
}

void vs_engine_forget(void)
{
	running = false;
	if (vs_engine_ops.forget)
		vs_engine_ops.forget();
}

void vs_engine_kick(void)
{
	vs_process_wake(vs_me);
}
