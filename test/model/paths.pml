/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Path migration: an INI and its TGT with the HCAs under them, the initiator's service thread, and two ranks of the
 * target's domain, either of which can load the TGT's alternate. Paths fail and come back, by a port of ours or of the
 * target, which then tells us; questions, answers and notices get lost, doubled, late and overtaken, the events of a
 * migration come late, a rank dies.
 */

#ifndef PATHS
#define PATHS 2
#endif
#ifndef FAILS       /* times that some path goes down; it comes back */
#define FAILS 2
#endif
#ifndef LOSSES
#define LOSSES 1
#endif
#ifndef DUPS
#define DUPS 1
#endif
#ifndef EARLY       /* asks again although the first question is on its way */
#define EARLY 1
#endif
#ifndef CRASHES
#define CRASHES 1
#endif
#ifndef REFUSALS    /* the HCA does not take an alternate, on either side */
#define REFUSALS 1
#endif
#define RANKS 2

mtype = {
    S_OFF, S_ASKING, S_LOADED, S_ARMED, S_CLOSED,
    E_START, E_GRANTED, E_REFUSED, E_TIMER, E_SEEN, E_BROKEN, E_MIGRATED, E_PORT_DOWN, E_PORT_UP, E_CLOSE,
    A_NOTHING, A_ASK, A_REPEAT, A_OTHER, A_LOAD, A_LOOK, A_NOTE, A_MIGRATE,
    M_MIGRATED, M_REARM, M_ARMED,
    F_SPENT, F_WAITING, F_HAS_IT, F_BEHIND, F_IN_USE, F_ELSEWISE,
    T_LOAD, T_AGREE, T_FOLLOW, T_REFUSE
}

/* Rows taken, by line of their table; no part of a state. */
hidden byte taken_apm[64];
hidden byte taken_apm_tgt[64];

c_decl {
    static void tell_taken(void)
    {
        extern unsigned char taken_apm[], taken_apm_tgt[];
        int row;
        for (row = 0; row < 64; ++row) {
            if (taken_apm[row]) {
                printf("taken apm_table.pml:%d\n", row);
            }
            if (taken_apm_tgt[row]) {
                printf("taken apm_tgt_table.pml:%d\n", row);
            }
        }
    }
}

