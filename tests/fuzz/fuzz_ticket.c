/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A ticket, judged three times: by ticket_decode(), by a second reader of
 * protobuf written from the specification, and by the memory it took.
 *
 *   byte 0   what the rest is: a Ticket, an Action, or a FetchPartition; the
 *            messages around it are put there (so that mutation need not keep
 *            nested lengths right)
 *
 * A ticket that is accepted has a port, a host of characters that hosts have, and
 * a printable job; the second reader finds the same host, port and job; writing
 * the five fields into a ticket of our own and reading that gives them again; and
 * with a field added that nobody knows the answer stays the same.
 */
#include "fuzz/check.h"

#include "flight/arena.h"
#include "flight/flight.h"

/* ---- memory ---- */

/* Present when linked with a sanitizer. */
int __sanitizer_install_malloc_and_free_hooks(void (*malloc_hook)(const volatile void *, size_t),
					      void (*free_hook)(const volatile void *))
	__attribute__((weak));

static size_t allocated;

static void count_malloc(const volatile void *p, size_t n)
{
	(void)p;
	allocated += n;
}

static void ignore_free(const volatile void *p)
{
	(void)p;
}

static int decode(const struct input *in, struct ticket *ret, const char **ret_why)
{
	uint8_t *copy = input_copy(in);
	int err;

	allocated = 0;
	err = ticket_decode(copy, in->len, ret, ret_why);
	CHECK(allocated <= ARENA_BASE + ARENA_PER_BYTE * in->len);
	free(copy);
	return err;
}

/* ---- writing ---- */

struct out {
	uint8_t *p;
	size_t len, cap;
};

static void out_raw(struct out *o, const void *p, size_t n)
{
	if (o->len + n > o->cap) {
		o->cap = 2 * (o->len + n);
		o->p = realloc(o->p, o->cap);
		CHECK(o->p);
	}
	if (n)
		memcpy(o->p + o->len, p, n);
	o->len += n;
}

static void out_varint(struct out *o, uint64_t v)
{
	do {
		uint8_t c = (uint8_t)((v & 0x7f) | (v > 0x7f ? 0x80 : 0));

		out_raw(o, &c, 1);
		v >>= 7;
	} while (v);
}

static void out_bytes(struct out *o, unsigned field, const void *p, size_t n)
{
	out_varint(o, field << 3 | 2);
	out_varint(o, n);
	out_raw(o, p, n);
}

static void out_uint(struct out *o, unsigned field, uint64_t v)
{
	out_varint(o, field << 3);
	out_varint(o, v);
}

/* Replaces *o by a message that holds it as a field. */
static void out_wrap(struct out *o, unsigned field)
{
	struct out outer = { .p = NULL };

	out_bytes(&outer, field, o->p, o->len);
	free(o->p);
	*o = outer;
}

/* ---- the second reader ---- */

static bool in_varint(struct input *in, uint64_t *ret)
{
	uint64_t v = 0;

	for (unsigned shift = 0; shift < 70; shift += 7) {
		uint8_t b;

		if (!in->len)
			return false;
		b = input_byte(in);
		v |= (uint64_t)(b & 0x7f) << shift;
		if (!(b & 0x80)) {
			*ret = v;
			return true;
		}
	}
	return false;
}

struct item {
	uint64_t field;
	unsigned wire;
	uint64_t value;     /* of a varint */
	struct input bytes; /* of a length-delimited one */
};

static bool next_item(struct input *in, struct item *ret)
{
	uint64_t tag, n = 0;
	struct item it;

	if (!in_varint(in, &tag))
		return false;
	it = (struct item){ .field = tag >> 3, .wire = tag & 7 };
	switch (it.wire) {
	case 0:
		if (!in_varint(in, &it.value))
			return false;
		break;
	case 1:
		n = 8;
		break;
	case 2:
		if (!in_varint(in, &n))
			return false;
		break;
	case 5:
		n = 4;
		break;
	default:
		return false;
	}
	if (n > in->len)
		return false;
	it.bytes = input_take(in, n);
	*ret = it;
	return true;
}

/* The last value of a length-delimited field; .p NULL when absent, false when malformed. */
static bool find_bytes(struct input in, unsigned field, struct input *ret, unsigned *ret_count)
{
	struct item it;

	*ret = (struct input){ NULL, 0 };
	*ret_count = 0;
	while (in.len) {
		if (!next_item(&in, &it))
			return false;
		if (it.field != field)
			continue;
		if (it.wire != 2)
			return false;
		*ret = it.bytes;
		++*ret_count;
	}
	return true;
}

