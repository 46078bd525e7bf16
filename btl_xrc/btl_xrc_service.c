/* SPDX-License-Identifier: BSD-3-Clause */
#include "btl_xrc_service.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "btl_xrc_apm.h"
#include "btl_xrc_board.h"
#include "btl_xrc_gone.h"
#include "btl_xrc_tgt.h"
#include "btl_xrc_ud.h"

#define REPAIR_MS    1000 /* how often TGT keepers are looked after */
#define HAND_OVER_MS 300  /* how long a leaving rank waits for others to take its TGTs */
#define LAST_WORD_MS 1000 /* and until its own messages are out */

static struct {
    pthread_t thread;
    int epoll;
    int wake;
    bool running;
    bool stop;
    uint64_t repair_due_ms;
    struct xrc_stack connects;
    struct xrc_stack farewells;
} service = {.epoll = -1, .wake = -1};

uint64_t xrc_service_now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t) t.tv_sec * 1000000u + (uint64_t) t.tv_nsec / 1000u;
}

uint64_t xrc_service_now_ms(void)
{
    return xrc_service_now_us() / 1000u;
}

static void wake(void)
{
    uint64_t one = 1;
    ssize_t rc = write(service.wake, &one, sizeof(one));
    (void) rc; /* full means awake already */
}

void xrc_service_connect(struct xrc_conn *conn)
{
    xrc_stack_push(&service.connects, &conn->link);
    wake();
}

void xrc_service_farewell(struct xrc_farewell *farewell)
{
    if (!service.running) {
        free(farewell);
        return;
    }
    xrc_stack_push(&service.farewells, &farewell->link);
    wake();
}

void xrc_service_message(mca_btl_xrc_module_t *module, const struct xrc_msg *msg)
{
    switch ((enum xrc_msg_type) msg->type) {
    case XRC_MSG_REQUEST: xrc_tgt_request(module, msg); break;
    case XRC_MSG_RESPONSE:
    case XRC_MSG_REJECT: xrc_conn_service_message(module, msg); break;
    case XRC_MSG_DISCONNECT: xrc_tgt_disconnect(module, msg); break;
    case XRC_MSG_KEEP: xrc_tgt_keep(module, msg); break;
    case XRC_MSG_KEPT: xrc_tgt_kept(module, msg); break;
    case XRC_MSG_DROP: xrc_tgt_drop(module, msg); break;
    case XRC_MSG_ARM: xrc_tgt_arm(module, msg); break;
    case XRC_MSG_ARMED: xrc_apm_message(module, msg); break;
    case XRC_MSG_MIGRATE: xrc_apm_told(module, msg); break;
    case XRC_MSG_GONE: xrc_gone_told(module, msg); break;
    case XRC_MSG_TYPES: break;
    }
    xrc_apm_heard(module, msg->addr.lid);
}

static void take_commands(void)
{
    struct xrc_link *link, *next;
    for (link = xrc_stack_take(&service.connects); NULL != link; link = next) {
        next = link->next;
        xrc_conn_service_begin(XRC_CONTAINER(link, struct xrc_conn, link));
    }
    for (link = xrc_stack_take(&service.farewells); NULL != link; link = next) {
        next = link->next;
        xrc_conn_service_farewell(XRC_CONTAINER(link, struct xrc_farewell, link));
    }
}

/* ---- events of an HCA ---- */

/* What an event means for us. QP errors show as failed work requests on the INI side, which alone can act on them. */
enum meaning { MEANS_NOTHING, MEANS_NOTE, MEANS_GROW, MEANS_FATAL, MEANS_MIGRATED, MEANS_DOWN, MEANS_UP };

static enum meaning meaning_of(enum ibv_event_type type)
{
    switch (type) {
    case IBV_EVENT_SRQ_LIMIT_REACHED: return MEANS_GROW;
    case IBV_EVENT_PATH_MIG: return MEANS_MIGRATED;
    case IBV_EVENT_PORT_ERR: return MEANS_DOWN;
    case IBV_EVENT_PORT_ACTIVE: return MEANS_UP;
    case IBV_EVENT_DEVICE_FATAL:
    case IBV_EVENT_CQ_ERR:
    case IBV_EVENT_SRQ_ERR: return MEANS_FATAL;
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_QP_LAST_WQE_REACHED: return MEANS_NOTHING;
    default: return MEANS_NOTE;
    }
}

