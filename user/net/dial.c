/* SPDX-License-Identifier: Apache-2.0 */
#include "net/dial.h"

#include <netdb.h>
#include <stdlib.h>

struct lookup {
	uv_getaddrinfo_t req;
	struct dial *dial; /* NULL once that has ended */
};

struct dial {
	struct dialer *dr;
	uint16_t port;
	dial_done_fn done;
	void *arg;
	struct lookup *lookup;  /* while resolving */
	struct timer deadline;  /* not armed: no limit */
	struct timer stagger;   /* the next address's turn */
	struct deferred finish; /* done() is called from the loop only */
	struct addr addrs[DIAL_ADDRS_MAX];
	struct port *tries[DIAL_ADDRS_MAX]; /* connecting, by address; NULL: not yet or no longer */
	unsigned n, next, trying;           /* addresses; the next to be tried; being tried */
	struct port *won;
	struct dial_result res;
};

static void try_next(struct dial *d);

/* ---- the end ---- */

static void forget_lookup(struct dial *d)
{
	if (!d->lookup)
		return;
	d->lookup->dial = NULL;
	uv_cancel((uv_req_t *)&d->lookup->req);
	d->lookup = NULL;
}

static void drop_tries(struct dial *d)
{
	for (unsigned i = 0; i < d->next; i++) {
		if (d->tries[i])
			d->tries[i]->ops->close(d->tries[i], true);
		d->tries[i] = NULL;
	}
	d->trying = 0;
}

/* Stops everything but the call of done(). */
static void settle(struct dial *d)
{
	timer_disarm(&d->dr->loop->timers, &d->deadline);
	timer_disarm(&d->dr->loop->timers, &d->stagger);
	forget_lookup(d);
	drop_tries(d);
}

static void finish(struct deferred *f)
{
	struct dial *d = container_of(f, struct dial, finish);

	settle(d);
	d->done(d->arg, d->won, &d->res);
	free(d);
}

static void fail(struct dial *d, enum dial_phase phase, int err, const char *detail)
{
	d->res.err = err;
	d->res.phase = phase;
	d->res.detail = detail;
	settle(d);
	loop_defer(d->dr->loop, &d->finish);
}

void dial_cancel(struct dial *d)
{
	settle(d);
	deferred_cancel(&d->finish);
	/* Won, but done() has not been called. */
	if (d->won)
		d->won->ops->close(d->won, true);
	free(d);
}

static void expired(struct timer *t)
{
	struct dial *d = container_of(t, struct dial, deadline);

	if (d->lookup)
		fail(d, DIAL_RESOLVE, -ETIMEDOUT, "Name resolution timed out");
	else
		fail(d, DIAL_CONNECT, -ETIMEDOUT, "Connection timed out");
}

/* ---- connecting ---- */

static void try_failed(struct dial *d, unsigned i, int err)
{
	d->res.addr = d->addrs[i];
	d->res.err = err;
	if (d->next < d->n)
		try_next(d);
	else if (!d->trying)
		fail(d, DIAL_CONNECT, err, strerrordesc_np(-err));
}

static void on_try(struct port *p, unsigned events)
{
	struct dial *d = p->owner;
	unsigned i = 0;
	int r = tcp_port_connected(p);

	(void)events;
	if (r == -EINPROGRESS)
		return;
	while (d->tries[i] != p)
		i++;
	d->tries[i] = NULL;
	d->trying--;
	if (r) {
		p->ops->close(p, true);
		try_failed(d, i, r);
		return;
	}
	p->ops->want(p, 0);
	p->on_event = NULL;
	p->owner = NULL;
	d->won = p;
	d->res.err = 0;
	d->res.phase = DIAL_CONNECT;
	d->res.detail = "";
	d->res.addr = p->peer;
	settle(d);
	loop_defer(d->dr->loop, &d->finish);
}

/* Tries the next address, and those after it while they fail at once. */
static void try_next(struct dial *d)
{
	struct loop *l = d->dr->loop;
	int r = 0;

	while (d->next < d->n) {
		unsigned i = d->next++;
		struct port *p;

		d->res.addr = d->addrs[i];
		r = tcp_connect(d->dr->pool, &d->addrs[i], &p);
		if (r)
			continue;
		p->owner = d;
		p->on_event = on_try;
		p->ops->want(p, PORT_WRITABLE);
		d->tries[i] = p;
		d->trying++;
		break;
	}
	if (!d->trying) {
		fail(d, DIAL_CONNECT, r, strerrordesc_np(-r));
		return;
	}
	/* Without memory for the timer the next address waits for this one's failure. */
	if (d->next < d->n)
		timer_arm(&l->timers, &d->stagger, l->now_ns + DIAL_STAGGER_NS);
	else
		timer_disarm(&l->timers, &d->stagger);
}

static void stagger_fired(struct timer *t)
{
	try_next(container_of(t, struct dial, stagger));
}

