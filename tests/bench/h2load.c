/* SPDX-License-Identifier: Apache-2.0 */
/*
 * h2load - a client that fetches results, and measures.
 *
 *	h2load -c ADDR:PORT -e HOST:PORT[,HOST:PORT...] [-b BYTES] [-n FETCHES] [-j CONNECTIONS]
 *	       [-m STREAMS] [-w STREAM_WINDOW] [-W CONNECTION_WINDOW] [-k] [-g] [-V] [-s USEC]
 *	       [-T SECONDS]
 *
 * A fetch is one DoGet sent to -c, whose ticket, a real Ballista one (Action.fetch_partition), names
 * the executor -e, the next one of several for each fetch. -g asks for a body of gRPC messages,
 * -V checks every byte, -s sleeps after each read, -T gives a connection up that is silent so long.
 *
 * There is one thread for each of the -j connections. As Ballista's client does, it opens a new
 * connection for each fetch (-k keeps it) and sends preface, SETTINGS, window, request and an empty
 * DATA with END_STREAM in one write. With -m it keeps that many fetches open on each connection. A
 * window is opened again when half of it is used up.
 *
 * Prints one line of key=value figures, times in microseconds from before connect(), and exits 0
 * when every fetch got its whole result and grpc-status 0, else 1.
 */
#include <netinet/tcp.h>
#include <nghttp2/nghttp2.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "bench/wire.h"

#define EXECUTORS_MAX 64
#define IN_LEN (1 << 20)

static struct {
	const char *connect;
	const char *executors[EXECUTORS_MAX];
	unsigned n_executors;
	uint64_t bytes;
	long fetches;
	unsigned connections, streams;
	uint32_t stream_window, connection_window;
	bool keep, grpc, verify;
	unsigned sleep_us, timeout_s;
} opt = {
	.bytes = 1000,
	.fetches = 1,
	.connections = 1,
	.streams = 1,
	.stream_window = 2 << 20,
	.connection_window = 5 << 20,
	.timeout_s = 60,
};

struct fetch {
	uint32_t id; /* 0 = this entry is free */
	bool status_ok;
	uint32_t unacked;
	long index;
	uint64_t start_ns, first_ns;
	uint64_t got;
};

struct client {
	int fd; /* -1 = not connected */
	unsigned live;
	uint32_t next_id;
	uint64_t unacked;
	size_t have;
	nghttp2_hd_inflater *inflater;
	struct body body; /* all results are alike */
	struct fetch fetches[STREAMS_MAX];
	struct frames out;
	uint8_t *in;
};

/* Of every fetch, by its index; 0 = failed. */
static uint64_t *first_byte_ns, *whole_ns;
static atomic_long next_index, failed;
static atomic_ulong total_bytes;

static struct fetch *find_fetch(struct client *c, uint32_t id)
{
	for (unsigned i = 0; id && i < opt.streams; i++)
		if (c->fetches[i].id == id)
			return &c->fetches[i];
	return NULL;
}

static void fetch_failed(struct client *c, struct fetch *f)
{
	atomic_fetch_add(&failed, 1);
	f->id = 0;
	c->live--;
}

static void fetch_finish(struct client *c, struct fetch *f)
{
	uint64_t now = now_ns();

	atomic_fetch_add(&total_bytes, f->got);
	if (!f->status_ok || f->got != opt.bytes) {
		fprintf(stderr, "h2load: fetch %ld: %llu of %llu bytes, %s\n", f->index,
			(unsigned long long)f->got, (unsigned long long)opt.bytes,
			f->status_ok ? "status 0" : "no status 0");
		fetch_failed(c, f);
		return;
	}
	whole_ns[f->index] = now - f->start_ns;
	first_byte_ns[f->index] = (f->first_ns ? f->first_ns : now) - f->start_ns;
	f->id = 0;
	c->live--;
}

/* ---------------------------------------------------------------- requests */

static size_t put_varint(uint8_t *p, uint64_t v)
{
	size_t n = 0;

	for (; v >= 0x80; v >>= 7)
		p[n++] = (uint8_t)(v | 0x80);
	p[n++] = (uint8_t)v;
	return n;
}

