/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Options: values, sources and their precedence, messages, and that help text and
 * manual page say what the table says.
 */
#include "unit/hex.h"

#include "base/prefix.h"
#include "config/options.h"
#include "config/suggest.h"

/* What one call of config_parse() gave. */
struct run {
	enum config_result result;
	struct config c;
	char *out, *err;
	size_t out_len, err_len;
};

/* argv and envp are lists of words, separated by blanks; "" = none. */
static char **split(const char *words, const char *first, int *ret_n, char *copy)
{
	static char *lists[2][600];
	static int which;
	char **v = lists[which ^= 1], *save = NULL;
	int n = 0;

	strcpy(copy, words);
	if (first)
		v[n++] = (char *)first;
	for (char *w = strtok_r(copy, " ", &save); w; w = strtok_r(NULL, " ", &save))
		v[n++] = w;
	v[n] = NULL;
	*ret_n = n;
	return v;
}

/* Strings of r->c live until the next parse(). */
static void parse(struct run *r, const char *args, const char *env)
{
	static char argv_copy[16384], envp_copy[16384];
	FILE *out = open_memstream(&r->out, &r->out_len);
	FILE *err = open_memstream(&r->err, &r->err_len);
	char **argv, **envp;
	int argc, n;

	argv = split(args, "serve", &argc, argv_copy);
	envp = split(env, NULL, &n, envp_copy);
	memset(&r->c, 0xa5, sizeof(r->c));
	r->result = config_parse(&r->c, argc, argv, envp, out, err);
	fclose(out);
	fclose(err);
}

static void done(struct run *r)
{
	if (r->result == CONFIG_OK)
		config_free(&r->c);
	free(r->out);
	free(r->err);
}

static void parse_ok(struct run *r, const char *args, const char *env)
{
	parse(r, args, env);
	if (r->result != CONFIG_OK)
		fail_msg("serve %s [%s]: %s", args, env, r->err);
	assert_string_equal(r->err, "");
	assert_string_equal(r->out, "");
}

/* Refused, with exactly this line, and *ret untouched. */
static void parse_bad(const char *args, const char *env, const char *message)
{
	struct config untouched;
	char line[512];
	struct run r;

	memset(&untouched, 0xa5, sizeof(untouched));
	parse(&r, args, env);
	assert_int_equal(r.result, CONFIG_ERROR);
	snprintf(line, sizeof(line), "%s\n", message);
	assert_string_equal(r.err, line);
	assert_string_equal(r.out, "");
	assert_memory_equal(&r.c, &untouched, sizeof(untouched));
	done(&r);
}

static void listens_on(const struct config *c, unsigned i, const char *expected)
{
	char buf[ADDR_STRLEN];

	assert_true(i < c->n_listen);
	assert_string_equal(addr_format(&c->listen[i], buf), expected);
}

/* ---- values ---- */

static void durations(void **state)
{
	static const struct {
		const char *text;
		uint64_t ns;
	} good[] = {
		{ "0", 0 },
		{ "0s", 0 },
		{ "1ms", 1000000 },
		{ "250ms", 250000000 },
		{ "5s", 5000000000 },
		{ "5S", 5000000000 },
		{ "10m", 600000000000 },
		{ "1h", 3600000000000 },
		{ "87840h", 316224000000000000 },
		{ "00007s", 7000000000 },
	};
	static const char *const bad[] = {
		"",
		"5",
		"5x",
		"-5s",
		"+5s",
		" 5s",
		"5s ",
		"5 s",
		"1.5s",
		"s",
		"ms",
		"5us",
		"1m5s",
		"5min",
		"0x5s",
		"87841h",
		"99999999999999999999s",
		"18446744073709551615ms",
		"5s,",
	};
	uint64_t ns;

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(good); i++) {
		assert_int_equal(config_parse_duration(good[i].text, &ns), 0);
		assert_int_equal(ns, good[i].ns);
	}
	for (unsigned i = 0; i < ARRAY_SIZE(bad); i++) {
		ns = 77;
		if (config_parse_duration(bad[i], &ns) != -EINVAL)
			fail_msg("'%s' was accepted", bad[i]);
		assert_int_equal(ns, 77);
	}
}

