/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Keeping a TGT: three ranks of a domain, one of which has made a TGT and asks a second one to hold it, too. Ranks
 * leave, crash, or cannot open it; what they tell each other gets lost, doubled and late; its INI goes at some time,
 * or stays. What the board's lock makes one step is one step here.
 */
#include "tables.pml"

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
#ifndef LEAVERS
#define LEAVERS 2
#endif
#ifndef REFUSERS    /* ranks that can never open it */
#define REFUSERS 0
#endif
#define RANKS   3
#define ASKS    3 /* while it leaves, a rank asks so often */
#define REFUSALS 3 /* then repair does not ask any more, so that runs end */
#define NOBODY  9

byte keep[RANKS], drop[RANKS];
byte inflight; /* messages, and those being acted upon */
byte losses, dups, early, crashes, leavers, refusers, refusals;

bool never_let_go, true_board, leavers_leave, holders_keep, listed_is_there, two_keepers, gone_with_ini; /* rules */

mtype entry = T_READY;
byte keeper[2];                                   /* rank + 1, 0 for nobody */
bool dead[RANKS], leaving[RANKS], gone[RANKS], refuses[RANKS];
bool holds[RANKS];
bool in_use = true; /* its INI is there */
bool settled; /* from now on nothing happens any more that need not */
bool judged;

#define ANYBODY     (holds[0] || holds[1] || holds[2])
#define KEEPS(t)    (keeper[0] == (t) + 1 || keeper[1] == (t) + 1)
#define HERE(t)     (!dead[t] && !leaving[t])
#define COULD(t)    (HERE(t) && !refuses[t])
#define STAYS(k)    (keeper[k] != 0 && HERE(keeper[k] - 1))
#define LIVES(k)    (keeper[k] != 0 && !dead[keeper[k] - 1])
#define STAYING     (STAYS(0) + STAYS(1))

/* Who could keep it does, at the latest when the last one lets go. */
#define SAFE (!in_use || crashes > 0 || ANYBODY || !COULD(0) && !COULD(1) && !COULD(2))
/* Who is said to keep it holds it. */
#define TRUE_BOARD(k) (keeper[k] == 0 || dead[keeper[k] - 1] || holds[keeper[k] - 1])

inline put(count, to)
{
    if
    :: dead[to] || gone[to] -> skip
    :: else ->
        if
        :: losses < LOSSES -> losses++
        :: dups < DUPS -> dups++; count = count + 2; inflight = inflight + 2
        :: true -> count++; inflight++
        fi
    fi
}

inline get(count)
{
    count--;
    inflight--
}

inline forget(t)
{
    inflight = inflight - keep[t] - drop[t];
    keep[t] = 0;
    drop[t] = 0
}

#define ASKABLE(t, n) (HERE(n) && (n) != (t) && !KEEPS(n))

/* The first one, from some rank on, that could be asked; it looks alive, is not leaving, and does not keep it. */
inline candidate(t, start, who)
{
    d_step {
        byte i, n;
        who = NOBODY;
        i = 0;
        do
        :: i < RANKS && who == NOBODY ->
            n = (start + i) % RANKS;
            if
            :: ASKABLE(t, n) -> who = n
            :: else
            fi;
            i++
        :: else -> break
        od;
        i = 0;
        n = 0
    }
}

inline strike(t)
{
    if :: keeper[0] == t + 1 -> keeper[0] = 0 :: else fi;
    if :: keeper[1] == t + 1 -> keeper[1] = 0 :: else fi
}

inline unlist()
{
    entry = T_NONE;
    keeper[0] = 0;
    keeper[1] = 0
}

inline let_go(t)
{
    holds[t] = false;
    RULE(never_let_go, SAFE);
    assert(TRUE_BOARD(0) && TRUE_BOARD(1))
}

/* Enter as a keeper: where nobody is, else where somebody leaves. */
inline enter(t, done)
{
    if
    :: !LIVES(0) || !STAYS(0) -> keeper[0] = t + 1; done = true
#ifdef MUTATE_LEAVER_STAYS
    :: LIVES(0) && !LIVES(1) -> keeper[1] = t + 1; done = true
    :: LIVES(0) && LIVES(1) -> done = false
#else
    :: STAYS(0) && (!LIVES(1) || !STAYS(1)) -> keeper[1] = t + 1; done = true
    :: STAYS(0) && STAYS(1) -> done = false
#endif
    fi
}

inline ask(t)
{
    candidate(t, start, who);
    if
    :: who != NOBODY ->
        put(keep[who], who);
#ifndef MUTATE_SAME_CANDIDATE
        start = (who + 1) % RANKS
#endif
    :: else
    fi;
    who = NOBODY
}

#ifdef MUTATE_LEAVERS_COUNT
#define ENOUGH(t) (LIVES(0) && keeper[0] != t + 1 || LIVES(1) && keeper[1] != t + 1)
#else
#define ENOUGH(t) (STAYS(0) && keeper[0] != t + 1 || STAYS(1) && keeper[1] != t + 1)
#endif
#define NEEDY(t) (holds[t] && entry == T_READY && !ENOUGH(t) && (ASKABLE(t, 0) || ASKABLE(t, 1) || ASKABLE(t, 2)))

