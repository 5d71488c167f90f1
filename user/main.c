/* SPDX-License-Identifier: Apache-2.0 */
/*
 * main.c - the process: puts the layers together and ends them in order.
 *
 * serve opens everything that can fail first (listeners, policy, workers, admin
 * server) on the main thread, so that a wrong flag or a taken port is one line and
 * an exit code, and then lets the workers run. The main thread keeps a small libuv
 * loop of its own for signals and for the end:
 *
 *	RUNNING   first SIGTERM or SIGINT -> DRAINING
 *	DRAINING  all workers idle -> end, 0. --drain-timeout over, or a second
 *	          signal -> end, 0 when no stream was cut off, else 1.
 *
 * Everything a worker shares with others is in struct serve and outlives it.
 */
#include <ifaddrs.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>
#include <uv.h>

#include "base/version.h"
#include "cli/cli.h"
#include "cli/look.h"
#include "config/config.h"
#include "datapath/board_read.h"
#include "datapath/relay.h"
#include "datapath/selftest_cmd.h"
#include "figures.h"
#include "kernel.h"
#include "net/listen.h"
#include "net/worker.h"
#include "obs/admin.h"
#include "obs/emit.h"
#include "obs/log.h"
#include "obs/streams.h"
#include "policy/policy.h"

#define LOG_TICK_MS 5000
/* Threads that resolve names. libuv lets half of them wait for name servers at a time. */
#define RESOLVER_THREADS "32"
/* Descriptors beside those of clients: two per client (its executor), and some. */
#define DESCRIPTORS_OWN 256

struct serve {
	const struct config *config;
	struct log *log;
	struct policy *policy;
	struct kernel *kernel;
	struct worker_shared shared;
	struct worker_listener *listeners; /* see listeners_of(); fd -1 = not ours */
	struct worker **workers;
	struct emit *emits;
	const struct session_stats **stats;
	unsigned n_workers; /* made so far */
	struct admin *admin;
	_Atomic(enum admin_state) state;

	uv_loop_t loop;
	uv_signal_t on_term, on_int, on_hup;
	uv_async_t wake; /* a worker became idle */
	uv_timer_t log_tick, kernel_tick, drain_limit;
};

/* ---- listening ---- */

static const char *listen_hint(int err)
{
	switch (err) {
	case -EADDRINUSE:
		return "another process listens there (ss -ltnp shows which): end it or choose "
		       "another port";
	case -EACCES:
		return "ports below 1024 need CAP_NET_BIND_SERVICE: choose a higher one or grant "
		       "it";
	case -EADDRNOTAVAIL:
		return "this host does not have that address: use one of `ip addr`, or [::] for "
		       "all";
	case -EMFILE:
		return "raise the limit of open files (ulimit -n)";
	default:
		return "";
	}
}

static void log_listen_failure(struct serve *s, const char *flag, const struct addr *a, int err,
			       const char *step)
{
	struct log_line l;

	if (!log_begin(&l, s->log, LOG_ERROR, "cannot listen"))
		return;
	log_str(&l, "flag", flag);
	log_addr(&l, "address", a);
	log_str(&l, "step", step);
	log_str(&l, "reason", strerrordesc_np(-err));
	if (*listen_hint(err))
		log_str(&l, "hint", listen_hint(err));
	log_end(&l);
}

/* A kernel without IPv6 still has every address that [::] can mean: those of IPv4. */
static bool fall_back_to_ipv4(struct serve *s, struct addr *a, int err)
{
	struct sockaddr_in any = { .sin_family = AF_INET, .sin_port = htons(addr_port(a)) };
	struct log_line l;

	if ((err != -EAFNOSUPPORT && err != -EADDRNOTAVAIL) || a->sa.sa_family != AF_INET6 ||
	    !listen_is_wildcard(a))
		return false;
	a->in = any;
	a->len = sizeof(any);
	if (log_begin(&l, s->log, LOG_WARN, "no IPv6 on this host")) {
		log_addr(&l, "listen", a);
		log_end(&l);
	}
	return true;
}

static struct worker_listener *listeners_of(struct serve *s, unsigned worker)
{
	return s->listeners + (size_t)worker * s->config->n_listen;
}

