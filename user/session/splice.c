/* SPDX-License-Identifier: Apache-2.0 */
/*
 * splice.c - promotion of a large result into the kernel, and back.
 *
 * Every stream begins on the relay. When one has brought more than
 * --promote-after bytes, and its client talks to one executor only, its upstream
 * is `promoting`: nothing more is granted, so the executor runs out of credit, and
 * then nothing is in flight, the last frame is whole and U's receive queue is
 * empty. At that moment the two sockets are enrolled and credit is granted again.
 * If the moment does not come (an executor that has credit and sends nothing), the
 * relay goes on and it is tried again later.
 *
 * Spliced, the kernel forwards plain DATA by itself, and everything else comes
 * through the tap to the very same relay code. What is different:
 *
 *   counting  The kernel's byte counters are taken over (spliced_sync) before any
 *             decision about windows.
 *   credit    Strict: what the kernel forwards cannot be held back, so an executor
 *             gets only what the client's windows allow, and the kernel knows each
 *             limit before the executor does.
 *   boundary  Our own frames go out with the fast path held, and only between two
 *             frames: outq.frame_left is the rest of the frame that the kernel has
 *             begun.
 *   return    The fast path goes on (spliced_settle) when our queue is empty and no
 *             stream holds anything. A DATA frame of which only a part has come is
 *             forwarded as far as it goes, so that the return is not put off by the
 *             next skb that cuts a frame.
 *
 * A client that opens a stream to another executor, or whose upstream ends, leaves:
 * the queue in the kernel drains, then output goes on by its own socket.
 */
#include "session/state.h"

/* Below this, credit is a round trip for each few frames, and lending is worth more. */
#define AUTO_WINDOW_MIN (1 * MiB)
/* Large results at once on a worker before the CPU that splicing frees is worth its latency. */
#define AUTO_LARGE_MIN 2
#define GRANT_RETRY (1 * NSEC_PER_MSEC)
#define GRANT_RETRY_MAX (100 * NSEC_PER_MSEC)
#define LEAVE_RETRY (2 * NSEC_PER_MSEC)
#define TAP_SLACK (1 * MiB) /* frame headers, header blocks, control frames */

static void splice_expired(struct timer *t);

const char *spliced_why(const struct upstream *u)
{
	if (u->splice)
		return "";
	return u->why_relay ? u->why_relay : "small";
}

/* ------------------------------------------------------------------- promotion */

/* The one obstacle that the next connection to the executor need not have. */
static const char reused[] = "reused connection";

/* A reason not to promote, or NULL. *ret_large: a stream is worth it. */
static const char *ineligible(const struct upstream *u, bool *ret_large)
{
	const struct session *ss = u->session;
	uint64_t after = ss->env.config->limits.promote_after;
	const struct client *c = u->route->client;

	*ret_large = false;
	if (!after)
		return "--promote-after 0";
	for (struct list *p = u->streams.next; p != &u->streams; p = p->next) {
		const struct stream *s = list_entry(p, struct stream, on_up);

		if (s->state == STREAM_HEAD && s->data_in >= max_u64(after, u->promote_at))
			*ret_large = true;
	}
	if (!*ret_large)
		return "small";
	if (!ss->env.splice)
		return ss->env.splice_why ? ss->env.splice_why : "no kernel datapath";
	if (ss->env.config->datapath == DATAPATH_AUTO) {
		/* Measured: docs/decisions/0004. */
		if (c->settings.initial_window_size < AUTO_WINDOW_MIN)
			return "small windows";
		if (u->n_streams > 1)
			return "several streams";
		if (ss->n_large < AUTO_LARGE_MIN)
			return "few large results at once";
	}
	if (c->splice)
		return "client is leaving another splice";
	if (c->closing || c->eof || c->broken || u->state != UPSTREAM_READY)
		return "closing";
	for (struct list *p = c->streams.next; p != &c->streams; p = p->next) {
		const struct stream *s = list_entry(p, struct stream, link);

		if (s->up != u && s->state != STREAM_ANSWERED && s->state != STREAM_REQUEST)
			return "several executors";
	}
	return u->delta ? reused : NULL;
}

