/* SPDX-License-Identifier: Apache-2.0 */
/*
 * selftest_cmd.h - `flightsplice selftest [--json]`.
 */
#ifndef FS_DATAPATH_SELFTEST_CMD_H
#define FS_DATAPATH_SELFTEST_CMD_H

/* For the table of commands. Exit code: 0 sockmap may be used, 1 it may not, 2 usage. */
int selftest_main(int argc, char **argv, char **envp);

#endif