static void bytes(void **state)
{
	static const struct {
		const char *text;
		uint64_t n;
	} good[] = {
		{ "0", 0 },
		{ "65536", 65536 },
		{ "65536B", 65536 },
		{ "64KiB", 65536 },
		{ "64kib", 65536 },
		{ "64K", 65536 },
		{ "8MiB", 8388608 },
		{ "8M", 8388608 },
		{ "1GiB", 1073741824 },
		{ "1g", 1073741824 },
		{ "18446744073709551615", UINT64_MAX },
		{ "17179869183GiB", 17179869183 * GiB },
	};
	static const char *const bad[] = {
		"",
		"KiB",
		"-1",
		"1.5MiB",
		"8MB",
		"8 MiB",
		"8MiB ",
		"1TiB",
		"0x10",
		"8MiBs",
		"18446744073709551616",
		"17179869184GiB",
		"99999999999999999999999",
	};
	uint64_t n;

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(good); i++) {
		assert_int_equal(config_parse_bytes(good[i].text, &n), 0);
		assert_int_equal(n, good[i].n);
	}
	for (unsigned i = 0; i < ARRAY_SIZE(bad); i++) {
		n = 77;
		if (config_parse_bytes(bad[i], &n) != -EINVAL)
			fail_msg("'%s' was accepted", bad[i]);
		assert_int_equal(n, 77);
	}
}

/* The defaults are a contract (charts and tests rely on them): written down a second time. */
static void defaults(void **state)
{
	char buf[ADDR_STRLEN];
	struct run r;

	(void)state;
	parse_ok(&r, "", "PATH=/bin HOME=/root");
	assert_int_equal(r.c.n_listen, 1);
	listens_on(&r.c, 0, "[::]:50060");
	assert_string_equal(addr_format(&r.c.admin, buf), "127.0.0.1:9550");
	assert_int_equal(r.c.datapath, DATAPATH_AUTO);
	assert_in_range(r.c.workers, 1, 1024);
	assert_int_equal(r.c.n_allow_cidr, 0);
	assert_int_equal(r.c.n_allow_port, 0);
	assert_false(r.c.allow_loopback);
	assert_int_equal(r.c.unreachable_status, 2);
	assert_int_equal(r.c.timeouts.connect_ns, 5 * NSEC_PER_SEC);
	assert_int_equal(r.c.timeouts.handshake_ns, 10 * NSEC_PER_SEC);
	assert_int_equal(r.c.timeouts.response_ns, 60 * NSEC_PER_SEC);
	assert_int_equal(r.c.timeouts.stall_ns, 30 * NSEC_PER_SEC);
	assert_int_equal(r.c.timeouts.client_ns, 300 * NSEC_PER_SEC);
	assert_int_equal(r.c.timeouts.idle_ns, 600 * NSEC_PER_SEC);
	assert_int_equal(r.c.timeouts.drain_ns, 300 * NSEC_PER_SEC);
	assert_int_equal(r.c.limits.max_clients, 10000);
	assert_int_equal(r.c.limits.max_streams, 256);
	assert_int_equal(r.c.limits.max_ticket, 65536);
	assert_int_equal(r.c.limits.client_inflight, 4 * MiB);
	assert_int_equal(r.c.limits.total_inflight, GiB);
	assert_int_equal(r.c.limits.promote_after, MiB);
	assert_int_equal(r.c.log_format, LOG_LOGFMT);
	assert_int_equal(r.c.log_level, LOG_INFO);
	assert_string_equal(r.c.pin_dir, "/sys/fs/bpf/flightsplice");
	done(&r);
}