/* Nothing is in flight or waits here, in either direction of the result. */
static bool quiet(const struct upstream *u)
{
	const struct client *c = u->route->client;

	if (c->blocked || !outq_empty(&c->out) || c->out.frame_left || u->raw_left ||
	    (u->rx && chunk_len(u->rx)))
		return false;
	for (struct list *p = u->streams.next; p != &u->streams; p = p->next) {
		const struct stream *s = list_entry(p, struct stream, on_up);

		if (s->granted || !list_empty(&s->hold) || s->state != STREAM_HEAD)
			return false;
	}
	return true;
}

static void grant_all(struct upstream *u)
{
	struct list *pos, *tmp;

	list_for_each_safe (pos, tmp, &u->streams)
		stream_grant(list_entry(pos, struct stream, on_up));
}

static void give_up(struct upstream *u, const char *why)
{
	uint64_t most = 0;

	for (struct list *p = u->streams.next; p != &u->streams; p = p->next)
		most = max_u64(most, list_entry(p, struct stream, on_up)->data_in);
	u->promoting = false;
	u->why_relay = why;
	u->promote_at = 2 * most;
	grant_all(u);
}

static void splice_event(struct port *p, unsigned events)
{
	struct client *c = p->owner;
	struct upstream *u = c->spliced;

	c->session->now = c->session->env.ops->now(c->session->env.ctx);
	if (events & PORT_READABLE && u)
		u->dp->readable(u);
	if (events & PORT_WRITABLE && c->state != CLIENT_CLOSED)
		client_flush(c);
}

static bool enrol(struct upstream *u)
{
	struct client *c = u->route->client;
	struct session *ss = u->session;
	bool again = false;
	const char *why = "";
	struct splice *sp;

	sp = ss->env.splice->enrol(ss->env.splice_ctx, c->port, u->port,
				   ss->env.config->limits.client_inflight + TAP_SLACK, &why,
				   &again);
	if (!sp) {
		if (!again)
			give_up(u, why);
		return false;
	}
	sp->port.owner = c;
	sp->port.on_event = splice_event;
	c->splice = u->splice = sp;
	c->spliced = u;
	c->tx = &sp->port;
	c->leaving = c->left = false;
	c->splice_wait_ns = GRANT_RETRY;
	c->splice_timer.fire = splice_expired;
	u->promoting = false;
	u->why_relay = NULL;
	u->tapped = 0;
	u->raw_left = 0;
	u->own = false;
	for (struct list *p = u->streams.next; p != &u->streams; p = p->next)
		spliced_stream_begin(list_entry(p, struct stream, on_up));
	STAT_ADD(ss, promotions, 1);
	upstream_want(u);
	client_want(c);
	sp->ops->release(sp);
	return true;
}

/* Streams that have brought enough to be worth it are counted, once each. */
static void count_large(const struct upstream *u)
{
	uint64_t after = u->session->env.config->limits.promote_after;

	for (struct list *p = u->streams.next; p != &u->streams; p = p->next) {
		struct stream *s = list_entry(p, struct stream, on_up);

		if (!s->large && s->data_in >= after) {
			s->large = true;
			u->session->n_large++;
		}
	}
}

void spliced_consider(struct upstream *u)
{
	uint64_t now = u->session->now;
	const char *why;
	bool large;

	if (!u->route)
		u->promoting = false;
	if (u->splice || !u->route || u->route->client->state == CLIENT_CLOSED ||
	    u->state == UPSTREAM_CLOSED || u->broken)
		return;
	count_large(u);
	why = ineligible(u, &large);
	if (large && (!why || why == reused))
		u->executor->large_ns = now;
	if (why) {
		if (u->promoting)
			give_up(u, why);
		else if (large)
			u->why_relay = why;
		return;
	}
	if (!u->promoting) {
		u->promoting = true;
		u->promoting_ns = now;
	}
	if (quiet(u) && enrol(u)) {
		grant_all(u);
		return;
	}
	if (u->promoting && now >= u->promoting_ns + SPLICE_QUIET_MAX)
		give_up(u, "no quiet moment");
	else if (u->promoting)
		upstream_arm(u);
}

/* ---------------------------------------------------------------------- counts */

