/* SPDX-License-Identifier: Apache-2.0 */
/*
 * table.c - every option of `serve`, one row each.
 *
 * Flag, environment variable (made from the flag), default, help text, reader and
 * place in struct config all come from here; parsing, --help and /config walk the
 * table. To add an option: a field in struct config, a row here, a paragraph in the
 * manual page (a test compares them).
 */
#include "config/table.h"

#include <ctype.h>

#include "config/values.h"

static const struct option_choice datapaths[] = {
	{ "auto", DATAPATH_AUTO },
	{ "packet", DATAPATH_PACKET },
	{ "sockmap", DATAPATH_SOCKMAP },
	{ "relay", DATAPATH_RELAY },
	{ NULL, 0 },
};

/* Numbers of grpc-status; flight.h has the names but config does not depend on it. */
static const struct option_choice unreachable[] = {
	{ "unknown", 2 },
	{ "unavailable", 14 },
	{ "internal", 13 },
	{ NULL, 0 },
};

static const struct option_choice log_formats[] = {
	{ "logfmt", LOG_LOGFMT },
	{ "json", LOG_JSON },
	{ NULL, 0 },
};

static const struct option_choice log_levels[] = {
	{ "error", LOG_ERROR }, { "warn", LOG_WARN }, { "info", LOG_INFO },
	{ "debug", LOG_DEBUG }, { NULL, 0 },
};

const char *const config_group_titles[GROUPS] = {
	[GROUP_LISTEN] = "Listening",
	[GROUP_DATAPATH] = "Datapath",
	[GROUP_POLICY] = "Who may be dialled",
	[GROUP_DEADLINES] = "Deadlines (250ms, 5s, 10m, 1h; 0 = off)",
	[GROUP_LIMITS] = "Limits (bytes: 65536, 64KiB, 8MiB, 1GiB)",
	[GROUP_LOGGING] = "Logging",
};

#define FIELD(f) .offset = offsetof(struct config, f)
#define LIST(f, n, cap)                                                                            \
	.offset = offsetof(struct config, f), .count_offset = offsetof(struct config, n),          \
	.element = sizeof(((struct config *)0)->f[0]), .max_elements = (cap)
#define DEADLINE(f) .type = &type_duration, .metavar = "DURATION", FIELD(timeouts.f)