/* Every flag, once with a blank and once with '='. */
static void flags(void **state)
{
	char buf[ADDR_STRLEN];
	struct run r;

	(void)state;
	parse_ok(&r,
		 "--listen 10.0.0.1:7 --listen=[fd00::1]:8 --admin off --datapath sockmap "
		 "--workers=3 --promote-after 0 --pin-dir=/sys/fs/bpf/x --allow-cidr 10.0.0.0/8 "
		 "--allow-cidr=fd00::/8 --allow-port 50051 --allow-port=50100-50200 "
		 "--allow-loopback --unreachable-status=unavailable --connect-timeout 1s",
		 "");
	assert_int_equal(r.c.n_listen, 2);
	listens_on(&r.c, 0, "10.0.0.1:7");
	listens_on(&r.c, 1, "[fd00::1]:8");
	assert_int_equal(r.c.admin.len, 0);
	assert_int_equal(r.c.datapath, DATAPATH_SOCKMAP);
	assert_int_equal(r.c.workers, 3);
	assert_int_equal(r.c.limits.promote_after, 0);
	assert_string_equal(r.c.pin_dir, "/sys/fs/bpf/x");
	assert_int_equal(r.c.n_allow_cidr, 2);
	assert_string_equal(r.c.allow_cidr[0], "10.0.0.0/8");
	assert_string_equal(r.c.allow_cidr[1], "fd00::/8");
	assert_int_equal(r.c.n_allow_port, 2);
	assert_string_equal(r.c.allow_port[0], "50051");
	assert_string_equal(r.c.allow_port[1], "50100-50200");
	assert_true(r.c.allow_loopback);
	assert_int_equal(r.c.unreachable_status, 14);
	assert_int_equal(r.c.timeouts.connect_ns, NSEC_PER_SEC);
	done(&r);

	parse_ok(&r,
		 "--admin=[::1]:9 --datapath=packet --allow-loopback=no --unreachable-status "
		 "internal "
		 "--handshake-timeout=2s --response-timeout 0 --stall-timeout=4s --client-timeout "
		 "5s "
		 "--idle-timeout=6s --drain-timeout 7s --max-clients=8 --max-clients-per-source 3 "
		 "--max-streams 9 "
		 "--max-ticket=1KiB --client-inflight 256KiB --total-inflight=2GiB --workers=1 "
		 "--log-format json --log-level=debug",
		 "");
	assert_string_equal(addr_format(&r.c.admin, buf), "[::1]:9");
	assert_int_equal(r.c.datapath, DATAPATH_PACKET);
	assert_false(r.c.allow_loopback);
	assert_int_equal(r.c.unreachable_status, 13);
	assert_int_equal(r.c.timeouts.handshake_ns, 2 * NSEC_PER_SEC);
	assert_int_equal(r.c.timeouts.response_ns, 0);
	assert_int_equal(r.c.timeouts.stall_ns, 4 * NSEC_PER_SEC);
	assert_int_equal(r.c.timeouts.client_ns, 5 * NSEC_PER_SEC);
	assert_int_equal(r.c.timeouts.idle_ns, 6 * NSEC_PER_SEC);
	assert_int_equal(r.c.timeouts.drain_ns, 7 * NSEC_PER_SEC);
	assert_int_equal(r.c.limits.max_clients, 8);
	assert_int_equal(r.c.limits.max_per_source, 3);
	assert_int_equal(r.c.limits.max_streams, 9);
	assert_int_equal(r.c.limits.max_ticket, 1024);
	assert_int_equal(r.c.limits.client_inflight, 256 * KiB);
	assert_int_equal(r.c.limits.total_inflight, 2 * GiB);
	assert_int_equal(r.c.log_format, LOG_JSON);
	assert_int_equal(r.c.log_level, LOG_DEBUG);
	done(&r);
}

static void precedence(void **state)
{
	struct run r;

	(void)state;
	parse_ok(&r, "--max-streams 3 --max-streams 4",
		 "FLIGHTSPLICE_MAX_STREAMS=2 FLIGHTSPLICE_MAX_CLIENTS=5 "
		 "FLIGHTSPLICE_DATAPATH=relay");
	assert_int_equal(r.c.limits.max_streams, 4); /* the last one */
	assert_int_equal(r.c.limits.max_clients, 5);
	assert_int_equal(r.c.datapath, DATAPATH_RELAY);
	done(&r);

	/* Lists: the environment replaces the default, the command line replaces both. */
	parse_ok(&r, "", "FLIGHTSPLICE_LISTEN=:1,127.0.0.1:2 FLIGHTSPLICE_ALLOW_PORT=3,4-5");
	assert_int_equal(r.c.n_listen, 2);
	listens_on(&r.c, 0, "[::]:1");
	listens_on(&r.c, 1, "127.0.0.1:2");
	assert_int_equal(r.c.n_allow_port, 2);
	assert_string_equal(r.c.allow_port[0], "3");
	assert_string_equal(r.c.allow_port[1], "4-5");
	done(&r);
	parse_ok(&r, "--listen :3 --allow-port=9",
		 "FLIGHTSPLICE_LISTEN=:1,:2 FLIGHTSPLICE_ALLOW_PORT=3,4");
	assert_int_equal(r.c.n_listen, 1);
	listens_on(&r.c, 0, "[::]:3");
	assert_int_equal(r.c.n_allow_port, 1);
	assert_string_equal(r.c.allow_port[0], "9");
	done(&r);

	/* The variables of a repeated parse are intact: lists are taken apart in a copy. */
	parse_ok(&r, "--allow-loopback=false", "FLIGHTSPLICE_ALLOW_LOOPBACK=yes");
	assert_false(r.c.allow_loopback);
	done(&r);
}