/* Takes the addresses that the policy allows; d->n stays 0 when there is none. */
static void admit(struct dial *d, const struct addr *a)
{
	enum policy_verdict v = policy_check(d->dr->policy, a);

	if (v == POLICY_ALLOW) {
		d->addrs[d->n++] = *a;
	} else if (d->res.verdict == POLICY_ALLOW) {
		d->res.verdict = v;
		d->res.addr = *a;
	}
}

static void connect_admitted(struct dial *d)
{
	if (!d->n) {
		fail(d, DIAL_POLICY, -EACCES, policy_verdict_name(d->res.verdict));
		return;
	}
	d->res.verdict = POLICY_ALLOW;
	try_next(d);
}

/* ---- resolving ---- */

static int resolve_errno(int uv_err)
{
	switch (uv_err) {
	case UV_EAI_NONAME:
	case UV_EAI_NODATA:
	case UV_EAI_ADDRFAMILY:
		return -ENOENT;
	case UV_EAI_AGAIN:
		return -EAGAIN;
	case UV_EAI_MEMORY:
	case UV_ENOMEM:
		return -ENOMEM;
	default:
		return -EIO;
	}
}

static const char *resolve_detail(int uv_err)
{
	switch (resolve_errno(uv_err)) {
	case -ENOENT:
		return "Name not found";
	case -EAGAIN:
		return "Name servers did not answer";
	default:
		return uv_strerror(uv_err);
	}
}

/* Copies the addresses of one family, in the resolver's order. */
static unsigned take_family(const struct addrinfo *ai, int family, struct addr *ret)
{
	unsigned n = 0;

	for (; ai && n < DIAL_ADDRS_MAX; ai = ai->ai_next) {
		if (ai->ai_family != family || ai->ai_addrlen > sizeof(ret->ss))
			continue;
		memcpy(&ret[n].ss, ai->ai_addr, ai->ai_addrlen);
		ret[n++].len = ai->ai_addrlen;
	}
	return n;
}

/* Admits them with alternating families, beginning with the resolver's favourite. */
static void admit_all(struct dial *d, const struct addrinfo *ai)
{
	int first = ai->ai_family, other = first == AF_INET6 ? AF_INET : AF_INET6;
	struct addr a[DIAL_ADDRS_MAX], b[DIAL_ADDRS_MAX];
	unsigned na = take_family(ai, first, a), nb = take_family(ai, other, b);

	for (unsigned i = 0; i < na || i < nb; i++) {
		if (i < na && d->n < DIAL_ADDRS_MAX)
			admit(d, &a[i]);
		if (i < nb && d->n < DIAL_ADDRS_MAX)
			admit(d, &b[i]);
	}
}

static void resolved(uv_getaddrinfo_t *req, int status, struct addrinfo *ai)
{
	struct lookup *lk = container_of(req, struct lookup, req);
	struct dial *d = lk->dial;

	free(lk);
	if (d) {
		d->lookup = NULL;
		if (status) {
			fail(d, DIAL_RESOLVE, resolve_errno(status), resolve_detail(status));
		} else {
			admit_all(d, ai);
			connect_admitted(d);
		}
	}
	uv_freeaddrinfo(ai);
}

/* 0, or -ENOMEM. Anything else that goes wrong ends the dial in the next turn. */
static int resolve(struct dial *d, const char *host)
{
	/* No AI_ADDRCONFIG: ::1 and addresses of another family must resolve everywhere. */
	struct addrinfo hints = { .ai_family = AF_UNSPEC,
				  .ai_socktype = SOCK_STREAM,
				  .ai_protocol = IPPROTO_TCP };
	char service[8];
	int r;

	snprintf(service, sizeof(service), "%u", d->port);
	hints.ai_flags = AI_NUMERICSERV;
	d->lookup = malloc(sizeof(*d->lookup));
	if (!d->lookup)
		return -ENOMEM;
	d->lookup->dial = d;
	r = uv_getaddrinfo(&d->dr->loop->uv, &d->lookup->req, resolved, host, service, &hints);
	if (r) {
		free(d->lookup);
		d->lookup = NULL;
		if (r == UV_ENOMEM)
			return -ENOMEM;
		fail(d, DIAL_RESOLVE, -ENOENT, "Not a valid host name");
	}
	return 0;
}

struct dial *dial_start(struct dialer *dr, const char *host, uint16_t port, uint64_t timeout_ns,
			dial_done_fn done, void *arg)
{
	struct dial *d = calloc(1, sizeof(*d));
	struct addr literal;

	if (!d)
		return NULL;
	d->dr = dr;
	d->port = port;
	d->done = done;
	d->arg = arg;
	d->deadline.fire = expired;
	d->stagger.fire = stagger_fired;
	deferred_init(&d->finish, finish);
	if (timeout_ns && timer_arm(&dr->loop->timers, &d->deadline, dr->loop->now_ns + timeout_ns))
		goto fail_free;
	if (!addr_parse_ip(host, port, &literal)) {
		admit(d, &literal);
		connect_admitted(d);
	} else if (resolve(d, host)) {
		goto fail_timer;
	}
	return d;

fail_timer:
	timer_disarm(&dr->loop->timers, &d->deadline);
fail_free:
	free(d);
	return NULL;
}
