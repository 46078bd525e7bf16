/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The software HCA's lock (verbs_shim/core/lock.c): each of some threads takes it some times, and leaves it. What a thread
 * without the mutex writes into `held` lies in its store buffer for a while, as on real processors; a system call
 * empties it, and the heavy fence that of all threads. What else is written is so under the mutex, and seen at once.
 */
#ifndef THREADS
#define THREADS 2
#endif
#ifndef TAKES
#define TAKES 4
#endif
#define STREAK 1 /* taken by its mutex so often again, it has a bias */

byte bias;      /* thread + 1, 0 for nobody */
byte writer;    /* of `held`, likewise */
bit held;
bit mutex;
bool sleeping;  /* on `held`; who sleeps has the mutex */
byte inside;
byte last, streak;

chan buffer[THREADS] = [6] of { bit };

byte ended;

bool alone, all_get_in; /* rules */

/* An assertion with a name: pan prints it when it is violated. Each name is a variable that stays 0. */
#define RULE(name, condition) assert((condition) || name)

inline empty_buffer(t)
{
    do
    :: nempty(buffer[t]) -> buffer[t]?held
    :: empty(buffer[t]) -> break
    od
}

inline heavy_fence()
{
#ifdef MUTATE_NO_FENCE
    skip
#else
    d_step {
        n = 0;
        do
        :: n < THREADS -> empty_buffer(n); n++
        :: else -> break
        od;
        n = 0
    }
#endif
}

/* What this thread reads in `held`: its own latest, else what all see. Only one thread has stores of its own on the way. */
inline read_held(t, v)
{
    d_step {
        v = held;
        n = len(buffer[t]);
        do
        :: n > 0 -> buffer[t]?v; buffer[t]!v; n--
        :: else -> break
        od
    }
}

inline wake(t)
{
    atomic { empty_buffer(t); sleeping = false }
}

inline enter()
{
    atomic { inside++; RULE(alone, inside == 1) }
}

/* Always the same thread? Then it has the bias from now on, and is inside without the mutex. Only one may ever be between
 * its look at the bias and its store; it is not where it comes by the mutex, and then another may be the one. */
inline lean(t)
{
    d_step {
#ifdef MUTATE_ANY_WRITER
        writer = 0;
#endif
        if :: writer == t + 1 -> writer = 0 :: else fi;
        if
        :: last != t + 1 -> last = t + 1; streak = 0
        :: last == t + 1 && streak < STREAK -> streak++
        :: else
        fi;
        if
        :: streak >= STREAK && writer == 0 ->
            writer = t + 1;
            streak = 0;
            fast = true;
            buffer[t]!1;
            bias = t + 1
        :: else
        fi
    }
}

/* Stores get out of a buffer in their order, at some time. */
proctype Drain(byte t)
{
    bit v;
end:
    do
    :: atomic { buffer[t]?v -> held = v; v = 0 }
    od
}

proctype Thread(byte t)
{
    byte takes, n;
    bit v;
    bool fast, got;
    do
    :: takes < TAKES ->
        takes++;
        fast = false;
        if
        :: bias == t + 1 ->
            read_held(t, v);
            if
            :: v == 0 ->
#ifdef MUTATE_LOOK_FIRST
                fast = (bias == t + 1);
                if :: fast -> buffer[t]!1 :: else fi
#else
                buffer[t]!1;
                fast = (bias == t + 1);
                if
                :: !fast ->
                    buffer[t]!0;
#ifndef MUTATE_BACK_OUT_SILENTLY
                    wake(t)
#endif
                :: else
                fi
#endif
            :: else
            fi
        :: else
        fi;
        v = 0;
        got = true;
        if
        :: fast -> skip
        :: else ->
            atomic { mutex == 0 -> mutex = 1 }
            if
            :: bias != 0 ->
#ifdef MUTATE_FENCE_FIRST
                heavy_fence();
                bias = 0
#else
                bias = 0;
                heavy_fence()
#endif
            :: else
            fi;
            do
            :: atomic { held == 1 -> sleeping = true }
                !sleeping
            :: held == 1 -> got = false; break /* it only tried */
            :: held == 0 -> break
            od;
            if
            :: got -> lean(t)
            :: else
            fi;
            if
            :: !got || fast -> mutex = 0
            :: else
            fi
        fi;
        if
        :: got -> enter(); inside--
        :: else
        fi;
        if
        :: got && fast ->
            buffer[t]!0;
            if
            :: bias == 0 ->
#ifndef MUTATE_NO_WAKE
                wake(t)
#endif
            :: else
            fi
        :: got && !fast -> mutex = 0
        :: else
        fi;
        got = false
    :: else -> break
    od;
    ended++
}

init
{
    byte t;
    atomic {
        do
        :: t < THREADS -> run Drain(t); run Thread(t); t++
        :: else -> break
        od
    }
    timeout ->
    RULE(all_get_in, ended == THREADS)
}