/* The sockets of all workers for one address; with port 0 the first one's port is everybody's. */
static int open_address(struct serve *s, unsigned index, struct addr a)
{
	const char *step = "bind";
	int r = listen_probe(&a);

	if (r && fall_back_to_ipv4(s, &a, r))
		r = listen_probe(&a);
	for (unsigned w = 0; !r && w < s->config->workers; w++) {
		struct worker_listener *l = listeners_of(s, w) + index;

		r = listen_open(&a, &l->bound, &step);
		if (r < 0 && !w && fall_back_to_ipv4(s, &a, r))
			r = listen_open(&a, &l->bound, &step);
		if (r < 0)
			break;
		l->fd = r;
		a = l->bound;
		r = 0;
	}
	if (r)
		log_listen_failure(s, "--listen", &a, r, step);
	return r;
}

static int open_listeners(struct serve *s)
{
	const struct config *c = s->config;
	unsigned n = c->workers * c->n_listen;
	int r = 0;

	s->listeners = calloc(n, sizeof(*s->listeners));
	if (!s->listeners)
		return -ENOMEM;
	for (unsigned i = 0; i < n; i++)
		s->listeners[i].fd = -1;
	for (unsigned i = 0; !r && i < c->n_listen; i++)
		r = open_address(s, i, c->listen[i]);
	return r;
}

static void close_listeners(struct serve *s)
{
	unsigned n = s->listeners ? s->config->workers * s->config->n_listen : 0;

	for (unsigned i = 0; i < n; i++)
		if (s->listeners[i].fd >= 0)
			close(s->listeners[i].fd);
	free(s->listeners);
}

/* ---- policy ---- */

/* All addresses of this host with the wildcard's port. */
static int add_self_wildcard(struct policy *p, const struct addr *wildcard)
{
	bool v4_only = wildcard->sa.sa_family == AF_INET;
	struct ifaddrs *list, *i;
	int r = 0;

	if (getifaddrs(&list))
		return -errno;
	for (i = list; i && !r; i = i->ifa_next) {
		struct addr a = { .len = 0 };

		if (i->ifa_addr && i->ifa_addr->sa_family == AF_INET) {
			memcpy(&a.in, i->ifa_addr, sizeof(a.in));
			a.in.sin_port = htons(addr_port(wildcard));
			a.len = sizeof(a.in);
		} else if (i->ifa_addr && i->ifa_addr->sa_family == AF_INET6 && !v4_only) {
			memcpy(&a.in6, i->ifa_addr, sizeof(a.in6));
			a.in6.sin6_port = htons(addr_port(wildcard));
			a.len = sizeof(a.in6);
		} else {
			continue;
		}
		r = policy_add_self(p, &a);
	}
	freeifaddrs(list);
	return r;
}

static int add_self(struct policy *p, const struct addr *a)
{
	int r = policy_add_self(p, a);

	return !r && listen_is_wildcard(a) ? add_self_wildcard(p, a) : r;
}

static int build_policy(struct serve *s)
{
	const struct config *c = s->config;
	struct policy *p = policy_new();
	int r = p ? 0 : -ENOMEM;

	s->policy = p;
	for (unsigned i = 0; !r && i < c->n_allow_cidr; i++)
		r = policy_allow_cidr(p, c->allow_cidr[i]);
	for (unsigned i = 0; !r && i < c->n_allow_port; i++)
		r = policy_allow_port(p, c->allow_port[i]);
	if (!r && c->allow_loopback)
		policy_allow_loopback(p);
	for (unsigned i = 0; !r && i < c->n_listen; i++)
		r = add_self(p, &s->listeners[i].bound);
	if (!r && c->admin.len)
		r = add_self(p, &c->admin);
	if (r)
		log_msg(s->log, LOG_ERROR, "cannot set up the destination policy: %s",
			strerrordesc_np(-r));
	return r;
}

/* ---- live streams, for the admin server ---- */

/* One question to all workers. Freed by the last of them and the asker to let go of it. */
struct collect {
	pthread_mutex_t lock;
	pthread_cond_t answered;
	struct streams *into; /* NULL: nobody waits any more */
	unsigned waiting;     /* workers that have been asked and have not answered */
	unsigned failed;      /* workers without memory for an answer */
};

struct collect_task {
	struct worker_task task;
	struct collect *c;
};

static struct collect *collect_new(struct streams *into)
{
	struct collect *c = malloc(sizeof(*c));
	pthread_condattr_t attr;