/* Some libraries leave srq_context of an XRC SRQ empty, so it is looked for. */
static void grow(const struct ibv_srq *srq)
{
    for (unsigned m = 0; m < mca_btl_xrc_component.nmodules; ++m) {
        for (unsigned i = 0; i < mca_btl_xrc_component.recvq.nclasses; ++i) {
            struct xrc_srq *own = &mca_btl_xrc_component.modules[m]->srq[i];
            if (own->srq == srq) {
                xrc_srq_due(own, XRC_SRQ_GROW);
            }
        }
    }
}

static uint64_t bit_of(uint8_t port)
{
    return 1ull << port % 64u;
}

/* The other ranks of the domain have the same ports: they are to write to us at one that works, if there is any. */
static void listen_elsewhere(struct xrc_device *device)
{
    for (unsigned i = 0; i < mca_btl_xrc_component.nmodules; ++i) {
        mca_btl_xrc_module_t *module = mca_btl_xrc_component.modules[i];
        if (module->device == device && 0 == (device->down & bit_of(module->addr.port))) {
            xrc_module_listen(module);
            return;
        }
    }
}

static void port_changed(mca_btl_xrc_module_t *home, uint8_t port, enum ibv_event_type what)
{
    bool up = IBV_EVENT_PORT_ACTIVE == what;
    xrc_count(&mca_btl_xrc_component.counters.port_errors, !up);
    XRC_VERBOSE(5, "%s port %u: %s", home->device->name, port, ibv_event_type_str(what));
    home->device->down = up ? home->device->down & ~bit_of(port) : home->device->down | bit_of(port);
    listen_elsewhere(home->device);
    xrc_apm_port(home->device, port, up);
    xrc_tgt_port(home, port, up);
}

static void act_on(mca_btl_xrc_module_t *home, const struct ibv_async_event *event)
{
    struct xrc_device *device = home->device;
    switch (meaning_of(event->event_type)) {
    case MEANS_GROW:
        xrc_count(&mca_btl_xrc_component.counters.srq_limits, 1);
        grow(event->element.srq);
        break;
    case MEANS_FATAL:
        XRC_VERBOSE(1, "%s: %s", device->name, ibv_event_type_str(event->event_type));
        __atomic_store_n(&device->fatal, true, __ATOMIC_RELEASE);
        break;
    case MEANS_MIGRATED:
        if (!xrc_apm_migrated(event->element.qp)) {
            XRC_VERBOSE(5, "%s: TGT 0x%06x has moved to its alternate path", device->name, event->element.qp->qp_num);
        }
        break;
    case MEANS_DOWN:
    case MEANS_UP: port_changed(home, (uint8_t) event->element.port_num, event->event_type); break;
    case MEANS_NOTE: XRC_VERBOSE(5, "%s: %s", device->name, ibv_event_type_str(event->event_type)); break;
    case MEANS_NOTHING: break;
    }
}

static void take_events(mca_btl_xrc_module_t *home)
{
    struct ibv_async_event event;
    while (0 == ibv_get_async_event(home->device->context, &event)) {
        act_on(home, &event);
        ibv_ack_async_event(&event);
    }
}

/* ---- the loop ---- */

/* What an fd stands for: module index and whether it is the HCA's event fd. */
#define TOKEN_WAKE     UINT32_MAX
#define TOKEN_EVENTS   0x10000u
#define MODULE_OF(tok) (mca_btl_xrc_component.modules[(tok) &0xffffu])

static void handle(uint32_t token)
{
    if (TOKEN_WAKE == token) {
        uint64_t count;
        ssize_t rc = read(service.wake, &count, sizeof(count));
        (void) rc;
    } else if (token & TOKEN_EVENTS) {
        take_events(MODULE_OF(token));
    } else {
        xrc_ud_poll(MODULE_OF(token));
    }
}

/* Each device once, by its first module. */
static bool is_home(unsigned i)
{
    for (unsigned k = 0; k < i; ++k) {
        if (mca_btl_xrc_component.modules[k]->device == mca_btl_xrc_component.modules[i]->device) {
            return false;
        }
    }
    return true;
}

/* True when any home module answers true. */
static bool each_home(bool (*action)(mca_btl_xrc_module_t *home))
{
    bool any = false;
    for (unsigned i = 0; i < mca_btl_xrc_component.nmodules; ++i) {
        if (is_home(i)) {
            any = action(mca_btl_xrc_component.modules[i]) || any;
        }
    }
    return any;
}

static bool repair(mca_btl_xrc_module_t *home)
{
    xrc_tgt_repair(home);
    return NULL != home->device->tgts;
}

