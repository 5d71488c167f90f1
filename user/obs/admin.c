/* SPDX-License-Identifier: Apache-2.0 */
/*
 * admin.c - the admin HTTP server.
 *
 * libmicrohttpd runs two threads, and only one request for /streams or /executors is
 * served at a time: it waits for the workers, and must not keep a liveness probe waiting.
 * Everything a peer can make it spend is bounded: connections, memory and seconds of
 * each, and a request's body is not read. There is nothing here to change the proxy with,
 * and the only script that a browser may run is the status page's own.
 *
 * The listening socket is made here rather than by the library, for errors that say
 * what went wrong and the port that was really taken.
 */
#include "obs/admin.h"

#include <jansson.h>
#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/version.h"
#include "config/options.h"
#include "obs/metrics.h"
#include "obs/page.h"

#define ADMIN_THREADS 2
#define ADMIN_CONNECTIONS 64U
#define ADMIN_CONNECTION_MEMORY ((size_t)16 * KiB)
#define ADMIN_TIMEOUT_S 10U
#define ADMIN_COLLECT_MS 1000

struct admin {
	struct MHD_Daemon *daemon;
	struct admin_source src;
	struct addr addr;
	bool collecting; /* atomic: a thread is in src.collect() */
};

struct page {
	unsigned status;
	const char *type;
	const char *policy; /* Content-Security-Policy; NULL: nothing at all */
	char *body;         /* for free(), unless is_static */
	bool is_static;
	size_t len;
	bool retry; /* a second later */
};

#define TEXT "text/plain; charset=utf-8"
#define JSON "application/json"

/* Gives page a body; NULL becomes an answer about memory that needs none. */
static void set_body(struct page *page, unsigned status, const char *type, char *body)
{
	*page = (struct page){ .status = body ? status : MHD_HTTP_INTERNAL_SERVER_ERROR,
			       .type = body ? type : TEXT,
			       .body = body,
			       .len = body ? strlen(body) : 0 };
}

static void page_healthz(struct admin *a, struct page *page)
{
	(void)a;
	set_body(page, MHD_HTTP_OK, TEXT, strdup("ok\n"));
}

static void page_readyz(struct admin *a, struct page *page)
{
	static const char *const names[] = {
		[ADMIN_STARTING] = "starting\n",
		[ADMIN_READY] = "ready\n",
		[ADMIN_DRAINING] = "draining\n",
	};
	enum admin_state state = a->src.state(a->src.ctx);

	set_body(page, state == ADMIN_READY ? MHD_HTTP_OK : MHD_HTTP_SERVICE_UNAVAILABLE, TEXT,
		 strdup(names[state]));
}

static void page_metrics(struct admin *a, struct page *page)
{
	enum admin_state state = a->src.state(a->src.ctx);
	struct metrics_source src = {
		.stats = a->src.stats,
		.n_stats = a->src.n_stats,
		.log = a->src.log,
		.ready = state == ADMIN_READY,
		.draining = state == ADMIN_DRAINING,
		.more = a->src.more_metrics,
		.ctx = a->src.ctx,
	};
	size_t len;

	set_body(page, MHD_HTTP_OK, METRICS_CONTENT_TYPE, metrics_render(&src, &len));
}

/* What all workers have, rendered by `json`. */
static void page_collected(struct admin *a, struct page *page,
			   char *(*json)(const struct streams *s, unsigned workers_missing))
{
	struct streams *s;
	unsigned missing;
	char *text = NULL;

	if (!a->src.collect) {
		set_body(page, MHD_HTTP_NOT_FOUND, TEXT, strdup("not available\n"));
		return;
	}
	if (__atomic_exchange_n(&a->collecting, true, __ATOMIC_ACQUIRE)) {
		set_body(page, MHD_HTTP_SERVICE_UNAVAILABLE, TEXT, strdup("asked already\n"));
		page->retry = true;
		return;
	}
	s = streams_new();
	if (s) {
		missing = a->src.collect(a->src.ctx, ADMIN_COLLECT_MS, s);
		text = json(s, missing);
		streams_free(s);
	}
	__atomic_store_n(&a->collecting, false, __ATOMIC_RELEASE);
	set_body(page, MHD_HTTP_OK, JSON, text);
}

