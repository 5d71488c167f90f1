/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ticket.c - which executor a ticket means.
 *
 * Three messages, one in the other: Flight's Ticket holds bytes, the bytes are
 * Ballista's Action, and the Action holds a FetchPartition with the executor's
 * host and port. All three are decoded into one arena (arena.h) and what is
 * wanted is copied out; fields that we do not know are skipped, so tickets of
 * other Ballista versions work.
 *
 * A ticket comes from a client and is a request to connect somewhere. Nothing
 * in it is believed: the host must look like a name or an address (it ends up in
 * the resolver and in logs), the port must be one, and whether the address may be
 * dialled is decided later, by policy, on the resolved address.
 */
#include "flight/flight.h"

#include "ballista.pb-c.h"
#include "base/addr.h"
#include "flight.pb-c.h"
#include "flight/arena.h"

typedef Arrow__Flight__Protocol__Ticket flight_ticket;
typedef Ballista__Protobuf__Action ballista_action;
typedef Ballista__Protobuf__FetchPartition fetch_partition;

static bool is_host_char(uint8_t c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       c == '-' || c == '.' || c == '_';
}

/* An IPv6 literal, with or without brackets: the only host with a ':' or a '[' in it. */
static bool copy_ipv6(const char *text, char *ret)
{
	struct addr a;
	size_t n = strlen(text);

	if (addr_parse_ip(text, 0, &a) || a.sa.sa_family != AF_INET6)
		return false;
	if (text[0] == '[') {
		text++;
		n -= 2;
	}
	memcpy(ret, text, n);
	ret[n] = '\0';
	return true;
}

/* Returns what is wrong with the host, NULL when nothing is. */
static const char *copy_host(const ProtobufCBinaryData *host, char ret[TICKET_HOST_MAX + 1])
{
	char text[TICKET_HOST_MAX + 1];
	bool literal = false;

	if (!host->len)
		return "ticket has no fetch_partition.host";
	if (host->len > TICKET_HOST_MAX)
		return "fetch_partition.host is too long";
	for (size_t i = 0; i < host->len; i++) {
		uint8_t c = host->data[i];

		if (c == ':' || c == '[' || c == ']')
			literal = true;
		else if (!is_host_char(c))
			return "fetch_partition.host has a character that no host has";
	}
	memcpy(text, host->data, host->len);
	text[host->len] = '\0';
	if (!literal)
		memcpy(ret, text, host->len + 1);
	else if (!copy_ipv6(text, ret))
		return "fetch_partition.host is neither a name nor an address";
	return NULL;
}

static void copy_job(const ProtobufCBinaryData *job, char ret[TICKET_JOB_MAX + 1])
{
	size_t n = min_u64(job->len, TICKET_JOB_MAX);

	for (size_t i = 0; i < n; i++)
		ret[i] = (char)(job->data[i] >= 0x20 && job->data[i] < 0x7f ? job->data[i] : '?');
	ret[n] = '\0';
}

static const char *copy_fields(const fetch_partition *f, struct ticket *ret)
{
	struct ticket t = { .stage = f->stage_id, .partition = f->partition_id };
	const char *why = copy_host(&f->host, t.host);

	if (why)
		return why;
	if (!f->port)
		return "ticket has no fetch_partition.port";
	if (f->port > UINT16_MAX)
		return "fetch_partition.port is out of range";
	t.port = (uint16_t)f->port;
	copy_job(&f->job_id, t.job);
	*ret = t;
	return NULL;
}

static const char *decode(const uint8_t *msg, size_t len, ProtobufCAllocator *memory,
			  struct ticket *ret)
{
	flight_ticket *ticket;
	ballista_action *action;

	ticket = arrow__flight__protocol__ticket__unpack(memory, len, msg);
	if (!ticket)
		return "request is not a Flight Ticket";
	if (!ticket->ticket.len)
		return "ticket is empty";
	action =
		ballista__protobuf__action__unpack(memory, ticket->ticket.len, ticket->ticket.data);
	if (!action)
		return "ticket is not a Ballista Action";
	if (!action->fetch_partition)
		return "ticket has no fetch_partition";
	return copy_fields(action->fetch_partition, ret);
}

int ticket_decode(const uint8_t *msg, size_t len, struct ticket *ret, const char **ret_why)
{
	struct arena memory;
	const char *why;

	arena_init(&memory, len);
	why = decode(msg, len, &memory.allocator, ret);
	if (memory.exhausted)
		why = "ticket has too many fields";
	arena_free(&memory);
	if (!why)
		return 0;
	*ret_why = why;
	return -EINVAL;
}