static size_t put_bytes_field(uint8_t *p, unsigned field, const void *bytes, size_t len)
{
	size_t n = put_varint(p, field << 3 | 2);

	n += put_varint(p + n, len);
	memcpy(p + n, bytes, len);
	return n + len;
}

static size_t put_number_field(uint8_t *p, unsigned field, uint64_t v)
{
	size_t n = put_varint(p, field << 3);

	return n + put_varint(p + n, v);
}

/* Ticket.ticket(1) holding Action.fetch_partition(3), a FetchPartition. */
static size_t put_ticket(uint8_t *p, const char *executor, long index)
{
	const char *colon = strrchr(executor, ':');
	uint8_t partition[400], action[420];
	char job[40];
	size_t n = 0;
	int job_len = snprintf(job, sizeof(job), "%s=%llu", opt.grpc ? "grpc" : "bytes",
			       (unsigned long long)opt.bytes);

	n += put_bytes_field(partition + n, 1, job, (size_t)job_len);
	n += put_number_field(partition + n, 2, 1);
	n += put_number_field(partition + n, 3, (uint64_t)index);
	n += put_bytes_field(partition + n, 5, executor, (size_t)(colon - executor));
	n += put_number_field(partition + n, 6, (uint64_t)atoi(colon + 1));
	n = put_bytes_field(action, 3, partition, n);
	return put_bytes_field(p, 1, action, n);
}

static void add_request(struct client *c, const struct fetch *f)
{
	uint8_t block[600], message[600], *p = block;
	size_t len;

	*p++ = 0x83; /* :method POST */
	*p++ = 0x86; /* :scheme http */
	p = put_literal(p, ":path", "/arrow.flight.protocol.FlightService/DoGet");
	p = put_literal(p, ":authority", opt.connect);
	p = put_literal(p, "te", "trailers");
	p = put_literal(p, "content-type", "application/grpc");
	p = put_literal(p, "user-agent", "tonic/0.14.6");
	len = (size_t)(p - block);
	memcpy(frames_add(&c->out, (uint32_t)len, FRAME_HEADERS, FLAG_END_HEADERS, f->id), block,
	       len);

	len = put_ticket(message + 5, opt.executors[f->index % opt.n_executors], f->index);
	message[0] = 0;
	put_be32(message + 1, (uint32_t)len);
	memcpy(frames_add(&c->out, (uint32_t)len + 5, FRAME_DATA, 0, f->id), message, len + 5);
	frames_add(&c->out, 0, FRAME_DATA, FLAG_END_STREAM, f->id);
}

static int client_flush(struct client *c)
{
	for (size_t at = 0; at < c->out.len;) {
		ssize_t n = send(c->fd, c->out.bytes + at, c->out.len - at, MSG_NOSIGNAL);

		if (n < 0 && errno != EINTR)
			return -errno;
		if (n > 0)
			at += (size_t)n;
	}
	c->out.len = 0;
	return 0;
}

static void client_close(struct client *c)
{
	for (unsigned i = 0; i < opt.streams; i++)
		if (c->fetches[i].id)
			fetch_failed(c, &c->fetches[i]);
	if (c->fd >= 0)
		close(c->fd);
	if (c->inflater)
		nghttp2_hd_inflate_del(c->inflater);
	c->inflater = NULL;
	c->fd = -1;
}

static int client_connect(struct client *c)
{
	static const struct timeval send_timeout = { .tv_sec = 30 };
	struct timeval timeout = { .tv_sec = opt.timeout_s };
	struct sockaddr_in a = parse_addr(opt.connect);
	int one = 1;
	uint8_t *p;

	c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&a, sizeof(a)))
		return -errno;
	setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	setsockopt(c->fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
	setsockopt(c->fd, SOL_SOCKET, SO_SNDTIMEO, &send_timeout, sizeof(send_timeout));
	if (nghttp2_hd_inflate_new(&c->inflater))
		die("out of memory");
	c->have = 0;
	c->unacked = 0;
	c->next_id = 1;
	memcpy(c->out.bytes, PREFACE, PREFACE_LEN);
	c->out.len = PREFACE_LEN;
	p = frames_add(&c->out, 24, FRAME_SETTINGS, 0, 0);
	p = put_setting(p, SETTING_ENABLE_PUSH, 0);
	p = put_setting(p, SETTING_INITIAL_WINDOW, opt.stream_window);
	p = put_setting(p, SETTING_MAX_FRAME, DEFAULT_FRAME);
	put_setting(p, SETTING_MAX_HEADER_LIST, 16384);
	frames_window(&c->out, 0, opt.connection_window - DEFAULT_WINDOW);
	return 0;
}