static void page_streams(struct admin *a, struct page *page)
{
	page_collected(a, page, streams_json);
}

static void page_executors(struct admin *a, struct page *page)
{
	page_collected(a, page, streams_executors_json);
}

/* {"version":...,"flags":{"listen":["..."],"workers":"2",...}} */
static void add_flag(void *arg, const struct option_view *o)
{
	json_t *flags = arg, *value = NULL;

	if (!o->repeatable) {
		value = json_string(o->values[0]);
	} else {
		value = json_array();
		for (unsigned i = 0; i < o->n_values; i++)
			json_array_append_new(value, json_string(o->values[i]));
	}
	json_object_set_new(flags, o->flag, value);
}

static void page_config(struct admin *a, struct page *page)
{
	json_t *root = json_object(), *flags = json_object();
	char *text = NULL;

	config_each_option(a->src.config, add_flag, flags);
	if (!json_object_set_new(root, "version", json_string(fs_version)) &&
	    !json_object_set(root, "flags", flags))
		text = json_dumps(root, JSON_INDENT(2));
	json_decref(flags);
	json_decref(root);
	set_body(page, MHD_HTTP_OK, JSON, text);
}

static void page_index(struct admin *a, struct page *page)
{
	(void)a;
	*page = (struct page){ .status = MHD_HTTP_OK,
			       .type = "text/html; charset=utf-8",
			       .policy = page_status.policy,
			       .body = (char *)(uintptr_t)page_status.bytes,
			       .is_static = true,
			       .len = page_status.len };
}

static const struct route {
	const char *path, *about;
	void (*make)(struct admin *a, struct page *page);
} routes[] = {
	{ "/", "all this for a person with a browser", page_index },
	{ "/healthz", "200 while the process lives", page_healthz },
	{ "/readyz", "200, or 503 while starting or draining", page_readyz },
	{ "/metrics", "counters for Prometheus", page_metrics },
	{ "/streams", "live streams, JSON", page_streams },
	{ "/executors", "executors in use, JSON", page_executors },
	{ "/config", "flags and their values, JSON", page_config },
};

static void not_found(struct page *page)
{
	char *text = NULL;
	size_t len = 0;
	FILE *out = open_memstream(&text, &len);

	if (out) {
		fprintf(out, "not found; flightsplice %s has here\n\n", fs_version);
		for (unsigned i = 0; i < ARRAY_SIZE(routes); i++)
			fprintf(out, "%-10s %s\n", routes[i].path, routes[i].about);
		if (fclose(out)) {
			free(text);
			text = NULL;
		}
	}
	set_body(page, MHD_HTTP_NOT_FOUND, TEXT, text);
}

static void make_page(struct admin *a, const char *url, const char *method, struct page *page)
{
	if (strcmp(method, MHD_HTTP_METHOD_GET) && strcmp(method, MHD_HTTP_METHOD_HEAD)) {
		set_body(page, MHD_HTTP_METHOD_NOT_ALLOWED, TEXT, strdup("only GET and HEAD\n"));
		return;
	}
	for (unsigned i = 0; i < ARRAY_SIZE(routes); i++) {
		if (!strcmp(url, routes[i].path)) {
			routes[i].make(a, page);
			return;
		}
	}
	not_found(page);
}

/* Takes over page->body. */
static enum MHD_Result answer(struct MHD_Connection *c, struct page *page)
{
	struct MHD_Response *r;
	enum MHD_Result ok;