	if (!c)
		return NULL;
	*c = (struct collect){ .into = into };
	pthread_mutex_init(&c->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&c->answered, &attr);
	pthread_condattr_destroy(&attr);
	return c;
}

static void collect_free(struct collect *c)
{
	pthread_cond_destroy(&c->answered);
	pthread_mutex_destroy(&c->lock);
	free(c);
}

static void collect_on_worker(struct worker_task *task, struct worker *w)
{
	struct collect_task *t = container_of(task, struct collect_task, task);
	struct streams *found = streams_new();
	struct collect *c = t->c;
	bool last;

	free(t);
	if (found) {
		session_each_stream(worker_session(w), streams_add, found);
		session_each_executor(worker_session(w), streams_add_executor, found);
	}
	pthread_mutex_lock(&c->lock);
	if (found && c->into)
		streams_merge(c->into, found);
	c->failed += !found;
	c->waiting--;
	last = !c->waiting && !c->into;
	pthread_cond_signal(&c->answered);
	pthread_mutex_unlock(&c->lock);
	if (last)
		collect_free(c);
	streams_free(found);
}

static bool collect_ask(struct collect *c, struct worker *w)
{
	struct collect_task *t = malloc(sizeof(*t));

	if (!t)
		return false;
	*t = (struct collect_task){ { .fn = collect_on_worker }, c };
	pthread_mutex_lock(&c->lock);
	c->waiting++;
	pthread_mutex_unlock(&c->lock);
	if (worker_post(w, &t->task))
		return true;
	pthread_mutex_lock(&c->lock);
	c->waiting--;
	pthread_mutex_unlock(&c->lock);
	free(t);
	return false;
}

static struct timespec deadline_in(unsigned ms)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	t.tv_sec += ms / 1000;
	t.tv_nsec += (long)(ms % 1000) * (long)NSEC_PER_MSEC;
	if (t.tv_nsec >= (long)NSEC_PER_SEC) {
		t.tv_nsec -= (long)NSEC_PER_SEC;
		t.tv_sec++;
	}
	return t;
}

static unsigned collect_streams(void *ctx, unsigned timeout_ms, struct streams *into)
{
	struct serve *s = ctx;
	struct timespec until = deadline_in(timeout_ms);
	struct collect *c = collect_new(into);
	unsigned missing = 0;
	bool last;

	if (!c)
		return s->n_workers;
	for (unsigned i = 0; i < s->n_workers; i++)
		missing += !collect_ask(c, s->workers[i]);
	pthread_mutex_lock(&c->lock);
	while (c->waiting && !pthread_cond_timedwait(&c->answered, &c->lock, &until))
		;
	missing += c->waiting + c->failed;
	c->into = NULL;
	last = !c->waiting;
	pthread_mutex_unlock(&c->lock);
	if (last)
		collect_free(c);
	return missing;
}

static enum admin_state admin_state_now(void *ctx)
{
	struct serve *s = ctx;

	return atomic_load(&s->state);
}

static void more_metrics(void *ctx, FILE *out)
{
	struct serve *s = ctx;

	figures_workers(out, s->workers, s->n_workers);
	kernel_metrics(s->kernel, out);
}

/* ---- what workers tell; on their threads ---- */

static void log_accept_event(struct serve *s, struct worker *w, enum worker_event e, int err,
			     const struct addr *peer)
{
	struct log_line l;
	bool begun;

	if (e == WORKER_ACCEPT_PAUSED)
		begun = log_begin(&l, s->log, LOG_ERROR, "no new clients for lack of resources");
	else if (e == WORKER_ACCEPT_SHED)
		begun = log_begin_limited(&l, s->log, LOG_WARN,
					  "client refused for lack of resources", "");
	else
		begun = log_begin(&l, s->log, LOG_INFO, "new clients again");
	if (!begun)
		return;
	if (peer)
		log_addr(&l, "peer", peer);
	if (err) {
		log_str(&l, "reason", strerrordesc_np(-err));
		log_str(&l, "hint",
			err == -EMFILE   ? "raise the limit of open files (ulimit -n, LimitNOFILE=)"
			: err == -ENFILE ? "raise fs.file-max"
					 : "give the host more memory or lower --max-clients");
	}
	log_u64(&l, "worker", worker_index(w));
	log_end(&l);
}