const struct option config_options[] = {
	{
		.group = GROUP_LISTEN,
		.flag = "listen",
		.metavar = "HOST:PORT",
		.def = "[::]:50060",
		.help = "Data port for clients, HTTP/2 without TLS. HOST is an IP address; [::] "
			"takes "
			"IPv4 as well. The scheduler's --advertise-flight-endpoint names it.",
		.type = &type_listen,
		LIST(listen, n_listen, CONFIG_LISTEN_MAX),
	},
	{
		.group = GROUP_LISTEN,
		.flag = "admin",
		.metavar = "HOST:PORT|off",
		.def = "127.0.0.1:9550",
		.help = "Metrics, health, live streams and configuration over HTTP. It has no "
			"authentication: keep it on loopback or a management network.",
		.type = &type_admin,
		FIELD(admin),
	},
	{
		.group = GROUP_DATAPATH,
		.flag = "datapath",
		.metavar = "auto|sockmap|relay",
		.def = "auto",
		.help = "How result bytes travel. auto takes the best that this kernel has been "
			"shown "
			"to do right, per connection; a named one is demanded, and the start fails "
			"when it cannot be had. relay copies in user space and always works.",
		.type = &type_choice,
		.choices = datapaths,
		FIELD(datapath),
	},
	{
		.group = GROUP_DATAPATH,
		.flag = "workers",
		.metavar = "N|auto",
		.def = "auto",
		.help = "Worker threads; auto is one per CPU that this process may run on.",
		.type = &type_workers,
		.min = 1,
		.max = 1024,
		FIELD(workers),
	},
	{
		.group = GROUP_DATAPATH,
		.flag = "promote-after",
		.metavar = "BYTES",
		.def = "1MiB",
		.help = "A stream moves from relay to the kernel once it has delivered this much; "
			"0 "
			"keeps all streams on relay.",
		.type = &type_bytes,
		.max = 1024 * GiB,
		FIELD(limits.promote_after),
	},
	{
		.group = GROUP_DATAPATH,
		.flag = "pin-dir",
		.metavar = "DIR",
		.def = "/sys/fs/bpf/flightsplice",
		.help = "Where BPF maps are pinned, for bpftool and for the commands that look at "
			"a running proxy. Further proxies with the same one use DIR/2, DIR/3, ...",
		.type = &type_dir,
		FIELD(pin_dir),
	},
	{
		.group = GROUP_POLICY,
		.flag = "allow-cidr",
		.metavar = "CIDR",
		.help = "Executors must be in one of these ranges, like 10.0.0.0/8 or fd00::/8. "
			"Without it any address may be dialled but loopback, link-local and cloud "
			"metadata, multicast, reserved ones and this proxy itself; those stay "
			"refused with it too.",
		.type = &type_cidr,
		LIST(allow_cidr, n_allow_cidr, CONFIG_ALLOW_MAX),
	},
	{
		.group = GROUP_POLICY,
		.flag = "allow-port",
		.metavar = "LO[-HI]",
		.help = "Executors must listen on one of these ports, like 50051 or 50000-50100. "
			"Without it any port may be dialled.",
		.type = &type_ports,
		LIST(allow_port, n_allow_port, CONFIG_ALLOW_MAX),
	},
	{
		.group = GROUP_POLICY,
		.flag = "allow-loopback",
		.def = "false",
		.help = "Executors on 127.0.0.0/8 and ::1 may be dialled: for trying things out on "
			"one machine.",
		.type = &type_switch,
		FIELD(allow_loopback),
	},
	{
		.group = GROUP_POLICY,
		.flag = "unreachable-status",
		.metavar = "unknown|unavailable|internal",
		.def = "unknown",
		.help = "The gRPC status when an executor cannot be reached. Ballista's client "
			"tries "
			"again after UNKNOWN only.",
		.type = &type_choice,
		.choices = unreachable,
		FIELD(unreachable_status),
	},
	{
		.group = GROUP_DEADLINES,
		.flag = "connect-timeout",
		.def = "5s",
		.help = "To resolve an executor's name and connect to it.",
		DEADLINE(connect_ns),
	},
	{
		.group = GROUP_DEADLINES,
		.flag = "handshake-timeout",
		.def = "10s",
		.help = "For a client to send its HTTP/2 preface and a whole request, and for an "
			"executor to send its SETTINGS.",
		DEADLINE(handshake_ns),
	},
	{
		.group = GROUP_DEADLINES,
		.flag = "response-timeout",
		.def = "60s",
		.help = "From the request to the first response headers of an executor.",
		DEADLINE(response_ns),
	},
	{
		.group = GROUP_DEADLINES,
		.flag = "stall-timeout",
		.def = "30s",
		.help = "An executor that may send, sends nothing, and does not answer a PING "
			"either. "
			"A silent one that answers is left alone.",
		DEADLINE(stall_ns),
	},
	{
		.group = GROUP_DEADLINES,
		.flag = "client-timeout",
		.def = "5m",
		.help = "A client that takes nothing while something waits for it.",
		DEADLINE(client_ns),
	},
	{
		.group = GROUP_DEADLINES,
		.flag = "idle-timeout",
		.def = "10m",
		.help = "A client connection without streams.",
		DEADLINE(idle_ns),
	},
	{
		.group = GROUP_DEADLINES,
		.flag = "drain-timeout",
		.def = "5m",
		.help = "From SIGTERM until streams that are still running are ended.",
		DEADLINE(drain_ns),
	},
	{
		.group = GROUP_LIMITS,
		.flag = "max-clients",
		.metavar = "N",
		.def = "10000",
		.help = "Client connections.",
		.type = &type_count,
		.min = 1,
		.max = 10000000,
		FIELD(limits.max_clients),
	},
	{
		.group = GROUP_LIMITS,
		.flag = "max-clients-per-source",
		.metavar = "N",
		.def = "0",
		.help = "Client connections of one IPv4 address or one IPv6 /64; 0 = no limit of "
			"its own. Behind a load balancer or NAT that hides addresses leave it off.",
		.type = &type_count,
		.max = 10000000,
		FIELD(limits.max_per_source),
	},
	{
		.group = GROUP_LIMITS,
		.flag = "max-streams",
		.metavar = "N",
		.def = "256",
		.help = "Streams at once on one client connection.",
		.type = &type_count,
		.min = 1,
		.max = 65536,
		FIELD(limits.max_streams),
	},
	{
		.group = GROUP_LIMITS,
		.flag = "max-ticket",
		.metavar = "BYTES",
		.def = "64KiB",
		.help = "Size of a request message.",
		.type = &type_bytes32,
		.min = 256,
		.max = 16 * MiB,
		FIELD(limits.max_ticket),
	},
	{
		.group = GROUP_LIMITS,
		.flag = "client-inflight",
		.metavar = "BYTES",
		.def = "4MiB",
		.help = "Bytes that executors have been allowed to send, or that are held here, "
			"for "
			"one client.",
		.type = &type_bytes,
		.min = CONFIG_INFLIGHT_MIN,
		.max = 1024 * GiB,
		FIELD(limits.client_inflight),
	},
	{
		.group = GROUP_LIMITS,
		.flag = "total-inflight",
		.metavar = "BYTES",
		.def = "1GiB",
		.help = "The same for all clients together, shared evenly by the workers. It "
			"bounds "
			"the memory that results take.",
		.type = &type_bytes,
		.min = CONFIG_INFLIGHT_MIN,
		.max = 1024 * GiB,
		FIELD(limits.total_inflight),
	},
	{
		.group = GROUP_LOGGING,
		.flag = "log-format",
		.metavar = "logfmt|json",
		.def = "logfmt",
		.help = "Lines on standard error.",
		.type = &type_choice,
		.choices = log_formats,
		FIELD(log_format),
	},
	{
		.group = GROUP_LOGGING,
		.flag = "log-level",
		.metavar = "error|warn|info|debug",
		.def = "info",
		.help = "info has one line for each finished stream, warn only for those that "
			"failed, debug also connections that come and go.",
		.type = &type_choice,
		.choices = log_levels,
		FIELD(log_level),
	},
};