/* Opens fetches up to the limit of this connection. False when there is nothing left to do. */
static bool client_fill(struct client *c)
{
	while (c->live < opt.streams) {
		long index = atomic_fetch_add(&next_index, 1);
		struct fetch *f = c->fetches;
		uint64_t start;

		if (index >= opt.fetches)
			break;
		start = now_ns();
		while (f->id)
			f++;
		if (c->fd < 0 && client_connect(c)) {
			perror("h2load: connect");
			atomic_fetch_add(&failed, 1);
			client_close(c);
			continue;
		}
		*f = (struct fetch){ .id = c->next_id, .index = index, .start_ns = start };
		c->next_id += 2;
		c->live++;
		add_request(c, f);
		if (c->out.len > sizeof(c->out.bytes) / 2 && client_flush(c))
			client_close(c);
	}
	if (c->fd >= 0 && client_flush(c))
		client_close(c);
	return c->live || atomic_load(&next_index) < opt.fetches;
}

/* ---------------------------------------------------------------- responses */

static void print_status(const char *what, const nghttp2_nv *nv)
{
	fprintf(stderr, "h2load: %s %.*s\n", what, (int)nv->valuelen, (const char *)nv->value);
}

static int client_headers(struct client *c, struct fetch *f, uint8_t flags, const uint8_t *p,
			  size_t len)
{
	if (!(flags & FLAG_END_HEADERS) || flags & FLAG_PADDED)
		return -EPROTO; /* no peer of ours sends such */
	for (;;) {
		nghttp2_nv nv;
		int got;
		ssize_t n = nghttp2_hd_inflate_hd2(c->inflater, &nv, &got, p, len, 1);

		if (n < 0)
			return -EPROTO;
		p += n;
		len -= (size_t)n;
		if (got & NGHTTP2_HD_INFLATE_FINAL)
			break;
		if (!(got & NGHTTP2_HD_INFLATE_EMIT) || !f)
			continue;
		if (nv.namelen == 11 && !memcmp(nv.name, "grpc-status", 11)) {
			f->status_ok = nv.valuelen == 1 && nv.value[0] == '0';
			if (!f->status_ok)
				print_status("grpc-status", &nv);
		} else if (nv.namelen == 12 && !memcmp(nv.name, "grpc-message", 12)) {
			print_status("grpc-message", &nv);
		}
	}
	nghttp2_hd_inflate_end_headers(c->inflater);
	if (f && flags & FLAG_END_STREAM)
		fetch_finish(c, f);
	return 0;
}

/* Opens the windows again. */
static int client_credit(struct client *c, struct fetch *f, uint32_t len)
{
	c->unacked += len;
	if (f)
		f->unacked += len;
	if (f && f->unacked >= opt.stream_window / 2) {
		if (!frames_window(&c->out, f->id, f->unacked))
			return -ENOBUFS;
		f->unacked = 0;
	}
	if (c->unacked >= opt.connection_window / 2) {
		if (!frames_window(&c->out, 0, (uint32_t)c->unacked))
			return -ENOBUFS;
		c->unacked = 0;
	}
	return 0;
}

static bool matches(struct client *c, const struct fetch *f, const uint8_t *p, uint32_t len)
{
	uint64_t offset = f->got;

	if (len > opt.bytes - offset)
		return false;
	while (len) {
		const uint8_t *want;
		size_t n = body_slice(&c->body, offset, len, &want);

		if (memcmp(p, want, n))
			return false;
		offset += n;
		p += n;
		len -= (uint32_t)n;
	}
	return true;
}