static void on_told(void *arg, struct worker *w, enum worker_event e, int err,
		    const struct addr *peer)
{
	struct serve *s = arg;

	if (e == WORKER_IDLE)
		uv_async_send(&s->wake);
	else
		log_accept_event(s, w, e, err, peer);
}

/* ---- workers and admin server ---- */

static int make_workers(struct serve *s)
{
	unsigned n = s->config->workers;
	int r = 0;

	s->workers = calloc(n, sizeof(struct worker *));
	s->emits = calloc(n, sizeof(*s->emits));
	s->stats = calloc(n, sizeof(struct session_stats *));
	if (s->config->limits.max_per_source) {
		s->shared.sources = sources_new(s->config->limits.max_per_source);
		r = s->shared.sources ? 0 : -ENOMEM;
	}
	if (r || !s->workers || !s->emits || !s->stats)
		return -ENOMEM;
	s->shared.config = s->config;
	s->shared.policy = s->policy;
	s->shared.relay = &datapath_relay;
	kernel_share(s->kernel, &s->shared);
	s->shared.n_workers = n;
	s->shared.told = on_told;
	s->shared.told_arg = s;
	while (s->n_workers < n) {
		unsigned i = s->n_workers;
		struct worker_listener *l = listeners_of(s, i);

		s->emits[i] = (struct emit){ .log = s->log, .worker = i };
		r = worker_new(&s->shared, i, l, s->config->n_listen, &emit_log_ops, &s->emits[i],
			       &s->workers[i]);
		for (unsigned a = 0; a < s->config->n_listen; a++)
			l[a].fd = -1; /* the worker's now */
		if (r)
			break;
		s->stats[i] = worker_stats(s->workers[i]);
		s->n_workers++;
	}
	if (r)
		log_msg(s->log, LOG_ERROR, "cannot make worker %u: %s", s->n_workers,
			strerrordesc_np(-r));
	return r;
}

static int start_workers(struct serve *s)
{
	int r = 0;

	for (unsigned i = 0; !r && i < s->n_workers; i++)
		r = worker_start(s->workers[i]);
	if (r)
		log_msg(s->log, LOG_ERROR, "cannot start a thread: %s", strerrordesc_np(-r));
	return r;
}

