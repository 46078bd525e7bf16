/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Wire-up: one process and a remote domain of two ranks, any of which may be asked. Messages get lost, doubled and
 * overtake each other; ranks crash, leave, run out of QPs; the process may close and open again at any time, so that
 * two generations of INI cross each other.
 *
 * What the board's lock or a node's locks make one step is one step here. Everything else may happen in any order.
 * Each budget is finite, so that every run must end, and the judge looks at how. A MUTATE_ macro puts a fault in, to
 * show that it would be found.
 */
#include "tables.pml"

#ifndef LOSSES
#define LOSSES 1
#endif
#ifndef DUPS
#define DUPS 1
#endif
#ifndef EARLY       /* timers that run out while an answer is on its way */
#define EARLY 1
#endif
#ifndef CRASHES
#define CRASHES 1
#endif
#ifndef LEAVERS
#define LEAVERS 1
#endif
#ifndef BREAKS      /* verbs that fail */
#define BREAKS 1
#endif
#ifndef HURRIES     /* closed, or out of time, although an answer is on its way */
#define HURRIES 1
#endif
#ifndef GOERS       /* leaving ranks that let go of what they hold, and end */
#define GOERS 0
#endif
#define GENERATIONS 2
#define RANKS       2
#define QPS         5 /* numbers 1 to 4; a free one is used again at once */
#define PATIENCE    2 /* requests to one rank without an answer */
#define ATTEMPTS    8 /* requests within the time a peer has */
#define LOAN        1 /* sends that the service thread may post */

bool one_ini, tgt_there, reached, said, sent_all, given_back, one_tgt, made_or_gone, tgt_goes, let_go, kept; /* rules */

/* ---- the network: how many of each message are on their way ---- */

byte request[4], disconnect[4], reject[4]; /* generation and rank */
byte response[20];                         /* generation, rank, TGT */
byte gone[10];                             /* generation, TGT */
byte inflight;
byte losses, dups, early, crashes, leavers, breaks, hurries, goers;

#define PAIR(g, t)       ((g) * RANKS + (t))
#define TRIPLE(g, t, q)  (PAIR(g, t) * QPS + (q))
#define OF_TGT(g, q)     ((g) * QPS + (q))
#define NOISE            (losses + dups + early + crashes + leavers + hurries)