static void environment(void **state)
{
	static const char *const ignored[] = {
		"FLIGHTSPLICE=x",
		"FLIGHTSPLICE_MAX_STREAMS=",
		"FLIGHTSPLICE_LISTEN=",
		"FLIGHTSPLICE_SERVICE_HOST=10.0.0.1",
		"FLIGHTSPLICE_SERVICE_PORT=50060",
		"FLIGHTSPLICE_SERVICE_PORT_GRPC=50060",
		"FLIGHTSPLICE_PORT=tcp://10.0.0.1:50060",
		"FLIGHTSPLICE_PORT_50060_TCP=tcp://10.0.0.1:50060",
		"FLIGHTSPLICE_PORT_50060_TCP_PROTO=tcp",
		"FLIGHTSPLICE_PORT_50060_TCP_PORT=50060",
		"FLIGHTSPLICE_PORT_50060_TCP_ADDR=10.0.0.1",
		"FLIGHTSPLICE_METRICS_SERVICE_HOST=10.0.0.2",
		"FLIGHTSPLICE_METRICS_PORT_9550_TCP_ADDR=10.0.0.2",
		"FLIGHTSPLICE_SHARED=/somewhere",
		"FLIGHTSPLICE_TEST_SEED=5",
	};
	struct run r;

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(ignored); i++) {
		parse_ok(&r, "", ignored[i]);
		assert_int_equal(r.c.limits.max_streams, 256);
		assert_int_equal(r.c.n_listen, 1);
		done(&r);
	}
	parse_bad("", "FLIGHTSPLICE_MAX_STREAM=5",
		  "'FLIGHTSPLICE_MAX_STREAM': unknown environment variable, did you mean "
		  "FLIGHTSPLICE_MAX_STREAMS?");
	parse_bad("", "FLIGHTSPLICE_FROBNICATE=5",
		  "'FLIGHTSPLICE_FROBNICATE': unknown environment variable (see flightsplice serve "
		  "--help)");
	parse_bad("", "FLIGHTSPLICE_PORT=50060",
		  "'FLIGHTSPLICE_PORT': unknown environment variable (see flightsplice serve "
		  "--help)");
	parse_bad("", "FLIGHTSPLICE_SUPPORT_5=1",
		  "'FLIGHTSPLICE_SUPPORT_5': unknown environment variable (see flightsplice serve "
		  "--help)");
	parse_bad("", "FLIGHTSPLICE_CONNECT_TIMEOUT=5x",
		  "FLIGHTSPLICE_CONNECT_TIMEOUT: '5x' is not a duration (like 250ms, 5s, 10m; 0 = "
		  "off)");
	parse_bad("", "FLIGHTSPLICE_ALLOW_PORT=5,,6",
		  "FLIGHTSPLICE_ALLOW_PORT: '' is not a port or range of ports (like 50051, "
		  "50000-50100)");
	/* A wrong variable is told even where a flag would win. */
	parse_bad("--connect-timeout 5s", "FLIGHTSPLICE_CONNECT_TIMEOUT=no",
		  "FLIGHTSPLICE_CONNECT_TIMEOUT: 'no' is not a duration (like 250ms, 5s, 10m; 0 = "
		  "off)");
}

static void no_environment(void **state)
{
	char *argv[] = { (char *)"serve", NULL };
	struct config c;

	(void)state;
	assert_int_equal(config_parse(&c, 1, argv, NULL, stdout, stderr), CONFIG_OK);
	assert_null(c.storage);
	config_free(&c);
	config_free(&c); /* of a zeroed one */
	config_free(NULL);
}

