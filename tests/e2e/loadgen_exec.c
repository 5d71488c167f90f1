/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loadgen_exec.c - the pretend executors: a thread and an epoll set for each
 * address, every DoGet answered with what its ticket's job id asks for.
 */
#define _GNU_SOURCE
#include "loadgen.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define LISTEN_MAX 64

struct served {
	struct conn io;
	uint16_t port; /* the listener's */
};

struct answer {
	uint64_t seed, total, sent;
	uint8_t request[512];
	size_t request_len;
};

static ssize_t answer_read(nghttp2_session *ng, int32_t id, uint8_t *buf, size_t len,
			   uint32_t *flags, nghttp2_data_source *src, void *arg)
{
	struct answer *a = src->ptr;
	nghttp2_nv status = nv("grpc-status", "0");

	(void)arg;
	if (len > a->total - a->sent)
		len = a->total - a->sent;
	payload_fill(buf, a->seed, a->sent, len);
	a->sent += len;
	if (a->sent == a->total) {
		*flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
		if (nghttp2_submit_trailer(ng, id, &status, 1))
			return NGHTTP2_ERR_CALLBACK_FAILURE;
	}
	return (ssize_t)len;
}

/* The job id in the ticket is "b=BYTES,s=SEED;". A ticket for another port is refused. */
static int answer_start(nghttp2_session *ng, int32_t id, struct answer *a, uint16_t port)
{
	nghttp2_nv head[] = { nv(":status", "200"), nv("content-type", "application/grpc") };
	nghttp2_nv bad[] = { nv(":status", "200"), nv("content-type", "application/grpc"),
			     nv("grpc-status", "5"), nv("grpc-message", "no such job") };
	nghttp2_data_provider body = { .source.ptr = a, .read_callback = answer_read };
	uint8_t own[8] = { 0x30 };
	size_t own_len = 1 + put_varint(own + 1, port);
	char *job;

	a->request[a->request_len] = 0;
	job = memmem(a->request, a->request_len, "b=", 2);
	if (!job || !memmem(a->request, a->request_len, own, own_len) ||
	    sscanf(job, "b=%" SCNu64 ",s=%" SCNu64 ";", &a->total, &a->seed) != 2)
		return nghttp2_submit_response(ng, id, bad, 4, NULL);
	return nghttp2_submit_response(ng, id, head, 2, &body);
}

static int exec_begin_headers(nghttp2_session *ng, const nghttp2_frame *f, void *arg)
{
	(void)arg;
	return nghttp2_session_set_stream_user_data(ng, f->hd.stream_id,
						    xcalloc(sizeof(struct answer)));
}

static int exec_data(nghttp2_session *ng, uint8_t flags, int32_t id, const uint8_t *p, size_t len,
		     void *arg)
{
	struct answer *a = nghttp2_session_get_stream_user_data(ng, id);

	(void)flags;
	(void)arg;
	if (!a || a->request_len + len >= sizeof(a->request))
		return NGHTTP2_ERR_CALLBACK_FAILURE;
	memcpy(a->request + a->request_len, p, len);
	a->request_len += len;
	return 0;
}

static int exec_frame(nghttp2_session *ng, const nghttp2_frame *f, void *arg)
{
	struct answer *a;

	if (f->hd.type > NGHTTP2_HEADERS || !(f->hd.flags & NGHTTP2_FLAG_END_STREAM))
		return 0;
	a = nghttp2_session_get_stream_user_data(ng, f->hd.stream_id);
	return a ? answer_start(ng, f->hd.stream_id, a, ((struct served *)arg)->port) : 0;
}

static int exec_stream_close(nghttp2_session *ng, int32_t id, uint32_t code, void *arg)
{
	(void)code;
	(void)arg;
	free(nghttp2_session_get_stream_user_data(ng, id));
	return 0;
}

static void exec_accept(int listener, int ep)
{
	nghttp2_settings_entry s = { NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, 200 };
	nghttp2_session_callbacks *cb;
	struct sockaddr_in own;
	socklen_t len = sizeof(own);
	struct served *c;
	int fd = accept(listener, NULL, NULL);

	if (fd < 0)
		return;
	c = xcalloc(sizeof(*c));
	conn_init(&c->io, fd, ep, c);
	if (!getsockname(fd, (struct sockaddr *)&own, &len))
		c->port = ntohs(own.sin_port);
	if (nghttp2_session_callbacks_new(&cb))
		die("out of memory");
	nghttp2_session_callbacks_set_on_begin_headers_callback(cb, exec_begin_headers);
	nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, exec_data);
	nghttp2_session_callbacks_set_on_frame_recv_callback(cb, exec_frame);
	nghttp2_session_callbacks_set_on_stream_close_callback(cb, exec_stream_close);
	if (nghttp2_session_server_new(&c->io.ng, cb, c) ||
	    nghttp2_submit_settings(c->io.ng, NGHTTP2_FLAG_NONE, &s, 1))
		die("out of memory");
	nghttp2_session_callbacks_del(cb);
	conn_flush(&c->io);
	conn_watch(&c->io, ep);
}

static void served_free(struct conn *c)
{
	conn_close(c);
	free(c->owner);
}

/*
 * One listening address, one thread, one epoll set. A peer's end is not an
 * error here: what it means is judged on the client's side.
 */
static void *exec_thread(void *arg)
{
	int listener = (int)(intptr_t)arg, ep = epoll_create1(0);
	struct epoll_event e = { .events = EPOLLIN, .data.ptr = NULL }, ev[64];

	if (ep < 0 || epoll_ctl(ep, EPOLL_CTL_ADD, listener, &e))
		die("epoll");
	for (;;) {
		int n = epoll_wait(ep, ev, 64, -1);

		for (int i = 0; i < n; i++) {
			struct conn *c = ev[i].data.ptr;

			if (!c) {
				exec_accept(listener, ep);
				continue;
			}
			if (ev[i].events & ~(uint32_t)EPOLLOUT && conn_read(c))
				c->dead = true;
			if (!c->dead)
				conn_flush(c);
			if (c->dead || (!nghttp2_session_want_read(c->ng) &&
					!nghttp2_session_want_write(c->ng)))
				served_free(c);
			else
				conn_watch(c, ep);
		}
	}
	return NULL;
}

static int listen_on(const char *text)
{
	struct sockaddr_in a;
	int one = 1, fd = socket(AF_INET, SOCK_STREAM, 0);

	parse_address(text, &a);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof(a)) || listen(fd, 4096))
		die(text);
	return fd;
}

int run_exec(int argc, char **argv)
{
	int listeners[LISTEN_MAX], n = 0, opt;
	pthread_t t;

	while ((opt = getopt(argc, argv, "l:")) != -1) {
		if (opt != 'l' || n == LISTEN_MAX)
			return 2;
		listeners[n++] = listen_on(optarg);
	}
	for (int i = 0; i < n; i++)
		if (pthread_create(&t, NULL, exec_thread, (void *)(intptr_t)listeners[i]))
			die("thread");
	printf("ready\n");
	fflush(stdout);
	for (;;)
		pause();
}
