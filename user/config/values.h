/* SPDX-License-Identifier: Apache-2.0 */
/*
 * values.h - the kinds of values that options have, inside config only.
 */
#ifndef FS_CONFIG_VALUES_H
#define FS_CONFIG_VALUES_H

#include "config/table.h"

extern const struct option_type type_duration; /* uint64_t ns */
extern const struct option_type type_bytes;    /* uint64_t */
extern const struct option_type type_bytes32;  /* uint32_t */
extern const struct option_type type_count;    /* uint32_t */
extern const struct option_type type_workers;  /* unsigned; "auto" = CPUs */
extern const struct option_type type_choice;   /* int or enum */
extern const struct option_type type_switch;   /* bool */
extern const struct option_type type_listen;   /* struct addr */
extern const struct option_type type_admin;    /* struct addr; "off" = len 0 */
extern const struct option_type type_cidr;     /* const char * */
extern const struct option_type type_ports;    /* const char * */
extern const struct option_type type_dir;      /* const char * */

/* text in quotes for an error message: cut when long, control bytes as '?'. Returns buf. */
#define QUOTED_MAX 72
const char *config_quote(const char *text, char buf[QUOTED_MAX]);

#endif