static int start_admin(struct serve *s)
{
	const struct admin_source source = {
		.config = s->config,
		.log = s->log,
		.stats = s->stats,
		.n_stats = s->n_workers,
		.ctx = s,
		.state = admin_state_now,
		.collect = collect_streams,
		.more_metrics = more_metrics,
	};
	sigset_t all, before;
	const char *step;
	int r;

	if (!s->config->admin.len)
		return 0;
	/* Its threads inherit the mask: signals are the main thread's business. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	r = admin_start(&s->config->admin, &source, &s->admin, &step);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (r)
		log_listen_failure(s, "--admin", &s->config->admin, r, step);
	return r;
}

/* ---- signals and the end ---- */

static void end_if_idle(struct serve *s)
{
	if (atomic_load(&s->state) != ADMIN_DRAINING)
		return;
	for (unsigned i = 0; i < s->n_workers; i++)
		if (!worker_is_idle(s->workers[i]))
			return;
	uv_stop(&s->loop);
}

static void on_wake(uv_async_t *a)
{
	end_if_idle(a->data);
}

static void on_drain_limit(uv_timer_t *t)
{
	struct serve *s = t->data;

	log_msg(s->log, LOG_WARN, "--drain-timeout is over: ending what is left");
	uv_stop(&s->loop);
}

static void on_end_signal(uv_signal_t *h, int signum)
{
	struct serve *s = h->data;
	const char *name = signum == SIGTERM ? "SIGTERM" : "SIGINT";

	if (atomic_exchange(&s->state, ADMIN_DRAINING) == ADMIN_DRAINING) {
		log_msg(s->log, LOG_WARN, "%s again: ending at once", name);
		uv_stop(&s->loop);
		return;
	}
	log_msg(s->log, LOG_INFO, "%s: draining, a second one ends at once", name);
	if (s->config->timeouts.drain_ns)
		uv_timer_start(&s->drain_limit, on_drain_limit,
			       (s->config->timeouts.drain_ns + NSEC_PER_MSEC - 1) / NSEC_PER_MSEC,
			       0);
	for (unsigned i = 0; i < s->n_workers; i++)
		worker_drain(s->workers[i]);
}

static void on_hup_signal(uv_signal_t *h, int signum)
{
	struct serve *s = h->data;

	(void)signum;
	log_msg(s->log, LOG_INFO, "SIGHUP: nothing to reload, no file is configured");
}

static void on_log_tick(uv_timer_t *t)
{
	struct serve *s = t->data;

	log_tick(s->log);
}

static const char *state_name(struct serve *s)
{
	static const char *const names[] = {
		[ADMIN_STARTING] = "starting",
		[ADMIN_READY] = "ready",
		[ADMIN_DRAINING] = "draining",
	};

	return names[atomic_load(&s->state)];
}

static void on_kernel_tick(uv_timer_t *t)
{
	struct serve *s = t->data;

	kernel_tick(s->kernel, state_name(s), s->stats, s->n_workers);
}

static int make_loop(struct serve *s)
{
	int r = uv_loop_init(&s->loop);

	if (r)
		return r;
	uv_async_init(&s->loop, &s->wake, on_wake);
	uv_timer_init(&s->loop, &s->log_tick);
	uv_timer_init(&s->loop, &s->kernel_tick);
	uv_timer_init(&s->loop, &s->drain_limit);
	uv_signal_init(&s->loop, &s->on_term);
	uv_signal_init(&s->loop, &s->on_int);
	uv_signal_init(&s->loop, &s->on_hup);
	s->wake.data = s->log_tick.data = s->kernel_tick.data = s->drain_limit.data = s;
	s->on_term.data = s->on_int.data = s->on_hup.data = s;
	uv_timer_start(&s->log_tick, on_log_tick, LOG_TICK_MS, LOG_TICK_MS);
	uv_timer_start(&s->kernel_tick, on_kernel_tick, KERNEL_TICK_MS, KERNEL_TICK_MS);
	r = uv_signal_start(&s->on_term, on_end_signal, SIGTERM);
	if (!r)
		r = uv_signal_start(&s->on_int, on_end_signal, SIGINT);
	if (!r)
		r = uv_signal_start(&s->on_hup, on_hup_signal, SIGHUP);
	return r;
}

static void close_handle(uv_handle_t *h, void *arg)
{
	(void)arg;
	uv_close(h, NULL);
}

static void free_loop(struct serve *s)
{
	uv_walk(&s->loop, close_handle, NULL);
	uv_run(&s->loop, UV_RUN_DEFAULT);
	uv_loop_close(&s->loop);
}

/* Streams that had to be cut off. */
static uint64_t end_workers(struct serve *s)
{
	uint64_t cut = 0;

	for (unsigned i = 0; i < s->n_workers; i++)
		worker_stop(s->workers[i]);
	for (unsigned i = 0; i < s->n_workers; i++) {
		worker_join(s->workers[i]);
		cut += s->stats[i]->streams_open;
	}
	for (unsigned i = 0; i < s->n_workers; i++)
		worker_free(s->workers[i]);
	sources_free(s->shared.sources);
	return cut;
}

/* ---- start ---- */

static void raise_descriptor_limit(struct serve *s)
{
	uint64_t need = 2 * (uint64_t)s->config->limits.max_clients + DESCRIPTORS_OWN;
	struct rlimit r;

	if (getrlimit(RLIMIT_NOFILE, &r))
		return;
	r.rlim_cur = r.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &r) || r.rlim_max < need) {
		struct log_line l;

		if (!log_begin(&l, s->log, LOG_WARN, "few descriptors for --max-clients"))
			return;
		log_u64(&l, "limit", r.rlim_max);
		log_u64(&l, "wanted", need);
		log_str(&l, "hint", "raise the hard limit (LimitNOFILE=) or lower --max-clients");
		log_end(&l);
	}
}

static void list_listeners(const struct serve *s, char *list, size_t size)
{
	char text[ADDR_STRLEN];
	size_t at = 0;

	for (unsigned i = 0; i < s->config->n_listen; i++)
		at += (size_t)snprintf(list + at, size - at, "%s%s", i ? "," : "",
				       addr_format(&s->listeners[i].bound, text));
}

