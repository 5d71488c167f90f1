/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.h - everything that `serve` can be told, after validation.
 *
 * Immutable once the workers run. Each option is one row of a table in
 * config.c: flag, environment variable, default, help text, parser.
 */
#ifndef FS_CONFIG_H
#define FS_CONFIG_H

#include <stdio.h>

#include "base/addr.h"

#define CONFIG_LISTEN_MAX 16
#define CONFIG_ALLOW_MAX 256

enum config_datapath {
	DATAPATH_AUTO,
	DATAPATH_PACKET,
	DATAPATH_SOCKMAP,
	DATAPATH_RELAY,
};

enum config_log_format { LOG_LOGFMT, LOG_JSON };
enum config_log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

/* All in nanoseconds; 0 = off. */
struct timeouts {
	uint64_t connect_ns;   /* resolve + TCP connect */
	uint64_t handshake_ns; /* client: preface, SETTINGS, whole request; executor: SETTINGS */
	uint64_t response_ns;  /* request sent to first response HEADERS */
	uint64_t stall_ns;     /* executor with credit that sends nothing, then fails a PING */
	uint64_t client_ns;    /* client that takes nothing while something waits for it */
	uint64_t idle_ns;      /* client connection without streams */
	uint64_t drain_ns;     /* SIGTERM to the forced end */
};

struct limits {
	uint32_t max_clients;     /* connections, whole process */
	uint32_t max_per_source;  /* the same, of one address; 0 = off */
	uint32_t max_streams;     /* per client; SETTINGS_MAX_CONCURRENT_STREAMS to clients */
	uint32_t max_ticket;      /* bytes of a request message */
	uint64_t client_inflight; /* bytes granted to executors or held, per client */
	uint64_t total_inflight;  /* the same, whole process */
	uint64_t promote_after;   /* bytes of a stream before promotion; 0 = never */
};

struct config {
	struct addr listen[CONFIG_LISTEN_MAX];
	unsigned n_listen;
	struct addr admin; /* len 0 = off */
	enum config_datapath datapath;
	unsigned workers;
	const char *allow_cidr[CONFIG_ALLOW_MAX];
	unsigned n_allow_cidr;
	const char *allow_port[CONFIG_ALLOW_MAX];
	unsigned n_allow_port;
	bool allow_loopback;
	int unreachable_status; /* enum grpc_status: 2, 14 or 13 */
	struct timeouts timeouts;
	struct limits limits;
	enum config_log_format log_format;
	enum config_log_level log_level;
	const char *pin_dir;
	char *storage; /* lists from the environment, taken apart; config_free()'s */
};

/* The least that --client-inflight may be, and each worker's part of --total-inflight. */
#define CONFIG_INFLIGHT_MIN (256 * KiB)

enum config_result {
	CONFIG_OK,
	CONFIG_HELP,  /* --help: the text went to `out` */
	CONFIG_ERROR, /* the reason, naming the flag, went to `err`: exit code 2 */
};

/*
 * Fills *ret from defaults, then FLIGHTSPLICE_* in envp (NULL-terminated, may be
 * NULL), then argv[1..]. Strings in *ret point into argv, envp and ret->storage. A
 * repeatable flag given on the command line replaces what the environment said, where
 * its values are separated by commas. An unknown FLIGHTSPLICE_* variable is an error
 * too (a typo must not be silent). *ret is written only with CONFIG_OK.
 */
enum config_result config_parse(struct config *ret, int argc, char **argv, char **envp, FILE *out,
				FILE *err);
/* Frees what *c owns; NULL and a zeroed one are fine. */
void config_free(struct config *c);

/* "250ms", "5s", "10m", "1h", "0". 0 or -EINVAL. */
int config_parse_duration(const char *text, uint64_t *ret_ns);
/* "65536", "64KiB", "8MiB", "1GiB", "8M" (= MiB). 0 or -EINVAL. */
int config_parse_bytes(const char *text, uint64_t *ret_bytes);

#endif
