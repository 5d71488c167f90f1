/* SPDX-License-Identifier: Apache-2.0 */
#include "net/worker.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "h2/frame.h"
#include "net/dial.h"

struct worker {
	struct worker_shared *shared;
	unsigned index;
	pthread_t thread;
	bool started;

	/* the thread's own */
	struct loop *loop; /* allocated: a look-up left behind may hold on to it */
	struct tcp_pool pool;
	struct dialer dialer;
	void *splice; /* its kernel datapath, NULL = none */
	struct session *session;
	const struct emit_ops *emit;
	void *emit_ctx;
	struct acceptor_owner owner;
	struct acceptor acceptors[CONFIG_LISTEN_MAX];
	unsigned n_acceptors;
	bool draining;
	uint64_t deadline;
	uint64_t publish_at; /* UINT64_MAX: there is nothing to show */

	atomic_bool idle;
	atomic_bool drain, stop; /* requests of other threads */
	pthread_mutex_t lock;    /* the two below */
	struct worker_task *tasks, **tasks_end;
	bool ended;
};

/* ---- what the session asks for ---- */

static uint64_t env_now(void *ctx)
{
	struct worker *w = ctx;

	return w->loop->now_ns;
}

static struct dial *env_dial(void *ctx, const char *host, uint16_t port, uint64_t timeout_ns,
			     dial_done_fn done, void *arg)
{
	struct worker *w = ctx;

	return dial_start(&w->dialer, host, port, timeout_ns, done, arg);
}

static void env_dial_cancel(void *ctx, struct dial *d)
{
	(void)ctx;
	dial_cancel(d);
}

static const struct env_ops env_ops = {
	.now = env_now,
	.dial = env_dial,
	.dial_cancel = env_dial_cancel,
};

/* ---- accepting ---- */

static void on_accepted(void *arg, struct port *p)
{
	struct worker *w = arg;

	session_accept(w->session, p);
}

static void tell(struct worker *w, enum worker_event e, int err, const struct addr *peer)
{
	w->shared->told(w->shared->told_arg, w, e, err, peer);
}

static void on_trouble(void *arg, enum accept_trouble what, int err, const struct addr *peer)
{
	struct worker *w = arg;
	struct session_event refused = { .kind = EVENT_CLIENT_REFUSED,
					 .peer = peer,
					 .text = "budget clients exhausted (--max-clients)",
					 .h2_error = H2_ENHANCE_YOUR_CALM };

	switch (what) {
	case ACCEPT_REFUSED:
		session_refused(w->session, BUDGET_CLIENTS);
		w->emit->event(w->emit_ctx, &refused);
		break;
	case ACCEPT_REFUSED_SOURCE:
		refused.text = "budget clients_per_source exhausted (--max-clients-per-source)";
		session_refused(w->session, BUDGET_CLIENTS_PER_SOURCE);
		w->emit->event(w->emit_ctx, &refused);
		break;
	case ACCEPT_PAUSED:
		tell(w, WORKER_ACCEPT_PAUSED, err, NULL);
		break;
	case ACCEPT_SHED:
		tell(w, WORKER_ACCEPT_SHED, err, peer);
		break;
	case ACCEPT_RESUMED:
		tell(w, WORKER_ACCEPT_RESUMED, 0, NULL);
		break;
	}
}

/* ---- requests of other threads ---- */

bool worker_post(struct worker *w, struct worker_task *t)
{
	bool taken;

	t->next = NULL;
	pthread_mutex_lock(&w->lock);
	taken = !w->ended;
	if (taken) {
		*w->tasks_end = t;
		w->tasks_end = &t->next;
		loop_wake(w->loop);
	}
	pthread_mutex_unlock(&w->lock);
	return taken;
}

static void run_tasks(struct worker *w, bool last)
{
	struct worker_task *t;

	pthread_mutex_lock(&w->lock);
	t = w->tasks;
	w->tasks = NULL;
	w->tasks_end = &w->tasks;
	w->ended = w->ended || last;
	pthread_mutex_unlock(&w->lock);
	while (t) {
		struct worker_task *next = t->next;

		t->fn(t, w);
		t = next;
	}
}

static void request(struct worker *w, atomic_bool *what)
{
	atomic_store(what, true);
	pthread_mutex_lock(&w->lock);
	if (!w->ended)
		loop_wake(w->loop);
	pthread_mutex_unlock(&w->lock);
}

void worker_drain(struct worker *w)
{
	request(w, &w->drain);
}

void worker_stop(struct worker *w)
{
	request(w, &w->stop);
}

static void on_woken(void *arg)
{
	struct worker *w = arg;

	run_tasks(w, false);
	if (atomic_load(&w->drain) && !w->draining) {
		w->draining = true;
		session_drain(w->session);
	}
	if (atomic_load(&w->stop))
		loop_stop(w->loop);
}

/* ---- the thread ---- */

/* Soon enough for who looks at once, late enough for a small result not to be bothered. */
#define PUBLISH_FIRST (100 * NSEC_PER_MSEC)
#define PUBLISH_PERIOD NSEC_PER_SEC

static void publish(struct worker *w)
{
	const struct worker_shared *shared = w->shared;
	uint64_t now = w->loop->now_ns, after;

	if (w->publish_at == UINT64_MAX && !session_idle(w->session))
		w->publish_at = now + PUBLISH_FIRST;
	if (w->publish_at > now)
		return;
	session_count_waits(w->session);
	if (shared->publish)
		after = shared->publish(shared->publish_arg, w->index, w->session, now);
	else
		after = session_idle(w->session) ? 0 : PUBLISH_PERIOD;
	w->publish_at = after ? now + after : UINT64_MAX;
}