	if (page->body)
		r = MHD_create_response_from_buffer(page->len, page->body,
						    page->is_static ? MHD_RESPMEM_PERSISTENT
								    : MHD_RESPMEM_MUST_FREE);
	else
		r = MHD_create_response_from_buffer(0, (void *)"", MHD_RESPMEM_PERSISTENT);
	if (!r) {
		if (!page->is_static)
			free(page->body);
		return MHD_NO;
	}
	MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, page->type);
	MHD_add_response_header(r, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
	MHD_add_response_header(r, "X-Content-Type-Options", "nosniff");
	MHD_add_response_header(r, "Content-Security-Policy",
				page->policy ? page->policy : "default-src 'none'");
	MHD_add_response_header(r, "Referrer-Policy", "no-referrer");
	if (page->retry)
		MHD_add_response_header(r, MHD_HTTP_HEADER_RETRY_AFTER, "1");
	if (page->status == MHD_HTTP_METHOD_NOT_ALLOWED) {
		MHD_add_response_header(r, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
		MHD_add_response_header(r, MHD_HTTP_HEADER_CONNECTION, "close");
	}
	ok = MHD_queue_response(c, page->status, r);
	MHD_destroy_response(r);
	return ok;
}

static enum MHD_Result on_request(void *cls, struct MHD_Connection *c, const char *url,
				  const char *method, const char *version, const char *upload,
				  size_t *upload_size, void **state)
{
	static const int headers_seen;
	struct page page;

	(void)version;
	(void)upload;
	/* The library calls once with the headers and again when the request is complete. */
	if (!*state &&
	    (!strcmp(method, MHD_HTTP_METHOD_GET) || !strcmp(method, MHD_HTTP_METHOD_HEAD))) {
		*state = (void *)&headers_seen;
		return MHD_YES;
	}
	if (*upload_size) { /* a GET with a body: not read */
		*upload_size = 0;
		return MHD_YES;
	}
	make_page(cls, url, method, &page);
	return answer(c, &page);
}

/* ---- start and stop ---- */

/* A listening socket, or -errno. */
static int make_socket(struct addr *addr, const char **ret_why)
{
	const int on = 1, off = 0;
	int fd, err;

	*ret_why = "socket";
	fd = socket(addr->sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (addr->sa.sa_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
	*ret_why = "bind";
	if (bind(fd, &addr->sa, addr->len))
		goto fail;
	*ret_why = "listen";
	if (listen(fd, (int)ADMIN_CONNECTIONS))
		goto fail;
	*ret_why = "getsockname";
	addr->len = sizeof(addr->ss);
	if (getsockname(fd, &addr->sa, &addr->len))
		goto fail;
	return fd;
fail:
	err = -errno;
	close(fd);
	return err;
}

int admin_start(const struct addr *addr, const struct admin_source *src, struct admin **ret,
		const char **ret_why)
{
	struct admin *a = calloc(1, sizeof(*a));
	int fd;

	*ret_why = "memory";
	if (!a)
		return -ENOMEM;
	a->src = *src;
	a->addr = *addr;
	fd = make_socket(&a->addr, ret_why);
	if (fd < 0) {
		free(a);
		return fd;
	}
	*ret_why = "start of the HTTP server";
	a->daemon =
		MHD_start_daemon(MHD_USE_EPOLL_INTERNAL_THREAD, 0, NULL, NULL, on_request, a,
				 MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_THREAD_POOL_SIZE,
				 ADMIN_THREADS, MHD_OPTION_CONNECTION_LIMIT, ADMIN_CONNECTIONS,
				 MHD_OPTION_CONNECTION_MEMORY_LIMIT, ADMIN_CONNECTION_MEMORY,
				 MHD_OPTION_CONNECTION_TIMEOUT, ADMIN_TIMEOUT_S, MHD_OPTION_END);
	if (!a->daemon) {
		close(fd);
		free(a);
		return -ENOMEM;
	}
	*ret = a;
	return 0;
}

void admin_stop(struct admin *a)
{
	if (!a)
		return;
	MHD_stop_daemon(a->daemon); /* closes the listening socket too */
	free(a);
}

const struct addr *admin_addr(const struct admin *a)
{
	return &a->addr;
}