static void messages(void **state)
{
	static const struct {
		const char *args, *message;
	} bad[] = {
		{ "--connect-timeout 5x",
		  "--connect-timeout: '5x' is not a duration (like 250ms, 5s, 10m; 0 = off)" },
		{ "--max-ticket=12q",
		  "--max-ticket: '12q' is not a number of bytes (like 65536, 64KiB, 8MiB)" },
		{ "--max-ticket 17MiB",
		  "--max-ticket: '17MiB' is out of range, it must be 256 to 16MiB" },
		{ "--client-inflight 255KiB",
		  "--client-inflight: '255KiB' is out of range, it must be 256KiB to 1024GiB" },
		{ "--max-streams 0", "--max-streams: '0' is out of range, it must be 1 to 65536" },
		{ "--max-streams 99999999999999999999",
		  "--max-streams: '99999999999999999999' is out of range, it must be 1 to 65536" },
		{ "--max-clients many", "--max-clients: 'many' is not a whole number" },
		{ "--max-clients -1", "--max-clients: '-1' is not a whole number" },
		{ "--workers many", "--workers: 'many' is not a whole number or 'auto'" },
		{ "--workers 0", "--workers: '0' is out of range, it must be 1 to 1024" },
		{ "--datapath fast",
		  "--datapath: 'fast' is not one of auto, packet, sockmap, relay" },
		{ "--unreachable-status ok",
		  "--unreachable-status: 'ok' is not one of unknown, unavailable, internal" },
		{ "--log-format xml", "--log-format: 'xml' is not one of logfmt, json" },
		{ "--log-level=INFO",
		  "--log-level: 'INFO' is not one of error, warn, info, debug" },
		{ "--allow-loopback=maybe", "--allow-loopback: 'maybe' is not true or false" },
		{ "--listen localhost:50060",
		  "--listen: 'localhost:50060' is not an IP address and port (like 0.0.0.0:50060, "
		  "[::1]:50060, :50060)" },
		{ "--listen 50060",
		  "--listen: '50060' is not an IP address and port (like 0.0.0.0:50060, "
		  "[::1]:50060, :50060)" },
		{ "--admin on", "--admin: 'on' is not an IP address and port (like 127.0.0.1:9550, "
				"[::]:9550) or 'off'" },
		{ "--allow-cidr 10.1.2.3/8",
		  "--allow-cidr: '10.1.2.3/8' is not an address range (like 10.0.0.0/8, fd00::/8, "
		  "10.1.2.3; no bits set behind the length)" },
		{ "--allow-port 0",
		  "--allow-port: '0' is not a port or range of ports (like 50051, "
		  "50000-50100)" },
		{ "--pin-dir maps", "--pin-dir: 'maps' is not an absolute path" },
		{ "--conect-timeout=5s",
		  "unknown flag '--conect-timeout', did you mean --connect-timeout?" },
		{ "-listen :5", "unknown flag '-listen', did you mean --listen?" },
		{ "--hlep", "unknown flag '--hlep', did you mean --help?" },
		{ "--frobnicate", "unknown flag '--frobnicate' (see --help)" },
		{ "--", "unknown flag '--' (see --help)" },
		{ "--=5", "unknown flag '--' (see --help)" },
		{ "--listen :5 sometimes",
		  "unexpected argument 'sometimes': serve takes only flags (see --help)" },
		{ "--allow-loopback false",
		  "unexpected argument 'false': serve takes only flags (see --help)" },
		{ "--workers", "--workers: a value is missing (N|auto)" },
		{ "--listen :5 --listen :5", "--listen: [::]:5 is given twice" },
		{ "--listen 127.0.0.1:9550", "--admin: 127.0.0.1:9550 is also given to --listen" },
		{ "--client-inflight 2GiB --workers 1",
		  "--client-inflight: is larger than --total-inflight, which holds for all clients "
		  "together" },
		{ "--total-inflight 1MiB --client-inflight 1MiB --workers 8",
		  "--total-inflight: leaves each of 8 workers less than 256KiB; raise it to "
		  "2048KiB "
		  "or lower --workers" },
	};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(bad); i++)
		parse_bad(bad[i].args, "", bad[i].message);
}

/* Flags of the design that do not exist yet must not look as if they did. */
static void not_yet(void **state)
{
	static const char *const names[] = { "--listen-tls :5", "--scheduler http://x:1",
					     "--tls-cert x", "--hide-topology" };

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(names); i++) {
		struct run r;

		parse(&r, names[i], "");
		assert_int_equal(r.result, CONFIG_ERROR);
		done(&r);
	}
}