static bool find_port(struct input in, uint64_t *ret)
{
	struct item it;

	*ret = 0;
	while (in.len) {
		if (!next_item(&in, &it))
			return false;
		if (it.field == 6 && it.wire == 0)
			*ret = it.value;
	}
	return true;
}

/* t was accepted: every level is well-formed, and says the same. */
static void check_second_reader(const struct input *in, const struct ticket *t)
{
	struct input action, fetch, host, job;
	unsigned n, fetches;
	char text[TICKET_HOST_MAX + 1];
	uint64_t port;
	size_t from;

	CHECK(find_bytes(*in, 1, &action, &n) && action.p);
	CHECK(find_bytes(action, 3, &fetch, &fetches) && fetch.p);
	if (fetches > 1) /* would have to be merged */
		return;
	CHECK(find_bytes(fetch, 5, &host, &n) && find_bytes(fetch, 1, &job, &n));
	CHECK(find_port(fetch, &port));
	CHECK(port == t->port);

	CHECK(host.len && host.len <= TICKET_HOST_MAX && !memchr(host.p, '\0', host.len));
	memcpy(text, host.p, host.len);
	text[host.len] = '\0';
	from = text[0] == '[';
	CHECK(!strncmp(text + from, t->host, strlen(t->host)));
	CHECK(strlen(t->host) + 2 * from == host.len);

	CHECK(strlen(t->job) == min_u64(job.len, TICKET_JOB_MAX));
	for (size_t i = 0; t->job[i]; i++)
		CHECK(t->job[i] == (char)job.p[i] || t->job[i] == '?');
}

/* ---- what is accepted ---- */

static void check_fields(const struct ticket *t)
{
	static const char host_chars[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
					 "0123456789-._:";

	CHECK(t->port);
	CHECK(t->host[0] && memchr(t->host, '\0', sizeof(t->host)));
	CHECK(strspn(t->host, host_chars) == strlen(t->host));
	CHECK(memchr(t->job, '\0', sizeof(t->job)));
	for (const char *c = t->job; *c; c++)
		CHECK(*c >= 0x20 && *c < 0x7f);
}

static bool same_ticket(const struct ticket *a, const struct ticket *b)
{
	return !strcmp(a->host, b->host) && a->port == b->port && !strcmp(a->job, b->job) &&
	       a->stage == b->stage && a->partition == b->partition;
}

static void check_rewritten(const struct ticket *t)
{
	struct out o = { .p = NULL };
	struct ticket again;
	const char *why;

	out_uint(&o, 6, t->port);
	out_bytes(&o, 5, t->host, strlen(t->host));
	out_uint(&o, 3, t->partition);
	out_uint(&o, 2, t->stage);
	out_bytes(&o, 1, t->job, strlen(t->job));
	out_wrap(&o, 3);
	out_wrap(&o, 1);
	CHECK(!decode(&(struct input){ o.p, o.len }, &again, &why));
	CHECK(same_ticket(t, &again));
	free(o.p);
}

static void check_unknown_field(const struct input *in, const struct ticket *t)
{
	struct out o = { .p = NULL };
	struct ticket again;
	const char *why;

	out_bytes(&o, 77, "what nobody knows", 17);
	out_raw(&o, in->p, in->len);
	out_uint(&o, 78, 1);
	/* It may have been the one too many. */
	if (decode(&(struct input){ o.p, o.len }, &again, &why))
		CHECK(!strcmp(why, "ticket has too many fields"));
	else
		CHECK(same_ticket(t, &again));
	free(o.p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static bool hooked;
	struct input in = { data, size };
	uint8_t level = input_byte(&in) % 3;
	struct out o = { .p = NULL };
	struct ticket t, before;
	const char *why = NULL;

	if (!hooked && __sanitizer_install_malloc_and_free_hooks)
		CHECK(__sanitizer_install_malloc_and_free_hooks(count_malloc, ignore_free));
	hooked = true;
	out_raw(&o, in.p, in.len);
	if (level == 2)
		out_wrap(&o, 3);
	if (level >= 1)
		out_wrap(&o, 1);
	in = (struct input){ o.p, o.len };

	memset(&t, 0x5a, sizeof(t));
	before = t;
	if (decode(&in, &t, &why)) {
		CHECK(why && *why);
		CHECK(!memcmp(&t, &before, sizeof(t)));
	} else {
		CHECK(!why);
		check_fields(&t);
		check_second_reader(&in, &t);
		check_rewritten(&t);
		check_unknown_field(&in, &t);
	}
	free(o.p);
	return 0;
}