const unsigned config_n_options = ARRAY_SIZE(config_options);

const char *option_env(const struct option *o, char buf[CONFIG_ENV_MAX])
{
	size_t n = sizeof(CONFIG_ENV_PREFIX) - 1;

	memcpy(buf, CONFIG_ENV_PREFIX, n);
	for (const char *s = o->flag; *s && n < CONFIG_ENV_MAX - 1; s++, n++) {
		buf[n] = (char)toupper((unsigned char)*s);
		if (*s == '-')
			buf[n] = '_';
	}
	buf[n] = '\0';
	return buf;
}

/* A list's texts for one callback; the longest list is the allow lists'. */
struct value_texts {
	const char *text[CONFIG_ALLOW_MAX];
	char buf[CONFIG_LISTEN_MAX][CONFIG_TEXT_MAX];
};

static unsigned collect_values(const struct option *o, struct config *c, struct value_texts *v)
{
	unsigned n = option_repeatable(o) ? *option_count(o, c) : 1;

	static_assert(CONFIG_ALLOW_MAX >= CONFIG_LISTEN_MAX, "one array fits all lists");
	for (unsigned i = 0; i < n; i++)
		v->text[i] = o->type->format(o, (char *)option_field(o, c) + i * o->element,
					     v->buf[i % CONFIG_LISTEN_MAX]);
	return n;
}

void config_each_option(const struct config *c, void (*fn)(void *arg, const struct option_view *o),
			void *arg)
{
	struct config copy; /* the accessors are not const; 10 KiB */
	struct value_texts v;
	char env[CONFIG_ENV_MAX];

	if (c)
		copy = *c;
	for (unsigned i = 0; i < config_n_options; i++) {
		const struct option *o = &config_options[i];
		struct option_view view = {
			.flag = o->flag,
			.env = option_env(o, env),
			.metavar = o->metavar,
			.def = o->def,
			.help = o->help,
			.repeatable = option_repeatable(o),
			.values = v.text,
			.n_values = c ? collect_values(o, &copy, &v) : 0,
		};

		fn(arg, &view);
	}
}
