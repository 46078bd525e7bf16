// The rules of ibv_modify_qp, an independent copy: the rows of the kernel's qp_state_table, written down as text and read anew.
#ifndef TEST_CONFORM_QP_RULES_H
#define TEST_CONFORM_QP_RULES_H

#include <infiniband/verbs.h>

#include <map>
#include <sstream>
#include <string>
#include <tuple>

namespace rules
{

// One row a line: types | from -> to | required | optional. Attributes in the words of the man page ibv_modify_qp.
inline const char *const text = R"(
rc ini tgt uc | RESET INIT | pkey port access     |
rc ini tgt uc | INIT INIT  |                      | pkey port access
rc tgt        | INIT RTR   | av mtu dest rqpsn maxdest minrnr | alt access pkey
ini uc        | INIT RTR   | av mtu dest rqpsn    | alt access pkey
rc ini        | RTR RTS    | timeout retry rnr sqpsn maxrd | cur alt access mig
rc            | RTR RTS    |                      | minrnr
tgt           | RTR RTS    | timeout sqpsn        | cur alt access minrnr mig
uc            | RTR RTS    | sqpsn                | cur alt access mig
rc tgt        | RTS RTS    |                      | cur access alt mig minrnr
ini uc        | RTS RTS    |                      | cur access alt mig
rc ini tgt uc | RTS SQD    |                      | sqdnotify
rc tgt        | SQD RTS    |                      | cur alt access minrnr mig
ini uc        | SQD RTS    |                      | cur alt access mig
rc            | SQD SQD    |                      | port av timeout retry rnr maxrd maxdest alt access pkey minrnr mig
ini           | SQD SQD    |                      | port av timeout retry rnr maxrd alt access pkey mig
tgt           | SQD SQD    |                      | port av timeout maxdest alt access pkey minrnr mig
uc            | SQD SQD    |                      | av alt access pkey mig
rc ini tgt    | SQE RTS    |                      |
uc            | SQE RTS    |                      | cur access
ud            | RESET INIT | pkey port qkey       |
ud            | INIT INIT  |                      | pkey port qkey
ud            | INIT RTR   |                      | pkey qkey
ud            | RTR RTS    | sqpsn                | cur qkey
ud            | RTS RTS    |                      | cur qkey
ud            | RTS SQD    |                      | sqdnotify
ud            | SQD RTS    |                      | cur qkey
ud            | SQD SQD    |                      | pkey qkey
ud            | SQE RTS    |                      | cur qkey
rc ini tgt uc ud | RESET RESET | |
rc ini tgt uc ud | INIT RESET  | |
rc ini tgt uc ud | RTR RESET   | |
rc ini tgt uc ud | RTS RESET   | |
rc ini tgt uc ud | SQD RESET   | |
rc ini tgt uc ud | SQE RESET   | |
rc ini tgt uc ud | ERR RESET   | |
rc ini tgt uc ud | INIT ERR    | |
rc ini tgt uc ud | RTR ERR     | |
rc ini tgt uc ud | RTS ERR     | |
rc ini tgt uc ud | SQD ERR     | |
rc ini tgt uc ud | SQE ERR     | |
rc ini tgt uc ud | ERR ERR     | |
)";

inline const std::map<std::string, int> attribute = {
    {"cur", IBV_QP_CUR_STATE},
    {"sqdnotify", IBV_QP_EN_SQD_ASYNC_NOTIFY},
    {"access", IBV_QP_ACCESS_FLAGS},
    {"pkey", IBV_QP_PKEY_INDEX},
    {"port", IBV_QP_PORT},
    {"qkey", IBV_QP_QKEY},
    {"av", IBV_QP_AV},
    {"mtu", IBV_QP_PATH_MTU},
    {"timeout", IBV_QP_TIMEOUT},
    {"retry", IBV_QP_RETRY_CNT},
    {"rnr", IBV_QP_RNR_RETRY},
    {"rqpsn", IBV_QP_RQ_PSN},
    {"maxrd", IBV_QP_MAX_QP_RD_ATOMIC},
    {"alt", IBV_QP_ALT_PATH},
    {"minrnr", IBV_QP_MIN_RNR_TIMER},
    {"sqpsn", IBV_QP_SQ_PSN},
    {"maxdest", IBV_QP_MAX_DEST_RD_ATOMIC},
    {"mig", IBV_QP_PATH_MIG_STATE},
    {"cap", IBV_QP_CAP},
    {"dest", IBV_QP_DEST_QPN},
};

inline const std::map<std::string, ibv_qp_type> type_of = {
    {"rc", IBV_QPT_RC}, {"uc", IBV_QPT_UC}, {"ud", IBV_QPT_UD}, {"ini", IBV_QPT_XRC_SEND}, {"tgt", IBV_QPT_XRC_RECV}};

inline const std::map<std::string, ibv_qp_state> state_of = {
    {"RESET", IBV_QPS_RESET}, {"INIT", IBV_QPS_INIT}, {"RTR", IBV_QPS_RTR}, {"RTS", IBV_QPS_RTS},
    {"SQD", IBV_QPS_SQD},     {"SQE", IBV_QPS_SQE},   {"ERR", IBV_QPS_ERR}};

struct Row {
    int required = 0, optional = 0;
};

using Key = std::tuple<ibv_qp_type, ibv_qp_state, ibv_qp_state>;

inline int mask_of(const std::string &words)
{
    std::istringstream in(words);
    std::string word;
    int mask = 0;
    while (in >> word)
        mask |= attribute.at(word);
    return mask;
}

inline std::map<Key, Row> read()
{
    std::map<Key, Row> table;
    std::istringstream in(text);
    std::string line;
    while (std::getline(in, line)) {
        std::istringstream fields(line);
        std::string types, move, required, optional, type, from, to;
        if (!std::getline(fields, types, '|') || !std::getline(fields, move, '|'))
            continue;
        std::getline(fields, required, '|');
        std::getline(fields, optional, '|');
        std::istringstream(move) >> from >> to;
        std::istringstream each(types);
        while (each >> type) {
            Row &row = table[{type_of.at(type), state_of.at(from), state_of.at(to)}];
            row.required |= mask_of(required);
            row.optional |= mask_of(optional);
        }
    }
    return table;
}

// The rule of ib_modify_qp_is_ok, said again from the rows.
inline bool allowed(const std::map<Key, Row> &table, Key key, int mask)
{
    ibv_qp_state cur = std::get<1>(key);
    auto row = table.find(key);
    if (row == table.end())
        return false;
    if ((mask & IBV_QP_CUR_STATE) && cur != IBV_QPS_RTR && cur != IBV_QPS_RTS && cur != IBV_QPS_SQD
        && cur != IBV_QPS_SQE)
        return false;
    return (mask & row->second.required) == row->second.required
           && (mask & ~(row->second.required | row->second.optional)) == 0;
}

// What uverbs takes out of the mask before: an INI has no responder, a TGT no requester.
inline int strip(ibv_qp_type type, int mask)
{
    if (type == IBV_QPT_XRC_SEND)
        return mask & ~(IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    if (type == IBV_QPT_XRC_RECV)
        return mask & ~(IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY);
    return mask;
}

} // namespace rules

#endif