static void hostile_text(void **state)
{
	char *argv[] = { (char *)"serve", (char *)"--datapath", NULL, NULL };
	static char value[5000];
	char *err = NULL;
	size_t len;
	FILE *f = open_memstream(&err, &len);
	struct config c;

	(void)state;
	memset(value, 'x', sizeof(value) - 1);
	memcpy(value, "\033[31m\n\x7f", 7);
	argv[2] = value;
	assert_int_equal(config_parse(&c, 3, argv, NULL, f, f), CONFIG_ERROR);
	fclose(f);
	assert_true(len < 200);
	assert_memory_equal(err, "--datapath: '?[31m??xxx", 23);
	assert_non_null(strstr(err, "...' is not one of auto"));
	free(err);
}

/* One more than fits. */
static void too_many(void **state)
{
	char args[CONFIG_LISTEN_MAX * 20 + 40] = "", ports[CONFIG_ALLOW_MAX * 6 + 40] = "";
	struct run r;

	(void)state;
	for (int i = 1; i <= CONFIG_LISTEN_MAX; i++)
		sprintf(args + strlen(args), "--listen :%d ", i);
	parse_ok(&r, args, "");
	assert_int_equal(r.c.n_listen, CONFIG_LISTEN_MAX);
	done(&r);
	strcat(args, "--listen :999");
	parse_bad(args, "", "--listen: more than 16 values");

	strcpy(ports, "FLIGHTSPLICE_ALLOW_PORT=");
	for (int i = 1; i <= CONFIG_ALLOW_MAX; i++)
		sprintf(ports + strlen(ports), "%s%d", i == 1 ? "" : ",", i);
	parse_ok(&r, "", ports);
	assert_int_equal(r.c.n_allow_port, CONFIG_ALLOW_MAX);
	assert_string_equal(r.c.allow_port[CONFIG_ALLOW_MAX - 1], "256");
	done(&r);
	strcat(ports, ",257");
	parse_bad("", ports, "FLIGHTSPLICE_ALLOW_PORT: more than 256 values");
}

/* ---- what shows the table ---- */

static void help(void **state)
{
	struct run r;

	(void)state;
	parse(&r, "--help", "FLIGHTSPLICE_TYPO=1"); /* help comes before complaints */
	assert_int_equal(r.result, CONFIG_HELP);
	assert_string_equal(r.err, "");
	assert_non_null(strstr(r.out, "Exit codes: 0"));
	for (char *line = r.out, *end; (end = strchr(line, '\n')); line = end + 1)
		if (end - line > 100)
			fail_msg("too wide: %.*s", (int)(end - line), line);
	done(&r);
	parse(&r, "--listen nonsense -h", "");
	assert_int_equal(r.result, CONFIG_HELP);
	done(&r);
	/* The value of a flag is not a flag. */
	parse_bad("--pin-dir --help", "", "--pin-dir: '--help' is not an absolute path");
}

/* A whole file; NULL when it cannot be read. For free(). */
static char *read_file(const char *path)
{
	FILE *f = fopen(path, "r");
	char *text = NULL;
	size_t cap = 0;
	ssize_t n;

	if (!f)
		return NULL;
	n = getdelim(&text, &cap, '\0', f);
	fclose(f);
	if (n < 0) {
		free(text);
		return NULL;
	}
	return text;
}

struct documents {
	const char *help, *man;
	unsigned n;
};

static void is_documented(void *arg, const struct option_view *o)
{
	struct documents *d = arg;
	char text[256];

	d->n++;
	assert_int_equal(o->n_values, 0);
	snprintf(text, sizeof(text), "  --%s%s%s", o->flag, o->metavar ? " " : "",
		 o->metavar ? o->metavar : "");
	if (!strstr(d->help, text))
		fail_msg("not in --help: %s", text);
	snprintf(text, sizeof(text), "default %s, env %s\n", o->def ? o->def : "none", o->env);
	if (!strstr(d->help, text))
		fail_msg("not in --help: %s", text);

	snprintf(text, sizeof(text), "\n.It Fl -%s%s%s\n", o->flag, o->metavar ? " Ar " : "",
		 o->metavar ? o->metavar : "");
	if (!strstr(d->man, text))
		fail_msg("not in the manual page: %s", text);
	snprintf(text, sizeof(text), "\n.Pq default %s, Ev %s\n", o->def ? o->def : "none", o->env);
	if (!strstr(d->man, text))
		fail_msg("not in the manual page: %s", text);
}