static int client_data(struct client *c, struct fetch *f, uint8_t flags, const uint8_t *p,
		       uint32_t len)
{
	int err = client_credit(c, f, len);

	if (err || !f)
		return err;
	if (flags & FLAG_PADDED) {
		if (!len || p[0] >= len)
			return -EPROTO;
		len -= 1u + p[0];
		p++;
	}
	if (!f->first_ns && len)
		f->first_ns = now_ns();
	if (opt.verify && !matches(c, f, p, len)) {
		fprintf(stderr, "h2load: fetch %ld differs behind byte %llu\n", f->index,
			(unsigned long long)f->got);
		return -EBADMSG;
	}
	f->got += len;
	if (flags & FLAG_END_STREAM) {
		fprintf(stderr, "h2load: END_STREAM on DATA, no trailers\n");
		fetch_failed(c, f);
	}
	return 0;
}

static int client_frame(struct client *c, const uint8_t *head, uint32_t len)
{
	uint32_t id = get_be32(head + 5) & 0x7fffffff;
	const uint8_t *p = head + FRAME_HEAD;
	struct fetch *f = find_fetch(c, id);

	switch (head[3]) {
	case FRAME_DATA:
		return client_data(c, f, head[4], p, len);
	case FRAME_HEADERS:
		return client_headers(c, f, head[4], p, len);
	case FRAME_RST_STREAM:
		fprintf(stderr, "h2load: RST_STREAM %u code %u\n", id, get_be32(p));
		if (f)
			fetch_failed(c, f);
		return 0;
	case FRAME_GOAWAY:
		fprintf(stderr, "h2load: GOAWAY code %u\n", get_be32(p + 4));
		return 0;
	case FRAME_SETTINGS:
		if (head[4] & FLAG_ACK)
			return 0;
		return frames_add(&c->out, 0, FRAME_SETTINGS, FLAG_ACK, 0) ? 0 : -ENOBUFS;
	case FRAME_PING:
		if (head[4] & FLAG_ACK)
			return 0;
		return frames_ping_ack(&c->out, p) ? 0 : -ENOBUFS;
	default:
		return 0;
	}
}

/* Consumes the whole frames of `in`. 0 or -errno. */
static int client_parse(struct client *c)
{
	const uint8_t *p = c->in;
	size_t left = c->have;
	int err = 0;

	while (!err && left >= FRAME_HEAD) {
		uint32_t len = get_be24(p);

		if (len > DEFAULT_FRAME) {
			fprintf(stderr, "h2load: frame of %u bytes\n", len);
			return -EBADMSG;
		}
		if (left < FRAME_HEAD + len)
			break;
		err = client_frame(c, p, len);
		p += FRAME_HEAD + len;
		left -= FRAME_HEAD + len;
	}
	memmove(c->in, p, left);
	c->have = left;
	return err;
}

static void *client_thread(void *arg)
{
	struct client *c = must_alloc(sizeof(*c));

	(void)arg;
	c->fd = -1;
	c->in = must_alloc(IN_LEN);
	body_init(&c->body, opt.bytes, opt.grpc);
	while (client_fill(c)) {
		ssize_t n;

		if (c->fd < 0)
			continue;
		n = recv(c->fd, c->in + c->have, IN_LEN - c->have, 0);
		if (n <= 0) {
			fprintf(stderr, "h2load: connection ended: %s\n",
				n ? strerror(errno) : "FIN");
			client_close(c);
			continue;
		}
		c->have += (size_t)n;
		if (opt.sleep_us)
			usleep(opt.sleep_us);
		if (client_parse(c) || client_flush(c) || (!c->live && !opt.keep))
			client_close(c);
	}
	client_close(c);
	free(c->in);
	free(c);
	return NULL;
}

/* ---------------------------------------------------------------- figures */

static int compare_u64(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* Sorts, and leaves out the failed ones. */
static double percentile_us(uint64_t *values, double share)
{
	long skip = 0, n;

	qsort(values, (size_t)opt.fetches, sizeof(*values), compare_u64);
	while (skip < opt.fetches && !values[skip])
		skip++;
	n = opt.fetches - skip;
	return n ? (double)values[skip + (long)((double)(n - 1) * share + 0.5)] / 1e3 : 0;
}

static double cpu_seconds(void)
{
	struct rusage r;

	getrusage(RUSAGE_SELF, &r);
	return (double)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) +
	       (double)(r.ru_utime.tv_usec + r.ru_stime.tv_usec) * 1e-6;
}