static void log_start(struct serve *s, const char *list)
{
	char text[ADDR_STRLEN];
	struct log_line l;

	if (!log_begin(&l, s->log, LOG_INFO, "serving"))
		return;
	log_str(&l, "version", fs_version);
	log_str(&l, "listen", list);
	log_str(&l, "admin", s->admin ? addr_format(admin_addr(s->admin), text) : "off");
	log_u64(&l, "workers", s->n_workers);
	log_str(&l, "datapath", kernel_datapath(s->kernel));
	if (*kernel_why(s->kernel))
		log_str(&l, "datapath_why", kernel_why(s->kernel));
	log_str(&l, "pins", kernel_pins(s->kernel));
	if (*kernel_pins_why(s->kernel))
		log_str(&l, "pins_why", kernel_pins_why(s->kernel));
	log_end(&l);
}

/* Everything up to the point where clients are served. 0 or -errno, logged. */
static int start(struct serve *s)
{
	char list[CONFIG_LISTEN_MAX * ADDR_STRLEN];
	int r = kernel_new(s->config, s->log, &s->kernel);

	if (r)
		return r;
	raise_descriptor_limit(s);
	r = open_listeners(s);
	if (!r)
		r = build_policy(s);
	if (!r)
		r = make_workers(s);
	if (!r)
		r = start_admin(s);
	if (!r)
		r = start_workers(s);
	if (r)
		return r;
	/* A signal that came meanwhile is handled by the loop, later. */
	list_listeners(s, list, sizeof(list));
	kernel_show(s->kernel, list);
	atomic_store(&s->state, ADMIN_READY);
	kernel_tick(s->kernel, state_name(s), s->stats, s->n_workers);
	log_start(s, list);
	return 0;
}

static int serve(struct serve *s)
{
	uint64_t cut;
	int r = start(s);

	if (!r)
		uv_run(&s->loop, UV_RUN_DEFAULT);
	/* Its threads ask the workers, so they go first. */
	admin_stop(s->admin);
	cut = end_workers(s);
	if (!r)
		log_msg(s->log, LOG_INFO, "ended, %llu streams cut off", (unsigned long long)cut);
	close_listeners(s);
	kernel_free(s->kernel);
	policy_free(s->policy);
	free(s->workers);
	free(s->emits);
	free(s->stats);
	return r || cut ? CLI_FAILURE : CLI_OK;
}

static int run_serve(int argc, char **argv, char **envp)
{
	struct config *config = calloc(1, sizeof(*config));
	struct serve *s = calloc(1, sizeof(*s));
	struct log_options options = { .fd = STDERR_FILENO };
	int code = CLI_FAILURE;

	if (!config || !s)
		goto out;
	switch (config_parse(config, argc, argv, envp, stdout, stderr)) {
	case CONFIG_OK:
		break;
	case CONFIG_HELP:
		code = fflush(stdout) ? CLI_FAILURE : CLI_OK;
		goto out;
	case CONFIG_ERROR:
		code = CLI_USAGE;
		goto out;
	}
	options.format = config->log_format;
	options.level = config->log_level;
	s->config = config;
	s->log = log_new(&options);
	if (!s->log || make_loop(s)) {
		fprintf(stderr, "flightsplice: out of memory or descriptors\n");
		log_free(s->log);
		goto out;
	}
	signal(SIGPIPE, SIG_IGN);
	setenv("UV_THREADPOOL_SIZE", RESOLVER_THREADS, 0);
	code = serve(s);
	free_loop(s);
	log_free(s->log);
	/* exit() would wait for a name server that does not answer. */
	if (s->shared.lookups_left)
		_exit(code);
out:
	free(s);
	free(config);
	return code;
}

static int run_look(int argc, char **argv, char **envp)
{
	static const struct look_source source = { board_read, board_read_free };

	(void)envp;
	return look_main(&source, argc, argv);
}

int main(int argc, char **argv, char **envp)
{
	static const struct cli_command commands[] = {
		{ "serve", "[flags]", "run the proxy in the foreground", run_serve },
		{ "selftest", "[--json]", "judge this kernel's splicing", selftest_main },
		{ "streams", "[flags]", "results on their way, and what each waits for", run_look },
		{ "executors", "[flags]", "executors in use", run_look },
		{ "clients", "[flags]", "connected clients", run_look },
		{ "stats", "[flags]", "counters, and what was dropped or refused", run_look },
		{ "top", "[flags]", "all of that on the whole screen, with rates", run_look },
	};

	return cli_dispatch(commands, ARRAY_SIZE(commands), argc, argv, envp);
}