static bool release(mca_btl_xrc_module_t *home)
{
    return xrc_tgt_release_all(home, false);
}

static bool release_at_once(mca_btl_xrc_module_t *home)
{
    return xrc_tgt_release_all(home, true);
}

/* Messages that are not out yet go with their queue. */
static bool sends_left(void)
{
    bool any = false;
    for (unsigned i = 0; i < mca_btl_xrc_component.nmodules; ++i) {
        any = any || xrc_ud_is_sending(mca_btl_xrc_component.modules[i]->ud);
    }
    return any;
}

static bool set_leaving(mca_btl_xrc_module_t *home)
{
    home->device->leaving = true;
    xrc_board_set_leaving(home->device->board);
    return false;
}

static bool tell(mca_btl_xrc_module_t *home)
{
    xrc_tgt_tell(home);
    return false;
}

static int sooner(int a, int b)
{
    return a < 0 || (b >= 0 && b < a) ? b : a;
}

/* Do what is due; milliseconds until the next, -1 for never. */
static int tick(void)
{
    uint64_t now = xrc_service_now_ms();
    each_home(tell);
    int wait = sooner(xrc_conn_service_tick(now), xrc_apm_tick(now));
    if (now >= service.repair_due_ms) {
        service.repair_due_ms = each_home(repair) ? now + REPAIR_MS : now;
    }
    if (service.repair_due_ms > now) {
        wait = sooner(wait, (int) (service.repair_due_ms - now));
    }
    return wait;
}

static void sleep_and_handle(int wait_ms)
{
    struct epoll_event event[16];
    int n = epoll_wait(service.epoll, event, 16, wait_ms);
    for (int i = 0; i < n; ++i) {
        handle(event[i].data.u32);
    }
}

static void leave(void)
{
    uint64_t until = xrc_service_now_ms() + HAND_OVER_MS;
    xrc_conn_service_stop();
    each_home(set_leaving);
    while (each_home(xrc_tgt_hand_over) && xrc_service_now_ms() < until) {
        sleep_and_handle(10);
    }
    until = xrc_service_now_ms() + LAST_WORD_MS;
    while ((each_home(release) || xrc_conn_service_say_farewells(false) || sends_left())
           && xrc_service_now_ms() < until) {
        sleep_and_handle(10);
    }
    each_home(release_at_once);
    xrc_conn_service_say_farewells(true);
}

static void *run(void *arg)
{
    while (!__atomic_load_n(&service.stop, __ATOMIC_ACQUIRE)) {
        take_commands();
        xrc_conn_service_say_farewells(false);
        sleep_and_handle(tick());
    }
    take_commands();
    leave();
    return arg;
}

static int watch(int fd, uint32_t token)
{
    struct epoll_event event = {.events = EPOLLIN, .data = {.u32 = token}};
    return epoll_ctl(service.epoll, EPOLL_CTL_ADD, fd, &event);
}

static int watch_all(void)
{
    int rc = watch(service.wake, TOKEN_WAKE);
    for (unsigned i = 0; i < mca_btl_xrc_component.nmodules && 0 == rc; ++i) {
        mca_btl_xrc_module_t *module = mca_btl_xrc_component.modules[i];
        int events = module->device->context->async_fd;
        rc = watch(xrc_ud_fd(module->ud), i);
        if (0 == rc && is_home(i)) {
            rc = fcntl(events, F_SETFL, fcntl(events, F_GETFL) | O_NONBLOCK) < 0 ? -1 : watch(events, i | TOKEN_EVENTS);
        }
    }
    return rc;
}

static void close_fds(void)
{
    close(service.epoll);
    close(service.wake);
    service.epoll = service.wake = -1;
}

int xrc_service_start(void)
{
    sigset_t all, old;
    service.epoll = epoll_create1(EPOLL_CLOEXEC);
    service.wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    service.stop = false;
    if (service.epoll < 0 || service.wake < 0 || 0 != watch_all()) {
        int err = errno;
        close_fds();
        return err;
    }
    /* Signals are the application's. */
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &old);
    int rc = pthread_create(&service.thread, NULL, run, NULL);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (0 != rc) {
        close_fds();
        return rc;
    }
    service.running = true;
    return 0;
}

void xrc_service_stop(void)
{
    if (!service.running) {
        return;
    }
    __atomic_store_n(&service.stop, true, __ATOMIC_RELEASE);
    wake();
    pthread_join(service.thread, NULL);
    service.running = false;
    xrc_apm_stop();
    close_fds();
}