/* Lost, once, or twice; always lost when nobody is there any more. */
inline put(count, there)
{
    if
    :: !(there) -> skip
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

/* ---- the remote domain: its board and its ranks ---- */

mtype entry = T_NONE;
byte entry_generation, entry_qp, entry_maker;
byte tgt_of[QPS] = 255; /* generation a TGT was made for */
byte held[RANKS];       /* TGTs that a rank has handles on, by bit */
bool dead[RANKS], leaving[RANKS];
byte making;            /* ranks between listing and making */
byte spent;             /* TGTs that initiators were told to be gone: one with the same number has another PSN */

#define BIT(q)     (1 << (q))
#define EXISTS(q)  (((held[0] | held[1]) & BIT(q)) != 0)
#define LISTED(q)  (entry == T_READY && entry_qp == (q))
#define SERVES(t)  (!dead[t] && !leaving[t])

/* ---- the initiator: nodes, their INIs and the service thread's connections, one a generation ---- */

#define AT_NODE    0
#define AT_STACK   1 /* on the way to the service thread */
#define AT_SERVICE 2
#define AT_RESULTS 3 /* on the way back */
#define AT_NOBODY  4 /* in a model with that fault */

mtype node[GENERATIONS] = S_IDLE;
mtype conn[GENERATIONS] = S_IDLE;
byte where[GENERATIONS];
bool ini[GENERATIONS], close_wanted[GENERATIONS], farewell_due[GENERATIONS];
byte current[GENERATIONS], attempts[GENERATIONS], answerer[GENERATIONS] = 255;
byte tgt[GENERATIONS], waiting[GENERATIONS], sent[GENERATIONS], loan[GENERATIONS] = LOAN;
byte gone_before[GENERATIONS]; /* a TGT that it need not wait for any more */
bool hurried[GENERATIONS];
bool settled; /* from now on nothing happens any more that need not */
bool judged;  /* the end of a run */

/* An INI in use has a TGT that was made for it, as long as all ranks live that could hold it. */
#define HAS_TGT(g) (EXISTS(tgt[g]) && tgt_of[tgt[g]] == (g))
#define GOOD(g)    (crashes > 0 || goers > 0 || HAS_TGT(g))

inline send_request(g)
{
    attempts[g]++;
    put(request[PAIR(g, current[g])], !dead[current[g]])
}

inline send_disconnect(g, t)
{
    put(disconnect[PAIR(g, t)], !dead[t])
}

/* Post what waits, as far as there is room. */
inline drain(g, room)
{
    do
    :: waiting[g] > 0 && room > 0 -> RULE(tgt_there, GOOD(g)); waiting[g]--; sent[g]++; room--
    :: else -> break
    od
}

/* ---- MPI threads ---- */

inline open_ini(g)
{
    /* one INI in use */
    RULE(one_ini, !(ini[0] && node[0] != S_CLOSED) && !(ini[1] && node[1] != S_CLOSED));
    ini[g] = true;
    where[g] = AT_STACK
}

/* Nobody holds TGT q any more, which was made for generation k. */
inline take_gone(k, q)
{
    get(gone[OF_TGT(k, q)]);
#ifdef MUTATE_ANY_GONE
    n = g;
#else
    n = k;
#endif
    if
#ifdef MUTATE_ANY_GONE
    :: node[n] == S_READY ->
#else
    :: node[n] == S_READY && tgt[n] == q ->
#endif
        RULE(kept, !HAS_TGT(n));
        ini_next(node[n], E_GONE, act);
        assert(act == A_DRAIN)
    :: else
    fi;
    n = 0
}

/* All has arrived: another INI, if somebody waits for one, has another generation. */
inline drained(k)
{
    ini_next(node[k], E_DRAINED, act);
    assert(act == A_LET_GO);
    ini[k] = false;
    if
    :: k + 1 < GENERATIONS && g == k ->
        g = k + 1;
        opens = 0;
#ifndef MUTATE_NO_REOPEN
        waiting[g] = waiting[k];
        waiting[k] = 0;
        if
        :: waiting[g] > 0 -> ini_next(node[g], E_OPEN, act); open_ini(g)
        :: else
        fi
#endif
    :: else -> waiting[k] = 0; opens = 2 /* no generation is left */
    fi
}

#define GONE(k, q) \
    :: atomic { gone[OF_TGT(k, q)] > 0 && where[k] == AT_NODE -> take_gone(k, q); act = A_NOTHING }
#define DRAINED(k) \
    :: atomic { node[k] == S_DRAINING && where[k] == AT_NODE -> \
        if \
        :: breaks < BREAKS -> breaks++; ini_next(node[k], E_BROKEN, act); waiting[k] = 0 /* a send was lost */ \
        :: true -> drained(k) \
        fi; \
        act = A_NOTHING }

proctype Mpi()
{
    byte g, opens, plenty, n;
    mtype act;
#ifdef MUTATE_LATE_ENQUEUE
    bool late;
#endif
    do
    /* a send: open if need be, wait or post */
    :: atomic { node[g] != S_CLOSED && opens < 2 ->
        opens++;
        if
        :: node[g] == S_READY && waiting[g] == 0 -> RULE(tgt_there, GOOD(g)); sent[g]++
        :: node[g] == S_FAILED -> skip
        :: else ->
            ini_next(node[g], E_OPEN, act);
#ifdef MUTATE_OPEN_TWICE
            if :: node[g] == S_REQUESTED && act == A_NOTHING -> act = A_REQUEST :: else fi;
#endif
            waiting[g]++;
            if
            :: act == A_REQUEST && breaks < BREAKS -> /* no INI to be had */
                breaks++;
                ini_next(node[g], E_BROKEN, act);
                assert(act == A_REPORT);
                waiting[g] = 0
            :: act == A_REQUEST -> open_ini(g)
            :: else
            fi
        fi;
        act = A_NOTHING }

#ifdef MUTATE_LATE_ENQUEUE
    :: atomic { node[g] == S_REQUESTED && opens < 2 && !late -> opens++; late = true }
    :: atomic { late -> late = false; if :: node[g] != S_CLOSED -> waiting[g]++ :: else fi }
#endif

    /* the service thread has finished with a connection */
    :: atomic { (where[0] == AT_RESULTS || where[1] == AT_RESULTS) ->
        byte k = (where[0] == AT_RESULTS -> 0 : 1);
        where[k] = AT_NODE;
#ifndef MUTATE_NO_ANSWERER
        answerer[k] = current[k];
#endif
        if
        :: conn[k] != S_READY && node[k] != S_CLOSED ->
            node[k] = S_FAILED;
            waiting[k] = 0
        :: else
        fi;
#ifndef MUTATE_NO_DRAIN
        plenty = 9;
        if :: node[k] == S_READY -> drain(k, plenty) :: else fi;
        plenty = 0;
#endif
        k = 0 }

    /* the last ranks that held its TGT have left: let go of the INI, when nothing is on its way any more */
    GONE(0, 1) GONE(0, 2) GONE(0, 3) GONE(0, 4) GONE(1, 1) GONE(1, 2) GONE(1, 3) GONE(1, 4)
    DRAINED(0) DRAINED(1)

    /* nobody needs the node any more; in a hurry when that is before it is connected */
    :: atomic { !settled && node[g] != S_CLOSED && (node[g] != S_REQUESTED || hurries < HURRIES) ->
        if :: node[g] == S_REQUESTED -> hurries++; hurried[g] = true :: else fi;
        waiting[g] = 0;
        ini_next(node[g], E_CLOSE, act);
        farewell_due[g] = (act != A_NOTHING);
        close_wanted[g] = (where[g] != AT_NODE);
        act = A_NOTHING }

    /* closed, and the service thread does not have it: the INI goes */
    :: atomic { node[0] == S_CLOSED && ini[0] && where[0] == AT_NODE -> ini[0] = false;
        if :: farewell_due[0] && answerer[0] < RANKS -> send_disconnect(0, answerer[0]) :: else fi }
    :: atomic { node[1] == S_CLOSED && ini[1] && where[1] == AT_NODE -> ini[1] = false;
        if :: farewell_due[1] && answerer[1] < RANKS -> send_disconnect(1, answerer[1]) :: else fi }

    /* the same peers anew */
    :: atomic { node[g] == S_CLOSED && g + 1 < GENERATIONS -> g++; opens = 0 }
    :: judged -> break
    od
}

/* ---- the service thread ---- */

inline hand_back(g)
{
    where[g] = AT_RESULTS
}

/* A RESPONSE of rank t with TGT q has come. */
inline take_response(g, t, q)
{
    get(response[TRIPLE(g, t, q)]);
    if
#ifndef MUTATE_LATE_RESPONSE
    :: where[g] == AT_SERVICE && gone_before[g] == q -> ini_next(conn[g], E_STALE, act)
    :: where[g] == AT_SERVICE && gone_before[g] != q ->
#else
    :: where[g] == AT_SERVICE ->
#endif
        ini_next(conn[g], E_RESPONSE, act);
        assert(act == A_CONNECT);
        tgt[g] = q;
        current[g] = t;
        if
        :: breaks < BREAKS -> breaks++; ini_next(conn[g], E_BROKEN, act)
        :: node[g] == S_REQUESTED -> drain(g, loan[g]); node[g] = S_READY
        :: node[g] != S_REQUESTED -> skip
        fi;
        hand_back(g)
    :: else
    fi
}

inline take_reject(g, t)
{
    get(reject[PAIR(g, t)]);
    if
    :: where[g] == AT_SERVICE ->
        ini_next(conn[g], E_REJECT, act);
        current[g] = 1 - current[g];
        if /* the timer still runs, unless it has just run out */
        :: early < EARLY -> early++; send_request(g)
        :: true -> skip
        fi
    :: else
    fi
}

/* Gone before we have heard of it. */
inline take_gone_early(g, q)
{
    get(gone[OF_TGT(g, q)]);
    ini_next(conn[g], E_GONE, act);
    gone_before[g] = q;
    current[g] = 1 - current[g]
}

inline time_to_repeat(g)
{
    if
    :: attempts[g] % PATIENCE == 0 ->
        ini_next(conn[g], E_SILENT, act);
#ifndef MUTATE_NO_NEXT_CONTACT
        current[g] = 1 - current[g]
#endif
    :: else -> ini_next(conn[g], E_TIMER, act)
    fi;
    send_request(g)
}

#define RESPONSE(t, q) \
    :: atomic { response[TRIPLE(g, t, q)] > 0 -> take_response(g, t, q); act = A_NOTHING }
#define GONE_EARLY(q) \
    :: atomic { where[g] == AT_SERVICE && gone[OF_TGT(g, q)] > 0 -> take_gone_early(g, q); act = A_NOTHING }
#define RESPONSES(t) RESPONSE(t, 1) RESPONSE(t, 2) RESPONSE(t, 3) RESPONSE(t, 4)

proctype Service(byte g)
{
    mtype act;
    do
    :: atomic { where[g] == AT_STACK ->
        where[g] = AT_SERVICE;
        ini_next(conn[g], E_OPEN, act);
        send_request(g);
        act = A_NOTHING }
    RESPONSES(0)
    RESPONSES(1)
    GONE_EARLY(1) GONE_EARLY(2) GONE_EARLY(3) GONE_EARLY(4)
    :: atomic { reject[PAIR(g, 0)] > 0 -> take_reject(g, 0); act = A_NOTHING }
    :: atomic { reject[PAIR(g, 1)] > 0 -> take_reject(g, 1); act = A_NOTHING }
#ifdef MUTATE_ANY_GENERATION
    :: atomic { g == 1 && where[1] == AT_SERVICE && response[TRIPLE(0, 0, 1)] > 0 ->
        get(response[TRIPLE(0, 0, 1)]);
        response[TRIPLE(1, 0, 1)]++;
        inflight++ }
#endif
    :: atomic { where[g] == AT_SERVICE && close_wanted[g] ->
        ini_next(conn[g], E_CLOSE, act);
        assert(act == A_ABANDON);
        close_wanted[g] = false;
        send_disconnect(g, current[g]);
#ifdef MUTATE_KEPT_CONN
        where[g] = AT_NOBODY;
#else
        hand_back(g);
#endif
        act = A_NOTHING }
#ifndef MUTATE_NO_RESEND
    /* no answer in time: it will not come any more, or it is late */
    :: atomic { where[g] == AT_SERVICE && attempts[g] < ATTEMPTS && inflight == 0 && making == 0 ->
        time_to_repeat(g); act = A_NOTHING }
    :: atomic { where[g] == AT_SERVICE && attempts[g] < ATTEMPTS && (inflight > 0 || making > 0) && early < EARLY ->
        early++; time_to_repeat(g); act = A_NOTHING }
    :: atomic { where[g] == AT_SERVICE && attempts[g] >= ATTEMPTS && inflight == 0 && making == 0 ->
        /* who could be reached has been reached */
        RULE(reached, hurried[g] || !SERVES(0) && !SERVES(1));
        ini_next(conn[g], E_EXPIRED, act); hand_back(g); act = A_NOTHING }
#endif
    :: atomic { !settled && where[g] == AT_SERVICE && hurries < HURRIES ->
        hurries++; hurried[g] = true;
        ini_next(conn[g], E_EXPIRED, act); hand_back(g); act = A_NOTHING }
    :: judged -> break
    od
}

/* ---- a rank of the remote domain ---- */

/* The lowest free number. */
inline new_qp(q)
{
    q = 1;
    do
#ifdef MUTATE_SAME_PSN
    :: q < QPS && EXISTS(q) -> q++
#else
    :: q < QPS && (EXISTS(q) || (spent & BIT(q))) -> q++
#endif
    :: else -> break
    od;
    assert(q < QPS)
}

inline unlist()
{
    entry = T_NONE;
    entry_generation = 0;
    entry_qp = 0;
    entry_maker = 0
}

inline orphaned_goes()
{
#ifdef MUTATE_NO_ORPHANS
    skip
#else
    if
    :: entry == T_MAKING && dead[entry_maker] || entry == T_READY && !EXISTS(entry_qp) ->
        tgt_next(entry, F_ORPHANED, act);
        assert(act == B_UNLIST);
        unlist()
    :: else
    fi
#endif
}

inline classify(g, t, event)
{
    if
#ifdef MUTATE_LEAVING_FIRST
    :: leaving[t] && entry == T_READY -> event = F_REQUEST
#else
    :: entry != T_NONE && entry_generation == g -> event = F_REQUEST
#endif
#ifdef MUTATE_NO_OLDER
    :: entry != T_NONE && entry_generation > g && !leaving[t] -> event = F_NEWER
#else
    :: entry != T_NONE && entry_generation > g -> event = F_OLDER
#endif
    :: else ->
        if
        :: leaving[t] -> event = F_LEAVING
        :: !leaving[t] && entry == T_NONE -> event = F_REQUEST
        :: !leaving[t] && entry != T_NONE -> event = F_NEWER
        fi
    fi
}

inline list_it(g, t)
{
    entry = T_MAKING;
    entry_generation = g;
    entry_maker = t;
    making++;
    mine = g
}

inline drop(t, q)
{
    held[t] = held[t] & ~BIT(q);
    if :: !EXISTS(q) -> tgt_of[q] = 255 :: else fi
}

inline release(t)
{
    q = entry_qp;
    unlist();
    if :: held[t] & BIT(q) -> drop(t, q) :: else fi;
    q = 0
}

inline take_request(g, t)
{
    get(request[PAIR(g, t)]);
    orphaned_goes();
    classify(g, t, event);
    tgt_next(entry, event, act);
    if
    :: act == B_CREATE -> list_it(g, t)
    :: act == B_REPLACE -> release(t); tgt_next(entry, F_REQUEST, act); list_it(g, t)
    :: act == B_ANSWER -> put(response[TRIPLE(g, t, entry_qp)], true)
    :: act == B_REJECT -> put(reject[PAIR(g, t)], true)
    :: else
    fi
}

inline take_disconnect(g, t)
{
    get(disconnect[PAIR(g, t)]);
#ifdef MUTATE_DISCONNECT_ANY
    if
    :: entry == T_READY ->
#else
    if
    :: entry != T_NONE && entry_generation == g ->
#endif
        q = entry_qp;
        event = entry;
        tgt_next(event, F_DISCONNECT, act);
        if :: act == B_RELEASE -> release(t) :: else fi;
        q = 0
    :: else
    fi
}

/* Listed under the lock, made without it, entered under it again. */
inline finish(t)
{
    if
    :: breaks < BREAKS -> /* no TGT to be had */
        breaks++;
        tgt_next(entry, F_BROKEN, act);
        unlist();
        put(reject[PAIR(mine, t)], true)
    :: true ->
        new_qp(q);
        held[t] = held[t] | BIT(q);
        tgt_of[q] = mine;
        if
        :: entry_maker == t && entry != T_NONE -> tgt_next(entry, F_MADE, act)
        :: else -> event = T_NONE; tgt_next(event, F_MADE, act)
        fi;
        if
        :: act == B_ANSWER ->
            entry_qp = q;
            put(response[TRIPLE(mine, t, q)], true)
        :: else -> drop(t, q)
        fi;
        q = 0
    fi;
    making--;
    mine = 255
}

/* What only this rank holds goes with it; where others can take it over they have done so (see keeping.pml). */
inline let_go_of(t, q)
{
    if
    :: held[t] & BIT(q) ->
        drop(t, q);
        if
        :: LISTED(q) && !EXISTS(q) ->
#ifndef MUTATE_NO_GONE
            put(gone[OF_TGT(entry_generation, q)], true);
            spent = spent | BIT(q);
#endif
            unlist()
        :: else
        fi
    :: else
    fi
}

inline forget(t)
{
    inflight = inflight - request[PAIR(0, t)] - request[PAIR(1, t)] - disconnect[PAIR(0, t)] - disconnect[PAIR(1, t)];
    request[PAIR(0, t)] = 0;
    request[PAIR(1, t)] = 0;
    disconnect[PAIR(0, t)] = 0;
    disconnect[PAIR(1, t)] = 0
}

#define REPAIR(q) \
    :: atomic { mine == 255 && (held[t] & BIT(q)) && !LISTED(q) -> drop(t, q) }
#define DONE act = B_NOTHING; event = F_REQUEST

proctype Rank(byte t)
{
    mtype act, event;
    byte q, mine = 255;
    do
    :: atomic { mine == 255 && request[PAIR(0, t)] > 0 -> take_request(0, t); DONE }
    :: atomic { mine == 255 && request[PAIR(1, t)] > 0 -> take_request(1, t); DONE }
    :: atomic { mine == 255 && disconnect[PAIR(0, t)] > 0 -> take_disconnect(0, t); DONE }
    :: atomic { mine == 255 && disconnect[PAIR(1, t)] > 0 -> take_disconnect(1, t); DONE }
    :: atomic { mine != 255 -> finish(t); DONE }
    /* now and then: handles on what is not listed any more go */
#ifndef MUTATE_NO_SWEEP
    REPAIR(1) REPAIR(2) REPAIR(3) REPAIR(4)
#endif
    :: atomic { !settled && mine == 255 && leavers < LEAVERS && !leaving[t] -> leavers++; leaving[t] = true }
    :: atomic { mine == 255 && leaving[t] && goers < GOERS ->
        goers++;
        dead[t] = true;
        let_go_of(t, 1); let_go_of(t, 2); let_go_of(t, 3); let_go_of(t, 4);
        forget(t);
        break }
    :: atomic { !settled && crashes < CRASHES ->
        crashes++;
        dead[t] = true;
        held[t] = 0;
        forget(t);
        if :: mine != 255 -> making--; mine = 255 :: else fi;
        break }
    :: judged -> break
    od
}

/* ---- how every run ends ---- */

#define SAID(g) (node[g] == S_READY || node[g] == S_FAILED || node[g] == S_CLOSED || node[g] == S_IDLE)

init
{
    byte q, n;
    c_code { atexit(tell_taken); };
    atomic {
        run Mpi();
        run Service(0);
        run Service(1);
        run Rank(0);
        run Rank(1)
    }
    settled = true;
    atomic {
        timeout ->
        /* connected or reported, and nothing that was to be sent waits for ever */
        RULE(said, SAID(0) && SAID(1));
        RULE(sent_all, waiting[0] == 0 && waiting[1] == 0);
        /* nobody has kept a connection or an INI that is of no use */
        RULE(given_back, where[0] == AT_NODE && where[1] == AT_NODE);
        RULE(given_back, !(node[0] == S_CLOSED && ini[0]) && !(node[1] == S_CLOSED && ini[1]));
        /* one TGT at most, the listed one */
        q = 1;
        do
        :: q < QPS ->
            if :: EXISTS(q) -> n++; RULE(one_tgt, LISTED(q)) :: else fi;
            q++
        :: else -> break
        od;
        RULE(one_tgt, n <= 1);
        RULE(made_or_gone, entry != T_MAKING || dead[entry_maker]);
        /* which an INI in use has */
        RULE(tgt_there, node[0] != S_READY || GOOD(0));
        RULE(tgt_there, node[1] != S_READY || GOOD(1));
        /* or is given back, when somebody was left to say that its TGT is gone */
        RULE(let_go, crashes > 0 || losses > 0 || node[0] != S_READY || HAS_TGT(0));
        RULE(let_go, crashes > 0 || losses > 0 || node[1] != S_READY || HAS_TGT(1));
        /* and which goes with its INI when nothing has gone wrong on the way */
        RULE(tgt_goes, NOISE > 0 || entry == T_NONE || node[entry_generation] != S_CLOSED);
        judged = true
    }
}