/* The kernel has forwarded `total` bytes of the stream's DATA since it was added. */
static void take_over(struct stream *s, uint64_t total)
{
	struct session *ss = s->client->session;
	uint64_t n = total - s->spliced;

	if (!n)
		return;
	assert(n <= s->granted);
	s->spliced = total;
	s->data_in += n;
	s->data_out += n;
	s->window -= (int64_t)n;
	s->client->window -= (int64_t)n;
	s->rx_ns = s->progress_ns = ss->now;
	stream_account(s, -(int64_t)n, 0);
	upstream_received(s->up, (uint32_t)n);
	STAT_ADD(ss, data_spliced, n);
}

void spliced_sync(struct upstream *u)
{
	if (!u->splice)
		return;
	for (struct list *p = u->streams.next; p != &u->streams; p = p->next) {
		struct stream *s = list_entry(p, struct stream, on_up);

		if (s->in_splice)
			take_over(s, u->splice->ops->stream_data(u->splice, s->id));
	}
}

uint64_t spliced_undelivered(const struct stream *s, const struct ledger_view *v)
{
	/* Windows below our bound keep the client below it, whatever it does. */
	if (v->conn_window <= (int64_t)v->client_cap)
		return 0;
	return s->up->splice->ops->undelivered(s->up->splice);
}

void spliced_look_again(struct client *c)
{
	struct session *ss = c->session;

	if (c->leaving || timer_armed(&c->splice_timer))
		return;
	(void)timer_arm(&ss->timers, &c->splice_timer, ss->now + c->splice_wait_ns);
	c->splice_wait_ns = min_u64(2 * c->splice_wait_ns, GRANT_RETRY_MAX);
}

void spliced_limit(struct stream *s)
{
	/* Not before the client has the response head: DATA ahead of it is for the relay to judge. */
	uint64_t granted = s->state == STREAM_HEAD ? s->granted : 0;

	if (s->in_splice && s->up && s->up->splice)
		s->up->splice->ops->stream_limit(s->up->splice, s->id, s->spliced + granted);
}

void spliced_stream_begin(struct stream *s)
{
	struct splice *sp = s->up->splice;

	s->spliced = 0;
	s->in_splice = !sp->ops->stream_add(sp, s->id, 0);
	s->datapath = sp->ops->name;
}

void spliced_stream_end(struct stream *s)
{
	struct upstream *u = s->up;

	if (!s->in_splice || !u || !u->splice)
		return;
	take_over(s, u->splice->ops->stream_del(u->splice, s->id));
	s->in_splice = false;
}

/* ------------------------------------------------------------------------- tap */

static void free_splice(struct client *c)
{
	c->splice->ops->free(c->splice);
	c->splice = NULL;
}

/* The upstream is spliced no more: what spliced_must_wait() held back goes out at the next flush. */
static void part(struct client *c)
{
	c->spliced->splice = NULL;
	c->spliced->own = false;
	c->spliced = NULL;
	c->release_due = true;
	client_dirty(c);
}

/*
 * The pair is out of the kernel, its tap is empty and no frame that the kernel has
 * begun is open at the client: an ordinary upstream again.
 */
static void back_to_relay(struct upstream *u)
{
	struct client *c = u->route->client;

	for (struct list *p = u->streams.next; p != &u->streams; p = p->next)
		list_entry(p, struct stream, on_up)->in_splice = false;
	part(c);
	free_splice(c);
	c->leaving = c->left = false;
	u->why_relay = "came back from a splice";
	upstream_want(u);
	client_want(c);
}

ssize_t spliced_receive(struct upstream *u, void *buf, size_t len)
{
	struct splice *sp = u->splice;
	struct client *c;
	ssize_t n;

	if (!sp || u->own)
		return u->port->ops->recv(u->port, buf, len);
	c = u->route->client;
	n = sp->port.ops->recv(&sp->port, buf, len);
	spliced_sync(u);
	if (n == -ENODATA && !c->left)
		return -EAGAIN; /* the client's queue is not empty yet: step() comes back to us */
	if (n == -ENODATA) {
		if (!u->tapped)
			u->raw_left = sp->ops->open(sp);
		if (u->raw_left) {
			/* Until the rest of the frame has gone, frames of ours have to wait. */
			u->own = true;
			upstream_want(u);
		} else {
			back_to_relay(u);
		}
		return u->port->ops->recv(u->port, buf, len);
	}
	if (n == -EAGAIN)
		return n;
	/* Where the kernel stopped is where these bytes begin, and where an end happens. */
	if (!u->tapped) {
		u->raw_left = sp->ops->open(sp);
		if (outq_bulk_empty(&c->out))
			outq_set_open(&c->out, u->raw_left);
	}
	if (n > 0)
		u->tapped += (uint64_t)n;
	return n;
}