static int run(void)
{
	pthread_t *threads = must_alloc(opt.connections * sizeof(*threads));
	uint64_t start;
	double secs, bytes;

	first_byte_ns = must_alloc((size_t)opt.fetches * sizeof(*first_byte_ns));
	whole_ns = must_alloc((size_t)opt.fetches * sizeof(*whole_ns));
	start = now_ns();
	for (unsigned i = 0; i < opt.connections; i++)
		if (pthread_create(&threads[i], NULL, client_thread, NULL))
			die("cannot start a thread");
	for (unsigned i = 0; i < opt.connections; i++)
		pthread_join(threads[i], NULL);
	secs = (double)(now_ns() - start) / 1e9;
	bytes = (double)atomic_load(&total_bytes);
	printf("fetches=%ld failed=%ld bytes=%.0f secs=%.6f GBps=%.3f fps=%.1f ", opt.fetches,
	       atomic_load(&failed), bytes, secs, bytes / secs / 1e9, (double)opt.fetches / secs);
	printf("ttfb_p50_us=%.1f ttfb_p99_us=%.1f ", percentile_us(first_byte_ns, 0.5),
	       percentile_us(first_byte_ns, 0.99));
	printf("lat_p50_us=%.1f lat_p99_us=%.1f client_cpu=%.3f\n", percentile_us(whole_ns, 0.5),
	       percentile_us(whole_ns, 0.99), cpu_seconds());
	free(threads);
	free(first_byte_ns);
	free(whole_ns);
	return atomic_load(&failed) ? 1 : 0;
}

static void parse_option(int o)
{
	switch (o) {
	case 'c':
		opt.connect = optarg;
		break;
	case 'e':
		for (char *p = strtok(optarg, ","); p; p = strtok(NULL, ",")) {
			if (opt.n_executors == EXECUTORS_MAX || strlen(p) > 256)
				die("too many or too long executors");
			parse_addr(p);
			opt.executors[opt.n_executors++] = p;
		}
		break;
	case 'b':
		opt.bytes = (uint64_t)strtod(optarg, NULL);
		break;
	case 'n':
		opt.fetches = atol(optarg);
		break;
	case 'j':
		opt.connections = (unsigned)atoi(optarg);
		break;
	case 'm':
		opt.streams = (unsigned)atoi(optarg);
		break;
	case 'w':
		opt.stream_window = (uint32_t)strtod(optarg, NULL);
		break;
	case 'W':
		opt.connection_window = (uint32_t)strtod(optarg, NULL);
		break;
	case 'k':
		opt.keep = true;
		break;
	case 'g':
		opt.grpc = true;
		break;
	case 'V':
		opt.verify = true;
		break;
	case 's':
		opt.sleep_us = (unsigned)atoi(optarg);
		break;
	case 'T':
		opt.timeout_s = (unsigned)atoi(optarg);
		break;
	default:
		die("usage: see the head of tests/bench/h2load.c");
	}
}

static void check_options(void)
{
	if (!opt.connect || !opt.n_executors)
		die("-c ADDR:PORT and -e HOST:PORT are needed");
	if (opt.fetches < 1 || opt.connections < 1 || opt.streams < 1 || opt.streams > STREAMS_MAX)
		die("-n and -j must be at least 1, -m 1 to %d", STREAMS_MAX);
	if (opt.stream_window < 2 || opt.stream_window > INT32_MAX)
		die("-w must be 2 to 2^31-1");
	/* An increment of 0 would be a protocol error, so 65535 itself cannot be had. */
	if (opt.connection_window <= DEFAULT_WINDOW || opt.connection_window > INT32_MAX)
		die("-W must be %d to 2^31-1", DEFAULT_WINDOW + 1);
	if (opt.grpc && opt.bytes && opt.bytes < MESSAGE_HEAD)
		die("with -g a result has 0 or at least %d bytes", MESSAGE_HEAD);
}

int main(int argc, char **argv)
{
	int o;

	signal(SIGPIPE, SIG_IGN);
	while ((o = getopt(argc, argv, "c:e:b:n:j:m:w:W:kgVs:T:")) != -1)
		parse_option(o);
	check_options();
	make_patterns();
	return run();
}