static void documentation(void **state)
{
	struct documents d = { .n = 0 };
	char *man = read_file("docs/flightsplice.1");
	unsigned items = 0;
	struct run r;

	(void)state;
	if (!man)
		fail_msg("docs/flightsplice.1 is not there: run this in the top folder");
	parse(&r, "--help", "");
	d.help = r.out;
	d.man = man;
	config_each_option(NULL, is_documented, &d);
	assert_int_equal(d.n, 25);
	for (const char *s = man; (s = strstr(s, "\n.It Fl -")); s++)
		items++;
	assert_int_equal(items, d.n);
	done(&r);
	free(man);
}

struct rendered {
	char args[8192];
};

/* The values as one would write them. */
static void render(void *arg, const struct option_view *o)
{
	struct rendered *r = arg;

	for (unsigned i = 0; i < o->n_values; i++)
		sprintf(r->args + strlen(r->args), "--%s=%s ", o->flag, o->values[i]);
}

/* What config_each_option() shows, given as flags, makes the same configuration. */
static void values_read_back(void **state)
{
	static const char *const args[] = {
		"",
		"--workers 7 --listen 1.2.3.4:5 --listen [::]:6 --admin off --allow-cidr fd00::/8 "
		"--allow-cidr 10.0.0.0/8 --allow-port 5-6 --allow-loopback --connect-timeout "
		"1500ms "
		"--idle-timeout 90m --drain-timeout 0 --max-ticket 1000 --client-inflight 1025KiB "
		"--promote-after 0 --datapath relay --log-format json --unreachable-status "
		"internal",
	};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(args); i++) {
		struct rendered one = { "" }, two = { "" };
		struct run r;

		parse_ok(&r, args[i], "");
		config_each_option(&r.c, render, &one);
		done(&r);
		parse_ok(&r, one.args, "");
		config_each_option(&r.c, render, &two);
		done(&r);
		assert_string_equal(one.args, two.args);
	}
	/* As short as it can be said. */
	{
		struct rendered one = { "" };
		struct run r;

		parse_ok(&r, args[1], "");
		config_each_option(&r.c, render, &one);
		assert_non_null(strstr(one.args, "--connect-timeout=1500ms "));
		assert_non_null(strstr(one.args, "--idle-timeout=90m "));
		assert_non_null(strstr(one.args, "--drain-timeout=0 "));
		assert_non_null(strstr(one.args, "--client-inflight=1025KiB "));
		assert_non_null(strstr(one.args, "--max-ticket=1000 "));
		assert_non_null(strstr(one.args, "--admin=off "));
		done(&r);
	}
}

static const char *nearest(const char *typed)
{
	struct suggest s;

	suggest_init(&s, typed);
	suggest_offer(&s, "serve");
	suggest_offer(&s, "version");
	suggest_offer(&s, "streams");
	suggest_offer(&s, "top");
	return s.best ? s.best : "-";
}

static void suggestions(void **state)
{
	char long_name[1000];

	(void)state;
	assert_string_equal(nearest("serv"), "serve");
	assert_string_equal(nearest("srever"), "serve");
	assert_string_equal(nearest("sevre"), "serve"); /* one swap */
	assert_string_equal(nearest("verison"), "version");
	assert_string_equal(nearest("stream"), "streams");
	assert_string_equal(nearest("tpo"), "top");
	assert_string_equal(nearest("pot"), "-");
	assert_string_equal(nearest("quickstart"), "-");
	assert_string_equal(nearest(""), "-");
	memset(long_name, 's', sizeof(long_name) - 1);
	long_name[sizeof(long_name) - 1] = '\0';
	assert_string_equal(nearest(long_name), "-");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(durations),      cmocka_unit_test(bytes),
		cmocka_unit_test(defaults),       cmocka_unit_test(flags),
		cmocka_unit_test(precedence),     cmocka_unit_test(environment),
		cmocka_unit_test(no_environment), cmocka_unit_test(messages),
		cmocka_unit_test(not_yet),        cmocka_unit_test(hostile_text),
		cmocka_unit_test(too_many),       cmocka_unit_test(help),
		cmocka_unit_test(documentation),  cmocka_unit_test(values_read_back),
		cmocka_unit_test(suggestions),
	};

	return cmocka_run_group_tests_name("config", tests, NULL, NULL);
}