bool spliced_raw(struct upstream *u)
{
	struct client *c = u->route->client;
	struct chunk *rx = u->rx;
	uint32_t n = (uint32_t)min_u64(u->raw_left, chunk_len(rx));

	if (n) {
		client_raw_sent(
			c, outq_raw(&c->out, c->tx, &c->session->pool, rx->data + rx->start, n));
		rx->start += n;
		u->raw_left -= n;
	}
	return !u->raw_left && !c->broken;
}

/* Whether the kernel may forward on its own: nothing of ours waits, no window is overdrawn. */
static bool may_resume(const struct upstream *u)
{
	const struct client *c = u->route->client;
	uint64_t granted = 0;

	if (c->leaving || c->blocked || !outq_empty(&c->out) || c->broken || c->eof)
		return false;
	for (struct list *p = u->streams.next; p != &u->streams; p = p->next) {
		const struct stream *s = list_entry(p, struct stream, on_up);

		if (!list_empty(&s->hold) || (int64_t)s->granted > max_i64(s->window, 0))
			return false;
		granted += s->granted;
	}
	return (int64_t)granted <= max_i64(c->window, 0);
}

/*
 * The beginning of a DATA frame that has not come whole goes out as far as it is
 * here; the kernel, or the next batch, brings the rest.
 */
static void forward_partial(struct upstream *u)
{
	struct client *c = u->route->client;
	struct chunk *rx = u->rx;
	struct h2_frame f;
	struct stream *s;
	uint8_t *p;
	int r;

	if (!rx || chunk_len(rx) < H2_HEADER_LEN)
		return;
	p = rx->data + rx->start;
	f = h2_frame_get(p);
	if (f.type != H2_DATA || f.flags || f.length > H2_DEFAULT_FRAME_SIZE)
		return;
	s = stream_find(c, f.stream);
	if (!s || s->up != u || !s->in_splice || s->state != STREAM_HEAD || s->response_ended ||
	    f.length > s->granted || s->window < f.length || c->window < f.length)
		return;
	s->window -= f.length;
	c->window -= f.length;
	s->data_in += f.length;
	s->data_out += f.length;
	stream_account(s, -(int64_t)f.length, 0);
	spliced_limit(s); /* The kernel does not count this frame: its limit is what is left. */
	upstream_received(u, f.length);
	STAT_ADD(u->session, data_in, f.length);
	STAT_ADD(u->session, data_out, f.length);
	outq_set_open(&c->out, H2_HEADER_LEN + f.length);
	u->raw_left = H2_HEADER_LEN + f.length - chunk_len(rx);
	r = outq_raw(&c->out, c->tx, &c->session->pool, p, chunk_len(rx));
	rx->start = rx->end;
	client_raw_sent(c, r);
}

/* Tells the kernel how far its tap has been dealt with: up to the frame that is not whole. */
static void publish(struct upstream *u)
{
	uint32_t rest = u->rx ? chunk_len(u->rx) : 0;

	if (u->tapped <= rest)
		return;
	u->splice->ops->consumed(u->splice, u->tapped - rest, rest ? 0 : u->raw_left);
	u->tapped = rest;
}