static void on_turn_end(void *arg)
{
	struct worker *w = arg;
	bool idle;

	session_run(w->session);
	publish(w);
	w->deadline = min_u64(session_next_deadline(w->session), w->publish_at);
	if (!w->draining)
		return;
	idle = session_idle(w->session) && !w->pool.n_lingering;
	if (atomic_exchange(&w->idle, idle) != idle && idle)
		tell(w, WORKER_IDLE, 0, NULL);
}

static uint64_t on_deadline(void *arg)
{
	struct worker *w = arg;

	return w->deadline;
}

static void *thread_main(void *arg)
{
	struct worker *w = arg;
	char name[16];

	snprintf(name, sizeof(name), "worker-%u", w->index);
	pthread_setname_np(pthread_self(), name);
	loop_run(w->loop);
	run_tasks(w, true);
	return NULL;
}

int worker_start(struct worker *w)
{
	sigset_t all, before;
	int r;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	r = pthread_create(&w->thread, NULL, thread_main, w);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	w->started = r == 0;
	return -r;
}

void worker_join(struct worker *w)
{
	if (!w->started)
		return;
	pthread_join(w->thread, NULL);
	w->started = false;
}

/* ---- life and death ---- */

static int make_session(struct worker *w)
{
	const struct config *c = w->shared->config;
	struct env env = {
		.ops = &env_ops,
		.emit = w->emit,
		.ctx = w,
		.emit_ctx = w->emit_ctx,
		.config = c,
		.inflight_share = c->limits.total_inflight / w->shared->n_workers,
		.relay = w->shared->relay,
	};

	if (w->shared->splice_new)
		w->shared->splice_new(w->shared->splice_arg, w->index, w->loop, &env, &w->splice);
	w->session = session_new(&env);
	return w->session ? 0 : -ENOMEM;
}

static int make_acceptors(struct worker *w, const struct worker_listener *listeners, unsigned n)
{
	w->owner = (struct acceptor_owner){
		.accepted = on_accepted,
		.trouble = on_trouble,
		.arg = w,
		.clients = &w->shared->clients,
		.max_clients = w->shared->config->limits.max_clients,
	};
	while (w->n_acceptors < n) {
		const struct worker_listener *l = &listeners[w->n_acceptors];
		int r = acceptor_init(&w->acceptors[w->n_acceptors], &w->pool, l->fd, &l->bound,
				      &w->owner);

		/* It has taken the descriptor in either case. */
		w->n_acceptors++;
		if (r)
			return r;
	}
	return 0;
}

static int make_loop(struct worker *w)
{
	const struct loop_hooks hooks = {
		.turn_end = on_turn_end,
		.woken = on_woken,
		.deadline = on_deadline,
		.arg = w,
	};
	struct loop *l = malloc(sizeof(*l));
	int r = l ? loop_init(l, &hooks) : -ENOMEM;

	if (r) {
		free(l);
		return r;
	}
	w->loop = l;
	tcp_pool_init(&w->pool, l);
	w->pool.sources = w->shared->sources;
	w->dialer = (struct dialer){ l, &w->pool, w->shared->policy };
	return 0;
}

int worker_new(struct worker_shared *shared, unsigned index,
	       const struct worker_listener *listeners, unsigned n, const struct emit_ops *emit,
	       void *emit_ctx, struct worker **ret)
{
	struct worker *w = calloc(1, sizeof(*w));
	int r = -ENOMEM;

	assert(n <= CONFIG_LISTEN_MAX);
	if (w) {
		w->shared = shared;
		w->index = index;
		w->emit = emit;
		w->emit_ctx = emit_ctx;
		w->deadline = w->publish_at = UINT64_MAX;
		w->tasks_end = &w->tasks;
		pthread_mutex_init(&w->lock, NULL);
		r = make_loop(w);
		if (!r)
			r = make_session(w);
		if (!r)
			r = make_acceptors(w, listeners, n);
	}
	if (!r) {
		*ret = w;
		return 0;
	}
	for (unsigned i = w ? w->n_acceptors : 0; i < n; i++)
		close(listeners[i].fd);
	worker_free(w);
	return r;
}

void worker_free(struct worker *w)
{
	if (!w)
		return;
	assert(!w->started);
	for (unsigned i = 0; i < w->n_acceptors; i++)
		acceptor_fini(&w->acceptors[i]);
	session_free(w->session);
	if (w->splice)
		w->shared->splice_free(w->splice);
	if (w->loop) {
		tcp_pool_fini(&w->pool);
		if (loop_fini(w->loop))
			free(w->loop);
		else
			w->shared->lookups_left++;
	}
	pthread_mutex_destroy(&w->lock);
	free(w);
}

/* ---- questions ---- */

unsigned worker_index(const struct worker *w)
{
	return w->index;
}

struct session *worker_session(struct worker *w)
{
	return w->session;
}

const struct session_stats *worker_stats(const struct worker *w)
{
	return session_stats(w->session);
}

const struct loop_stats *worker_loop_stats(const struct worker *w)
{
	return &w->loop->stats;
}

bool worker_is_idle(const struct worker *w)
{
	return atomic_load(&w->idle);
}