#define APM(from, event, to, action) \
    :: (state == S_##from && happens == E_##event) -> \
        taken_apm[__LINE__] = 1; state = S_##to; todo = A_##action
#define FOUND(what, action) \
    :: found == F_##what -> \
        taken_apm_tgt[__LINE__] = 1; reply = T_##action

#define RULE(name, condition) assert((condition) || name)

bool followed, protected, legal, armed_again, meant; /* rules */

/* The HCAs. End 0 is the INI, end 1 the TGT. */
mtype mig[2] = M_MIGRATED;
byte primary[2];
byte alternate[2];
byte down[PATHS];           /* a port at this end of it is down: OURS or THEIRS; 0: it is up */
bool broken;                /* retries were used up and there was no alternate */
bool event;                 /* PATH_MIG of the INI, not delivered yet */
bool port_event;            /* our port of the path in use has failed, not delivered yet */
byte their_event;           /* path + 1: the target's port of it has failed, not delivered yet */
byte moves;                 /* of the INI; only to be looked at by rules */

/* The initiator's service thread. */
mtype state = S_OFF;
mtype happens = E_START;
mtype todo = A_NOTHING;
byte seen_primary;
byte spare = 1;
byte seq;
byte asked;                 /* rank */
bool nudged;                /* something will be sent: the stream does not stand still */

/* The target's domain. */
bool dead[RANKS];
byte board_seq;

chan question = [3] of { byte, byte, byte };  /* rank, seq, path */
chan answer = [2] of { byte, bool };          /* seq, granted */
chan notice = [2] of { byte, byte };          /* seq; and for a rule, moves of the INI when it was sent */

byte fails, losses, dups, early, crashes, refusals;

#define OURS   1
#define THEIRS 2
#define UP(path) (down[path] == 0)

#define ACCEPTS(path, migreq) (primary[1] == (path) || mig[1] == M_ARMED && alternate[1] == (path) && (migreq))

/* A packet of the INI's finds its TGT; and would, too, if the HCA migrated the INI now. */
#define IN_STEP (broken || ACCEPTS(primary[0], mig[0] == M_MIGRATED))
#define SHELTER (mig[0] != M_ARMED || ACCEPTS(alternate[0], true))

inline move(end)
{
    primary[end] = alternate[end];
    mig[end] = M_MIGRATED
}

inline move_ini()
{
    move(0);
    moves++;
    event = true;
    port_event = false
}

inline load(end, path)
{
    RULE(legal, mig[end] != M_ARMED && (path) != primary[end]);
    alternate[end] = path;
    mig[end] = M_REARM
}

/* The HCAs: only what changes something is a step. A request and its answer are one, when both get through. */
proctype traffic()
{
end:
    do
    :: d_step {
        (!broken && UP(primary[0]) && ACCEPTS(primary[0], mig[0] == M_MIGRATED)
         && (primary[1] != primary[0] || mig[0] != M_MIGRATED && mig[1] == M_REARM || mig[0] == M_REARM && mig[1] != M_MIGRATED)) ->
        if
        :: primary[1] != primary[0] -> move(1)
        :: else ->
            if :: mig[1] == M_REARM && mig[0] != M_MIGRATED -> mig[1] = M_ARMED :: else fi;
            if :: mig[0] == M_REARM && mig[1] != M_MIGRATED -> mig[0] = M_ARMED :: else fi
        fi
       }
    /* The request arrives and its answer does not: the TGT may be armed before the INI. */
    :: d_step { !broken && UP(primary[0]) && primary[1] == primary[0] && mig[0] != M_MIGRATED && mig[1] == M_REARM -> mig[1] = M_ARMED }
    /* No answer until the retries are used up. */
    :: d_step {
        !broken && (!UP(primary[0]) || !ACCEPTS(primary[0], mig[0] == M_MIGRATED)) ->
        RULE(followed, !UP(primary[0]));
        if
        :: mig[0] == M_ARMED -> move_ini()
        :: else -> broken = true
        fi
       }
    od
}

inline fail(path)
{
    fails++;
    if
    :: down[path] = OURS; port_event = (primary[0] == path)
    :: down[path] = THEIRS; their_event = path + 1
    fi
}

proctype weather()
{
end:
    do
    :: atomic { fails < FAILS && UP(0) -> fail(0) }
    :: atomic { fails < FAILS && UP(1) -> fail(1) }
    :: d_step { !UP(0) -> down[0] = 0 }
    :: d_step { !UP(1) -> down[1] = 0 }
#if PATHS > 2
    :: atomic { fails < FAILS && UP(2) -> fail(2) }
    :: d_step { !UP(2) -> down[2] = 0 }
#endif
    :: d_step { crashes < CRASHES && !dead[0] -> dead[0] = true; crashes++ }
    od
}

/* Over the path that is asked for: nothing comes through while that is down. */
inline ask()
{
    if
    :: UP(spare) && !dead[asked] && len(question) < 3 ->
        if
        :: losses < LOSSES -> losses++
        :: dups < DUPS && len(question) < 2 -> dups++; question!asked, seq, spare; question!asked, seq, spare
        :: question!asked, seq, spare
        fi
    :: else
    fi
}

inline other()
{
    asked = (asked + 1) % RANKS;
    spare = (spare + 1) % PATHS;
    if :: spare == seen_primary -> spare = (spare + 1) % PATHS :: else fi;
#ifndef MUTATE_SAME_SEQ
    seq++
#endif
}

inline step(e)
{
    d_step {
        happens = e;
        if
#ifdef MUTATE_DEAF
        :: state == S_LOADED && happens == E_MIGRATED -> todo = A_NOTHING
#endif
#include "apm_table.pml"
        fi
    }
}

inline act()
{
    if
#ifdef MUTATE_LOAD_FIRST
    :: todo == A_ASK && mig[0] == M_MIGRATED && spare != primary[0] -> seq++; load(0, spare); ask()
#else
    :: todo == A_ASK -> seq++; ask()
#endif
    :: todo == A_REPEAT ->
        if
        :: UP(spare) && !dead[asked]
        :: !UP(spare) || dead[asked] -> other()
        fi;
        ask()
    :: todo == A_OTHER -> other()
    :: todo == A_LOAD ->
        if
        :: refusals < REFUSALS -> refusals++; step(E_BROKEN); other()
        :: mig[0] != M_ARMED && spare != primary[0] -> load(0, spare)
        :: mig[0] == M_ARMED || spare == primary[0] -> step(E_BROKEN); other() /* EINVAL */
        fi
    :: todo == A_LOOK ->
        if
        :: mig[0] == M_ARMED -> step(E_SEEN)
        :: else
        fi
    :: todo == A_MIGRATE ->
        if
        :: mig[0] == M_ARMED && down[alternate[0]] != OURS -> move_ini()
        :: else
        fi
    :: todo == A_NOTHING || todo == A_NOTE
    fi;
    todo = A_NOTHING;
    happens = E_START
}

/* A question that would be lost at once is none: with the path down or the rank dead, the timer waits or another is asked. */
#define COULD_ASK (UP(spare) && !dead[asked] || PATHS > 2 || dead[asked])

proctype service()
{
    byte s, told;
    bool granted;
    atomic { step(E_START); act() }
end:
    do
    :: atomic { event ->
        event = false;
        s = seen_primary;
        seen_primary = primary[0];
        if :: spare == seen_primary -> spare = s :: else fi;
        s = 0;
        step(E_MIGRATED);
        act()
       }
    :: atomic { answer?s, granted ->
        if
#ifdef MUTATE_ANY_ANSWER
        :: granted -> step(E_GRANTED); act()
#else
        :: s == seq && granted -> step(E_GRANTED); act()
#endif
        :: s == seq && !granted -> step(E_REFUSED); act()
        :: else
        fi;
        s = 0;
        granted = false
       }
    :: atomic { (state == S_ASKING && !broken && !event && COULD_ASK
                 && (len(question) + len(answer) == 0 || early < EARLY)) ->
        if :: len(question) + len(answer) == 0 :: len(question) + len(answer) > 0 -> early++ fi;
        if :: step(E_TIMER) :: step(E_PORT_UP) fi;
        act()
       }
    :: atomic { state == S_LOADED && mig[0] == M_ARMED -> step(E_TIMER); act() }
    :: atomic { port_event -> port_event = false; step(E_PORT_DOWN); act() }
    :: atomic { notice?s, told ->
        if
#ifdef MUTATE_ANY_NOTICE
        :: true ->
#else
        :: s == seq ->
#endif
            RULE(meant, mig[0] != M_ARMED || told == moves);
            step(E_PORT_DOWN);
            act()
        :: s != seq
        fi;
        s = 0;
        told = 0
       }
    :: atomic { broken -> step(E_CLOSE); act(); break }
    od
}

/* A keeper has seen the TGT armed, on the path that failed. */
inline tell(seen)
{
    if
    :: losses < LOSSES -> losses++
    :: dups < DUPS && len(notice) == 0 -> dups++; notice!board_seq, seen; notice!board_seq, seen
    :: len(notice) < 2 -> notice!board_seq, seen
    :: len(notice) == 2
    fi
}

/* How the TGT stands to a path that is asked for. */
inline judge(path)
{
    if
    :: primary[1] == path && mig[1] == M_ARMED -> found = F_BEHIND
    :: primary[1] == path && mig[1] != M_ARMED -> found = F_IN_USE
    :: primary[1] != path && mig[1] == M_MIGRATED -> found = F_SPENT
    :: primary[1] != path && mig[1] != M_MIGRATED && alternate[1] == path -> found = F_HAS_IT
    :: primary[1] != path && mig[1] == M_REARM && alternate[1] != path -> found = F_WAITING
    :: primary[1] != path && mig[1] == M_ARMED && alternate[1] != path -> found = F_ELSEWISE
    fi
}

inline arm(path)
{
    d_step {
        judge(path);
        if
#ifdef MUTATE_NO_FOLLOW
        :: found == F_BEHIND -> reply = T_AGREE
#endif
#include "apm_tgt_table.pml"
        fi;
        if
        :: reply == T_LOAD -> load(1, path)
        :: reply == T_FOLLOW -> move(1); load(1, path)
        :: else
        fi;
        granted = (reply != T_REFUSE);
        found = 0;
        reply = 0
    }
}

#define COULD_MOVE (mig[1] == M_ARMED && primary[1] == their_event - 1)

/* What either rank of the domain does with a question or an event, under the board's lock. */
proctype domain()
{
    byte rank, s, path;
    bool granted;
    mtype found, reply;
#ifdef MUTATE_LOOK_BEFORE
    bool tells;
    byte seen;
#endif
end:
    do
    :: atomic { len(question) > 1 -> question?rank, s, path; question!rank, s, path; rank = 0; s = 0; path = 0 } /* overtaken */
#ifdef MUTATE_LOOK_BEFORE
    :: atomic { their_event && !tells -> tells = COULD_MOVE; seen = moves; their_event = 0 }
    :: atomic { tells -> tells = false; tell(seen); seen = 0 }
#else
    :: atomic { their_event ->
        if
        :: COULD_MOVE -> tell(moves)
        :: else
        fi;
        their_event = 0
       }
#endif
    :: atomic { question?rank, s, path ->
        granted = false;
        if
        :: dead[rank] -> goto done
#ifndef MUTATE_NO_ORDER
        :: !dead[rank] && s < board_seq -> goto done
        :: !dead[rank] && s >= board_seq -> board_seq = s
#else
        :: !dead[rank]
#endif
        fi;
        if
        :: refusals < REFUSALS -> refusals++
        :: arm(path)
        fi;
        if
        :: losses < LOSSES -> losses++
        :: len(answer) < 2 -> answer!s, granted
        :: len(answer) == 2
        fi;
done:
        rank = 0;
        s = 0;
        path = 0;
        granted = false
       }
    od
}

active proctype watch()
{
    c_code { atexit(tell_taken); };
    run traffic();
    run weather();
    run service();
    run domain();
    do
    :: atomic { !IN_STEP -> RULE(followed, false) }
    :: atomic { !SHELTER -> RULE(protected, false) }
    :: timeout ->
        RULE(armed_again, broken || state == S_ARMED && mig[0] == M_ARMED && mig[1] == M_ARMED);
        break
    od
}