proctype Rank(byte t)
{
    bool opened, done, going;
    byte who = NOBODY, start = (t + 1) % RANKS, tries;
    mtype act;
    do
    /* asked to keep it: opened first, then entered */
    :: atomic { !opened && !going && keep[t] > 0 ->
        get(keep[t]);
        if
        :: !leaving[t] && !holds[t] && entry == T_READY && ANYBODY && !refuses[t] ->
#ifdef MUTATE_ENTER_FIRST
            enter(t, done);
            RULE(true_board, TRUE_BOARD(0) && TRUE_BOARD(1));
#endif
            opened = true;
            holds[t] = true;
            inflight++ /* not answered yet */
        :: else ->
            if :: refuses[t] -> refusals++ :: else fi
        fi }
    :: atomic { opened ->
        opened = false;
        inflight--;
        done = false;
        if :: entry == T_READY -> enter(t, done) :: else fi;
#ifndef MUTATE_UNNEEDED_KEPT
        if :: !done -> let_go(t) :: else fi;
#endif
        done = false }
    :: atomic { !opened && !going && drop[t] > 0 ->
        get(drop[t]);
        if :: holds[t] && entry != T_READY -> let_go(t) :: else fi }

    /* now and then: what is not listed goes, what only we keep needs a second keeper */
#ifndef MUTATE_NO_SWEEP
    :: atomic { !opened && !leaving[t] && holds[t] && entry != T_READY -> let_go(t) }
#endif
#ifndef MUTATE_NO_REPAIR
    :: atomic { !opened && !leaving[t] && NEEDY(t) && inflight == 0 && refusals < REFUSALS -> ask(t) }
#endif
    :: atomic { !opened && !going && NEEDY(t) && inflight > 0 && early < EARLY -> early++; ask(t) }

    /* its INI is gone, and says so to us */
#ifndef MUTATE_DEAF
    :: atomic { !opened && !in_use && entry == T_READY && HERE(t) ->
        tgt_next(entry, F_DISCONNECT, act);
        assert(act == B_RELEASE);
        who = 0;
        do
        :: who < 2 ->
            if
            :: keeper[who] != 0 && keeper[who] != t + 1 -> put(drop[keeper[who] - 1], keeper[who] - 1)
            :: else
            fi;
            who++
        :: else -> break
        od;
        who = NOBODY;
        unlist();
        if :: holds[t] -> let_go(t) :: else fi;
        act = B_NOTHING }
#endif

    /* leaving: ask until somebody stays, or for some time */
    :: atomic { !opened && !settled && !leaving[t] && leavers < LEAVERS -> leavers++; leaving[t] = true }
#if defined(MUTATE_ENDLESS)
    :: atomic { !opened && leaving[t] && !going && NEEDY(t) && tries < ASKS && inflight == 0 -> tries++; ask(t) }
    :: !opened && leaving[t] && !going && !NEEDY(t) -> going = true
#elif !defined(MUTATE_NO_HAND_OVER)
    :: atomic { !opened && leaving[t] && !going && NEEDY(t) && tries < ASKS && inflight == 0 -> tries++; ask(t) }
    :: !opened && leaving[t] && !going && (!NEEDY(t) || tries == ASKS && inflight == 0) -> going = true
#else
    :: !opened && leaving[t] && !going -> going = true
#endif
    :: atomic { going ->
        if
        :: holds[t] ->
            strike(t);
#ifndef MUTATE_NOT_UNLISTED
            if
            :: entry == T_READY && !LIVES(0) && !LIVES(1) ->
                tgt_next(entry, F_ORPHANED, act);
                assert(act == B_UNLIST);
                unlist()
            :: else
            fi;
#endif
            let_go(t)
        :: else
        fi;
        strike(t);
        forget(t);
        gone[t] = true;
        dead[t] = true;
        break }

    :: atomic { !settled && crashes < CRASHES ->
        crashes++;
        dead[t] = true;
        holds[t] = false;
        forget(t);
        if :: opened -> inflight-- :: else fi;
        break }
    :: judged -> break
    od;
    opened = false;
    going = false;
    start = 0;
    tries = 0;
    act = 0
}

#define HOLDER_IS_KEEPER(t) (!holds[t] || entry == T_READY && KEEPS(t))
#define ABLE (COULD(0) + COULD(1) + COULD(2))

init
{
    c_code { atexit(tell_taken); };
    atomic {
        keeper[0] = 1;
        holds[0] = true;
        if
        :: refusers < REFUSERS -> refusers++; refuses[1] = true
        :: refusers < REFUSERS -> refusers++; refuses[2] = true
        :: true -> skip
        fi;
        run Rank(0);
        run Rank(1);
        run Rank(2)
    }
    if /* some time or never */
    :: in_use = false
    :: true
    fi;
    settled = true;
    atomic {
        timeout ->
        RULE(never_let_go, SAFE);
        RULE(true_board, TRUE_BOARD(0) && TRUE_BOARD(1));
        /* who leaves has left, and nobody holds what he does not keep */
        RULE(leavers_leave, (!leaving[0] || dead[0]) && (!leaving[1] || dead[1]) && (!leaving[2] || dead[2]));
        RULE(holders_keep, HOLDER_IS_KEEPER(0) && HOLDER_IS_KEEPER(1) && HOLDER_IS_KEEPER(2));
        /* listed means that it is there */
        RULE(listed_is_there, entry != T_READY || ANYBODY || crashes > 0);
        /* two keepers, where there are two who can */
        RULE(two_keepers, entry != T_READY || !ANYBODY || refusals > 0 || STAYING >= 2 || STAYING >= ABLE);
        /* gone with its INI, where there was anybody who could be told */
        RULE(gone_with_ini, in_use || entry == T_NONE || !HERE(0) && !HERE(1) && !HERE(2));
        judged = true
    }
}