void spliced_settle(struct upstream *u)
{
	struct splice *sp = u->splice;
	struct client *c;

	if (!sp || u->state == UPSTREAM_CLOSED || u->broken)
		return;
	c = u->route->client;
	if (u->own) {
		if (!u->raw_left)
			back_to_relay(u);
		return;
	}
	for (struct list *p = u->streams.next; p != &u->streams; p = p->next)
		spliced_limit(list_entry(p, struct stream, on_up));
	if (!may_resume(u)) {
		if (c->left)
			return;
		/* Held, it is safe to say what has been dealt with, and the tap's limit asks for it. */
		sp->ops->hold(sp);
		publish(u);
		return;
	}
	if (!u->raw_left)
		forward_partial(u);
	if (!may_resume(u))
		return;
	publish(u);
	sp->ops->release(sp);
	if (!u->tapped) {
		/* The kernel's to know from here on. */
		outq_set_open(&c->out, 0);
		u->raw_left = 0;
	}
}

bool spliced_begin_write(struct client *c)
{
	struct upstream *u = c->spliced;
	uint32_t open;

	/* With bytes of the tap in hand the fast path is off, and our parser knows where we are. */
	if (u && !u->tapped && !c->left) {
		open = c->splice->ops->hold(c->splice);
		if (outq_bulk_empty(&c->out))
			outq_set_open(&c->out, open);
		spliced_sync(u);
	}
	return !(outq_bulk_empty(&c->out) && c->out.frame_left) && !(u && u->raw_left);
}

void spliced_resume(struct client *c)
{
	if (c->spliced)
		spliced_settle(c->spliced);
}

/* ----------------------------------------------------------------------- leave */

/*
 * DATA of another executor while the client leaves: a frame that the kernel has begun may be
 * open, and its rest comes through the tap. It is held, within its grant, until that is over.
 */
bool spliced_must_wait(const struct stream *s)
{
	const struct client *c = s->client;

	return c->leaving && c->spliced && s->up != c->spliced;
}

/* Its streams leave the table, it leaves the pair; the client keeps the rest. */
static void detach(struct client *c)
{
	struct upstream *u = c->spliced;

	if (!u)
		return;
	for (struct list *p = u->streams.next; p != &u->streams; p = p->next)
		spliced_stream_end(list_entry(p, struct stream, on_up));
	u->spoiled = true; /* bytes of it may still be in the tap */
	part(c);
	client_want(c); /* nobody reads them any more */
}

static void step(struct client *c)
{
	int r = c->splice->ops->leave(c->splice);

	if (r == -EAGAIN) {
		(void)timer_arm(&c->session->timers, &c->splice_timer,
				c->session->now + LEAVE_RETRY);
		return;
	}
	c->tx = c->port;
	if (r)
		c->broken = EPIPE;
	client_dirty(c);
	if (c->spliced) {
		c->left = true; /* spliced_receive() frees it once the tap is empty */
		client_want(c);
		upstream_kick(c->spliced);
		return;
	}
	free_splice(c);
	client_want(c);
}

void spliced_leave(struct client *c)
{
	if (!c->splice || c->leaving)
		return;
	(void)spliced_begin_write(c);
	c->leaving = true;
	if (c->spliced)
		c->spliced->spoiled = true; /* its socket is not for another client */
	step(c);
}

void spliced_upstream_ends(struct upstream *u)
{
	struct client *c;
	bool left;

	if (!u->splice)
		return;
	c = u->route->client;
	left = c->left;
	if (!spliced_begin_write(c) && !c->broken) {
		/* The rest of the open frame will never come. */
		client_note(c, "executor ended inside a frame that was being sent", 0);
		c->broken = ECONNRESET;
		client_dirty(c);
	}
	detach(c);
	if (!c->leaving) {
		c->leaving = true;
		step(c);
	} else if (left) {
		free_splice(c);
	}
}

/* Credit that our bound held back: the client may have taken something since. */
static void grant_again(struct client *c)
{
	struct upstream *u = c->spliced;
	uint64_t before;

	spliced_sync(u);
	before = c->inflight;
	grant_all(u);
	if (c->inflight != before)
		c->splice_wait_ns = GRANT_RETRY;
}

static void splice_expired(struct timer *t)
{
	struct client *c = container_of(t, struct client, splice_timer);

	if (c->splice && c->leaving && !c->left)
		step(c);
	else if (c->spliced && !c->leaving)
		grant_again(c);
}

void spliced_abort(struct client *c)
{
	if (!c->splice)
		return;
	detach(c);
	timer_disarm(&c->session->timers, &c->splice_timer);
	free_splice(c);
	c->tx = c->port;
}
