/* SPDX-License-Identifier: Apache-2.0 */
/*
 * splice_bench.c - the sockmap library as a bare mover, against a verdict that does nothing but walk
 * frame lengths (`bare`), against read/write (`rw`), and against itself with everything going through
 * the tap (`tap`), in three namespaces.
 *
 *   splice_bench [GB=2] [WINDOW=5000000] [RUNS=3] [MODES=bare,lib,tap,rw]
 *
 * The executor sends 15 frames of 16 KiB a write and stays WINDOW bytes ahead of the client, which
 * checks the number in each frame. Runs of the modes alternate, so that what else the machine does
 * hits all alike. Printed for each run: GB/s; CPU seconds of the whole machine per GB (only
 * meaningful on an idle machine); CPU of the mover's process per GB; and, in a second pass with the
 * kernel's program statistics on, nanoseconds of the verdict per skb.
 */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "datapath/pump.h"
#include "fact.skel.h"
#include "netns/lib/lab.h"

#define FRAMES 15
#define FRAME (H2_HEADER_LEN + H2_DEFAULT_FRAME_SIZE)
#define WRITE (FRAMES * FRAME)
#define SNDBUF 32000000

struct bench {
	struct lab lab;
	uint64_t bytes, window;
	int credit[2]; /* pipe: the client's total, to the executor */
};

static void write_all(int fd, const uint8_t *p, size_t len)
{
	while (len) {
		ssize_t n = write(fd, p, len);

		if (n < 0)
			lab_die("write");
		p += n;
		len -= (size_t)n;
	}
}

/* The executor's process: begins when it has read a byte. */
static void executor(const struct bench *b, int listener)
{
	static uint8_t buf[WRITE];
	uint64_t seq = 0, sent = 0, seen = 0;
	int fd = accept(listener, NULL, NULL);
	char go;

	lab_tcp(fd);
	memset(buf, 0x5a, sizeof(buf));
	if (read(fd, &go, 1) != 1)
		_exit(1);
	while (sent < b->bytes) {
		while (sent + WRITE - seen > b->window) {
			if (read(b->credit[0], &seen, 8) != 8)
				_exit(1);
		}
		for (int i = 0; i < FRAMES; i++, seq++) {
			h2_frame_put(buf + i * FRAME, H2_DEFAULT_FRAME_SIZE, H2_DATA, 0, 1);
			memcpy(buf + i * FRAME + H2_HEADER_LEN, &seq, 8);
		}
		write_all(fd, buf, WRITE);
		sent += WRITE;
	}
	shutdown(fd, SHUT_WR);
	(void)!read(fd, &go, 1);
	_exit(0);
}

/* Checks the numbers of the frames in b[0, have); bytes used. */
static size_t check(const uint8_t *b, size_t have, uint64_t *seq)
{
	size_t off = 0;

	while (have - off >= FRAME) {
		struct h2_frame f = h2_frame_get(b + off);
		uint64_t n;

		memcpy(&n, b + off + H2_HEADER_LEN, 8);
		if (f.length != H2_DEFAULT_FRAME_SIZE || n != *seq) {
			fprintf(stderr, "CORRUPT: frame %llu where %llu is due\n",
				(unsigned long long)n, (unsigned long long)*seq);
			_exit(1);
		}
		++*seq;
		off += FRAME;
	}
	return off;
}

/* The client's process: its time goes to `out`. */
static void client(const struct bench *b, uint16_t port, int out)
{
	static uint8_t buf[1 << 20];
	uint64_t total = 0, told = 0, seq = 0;
	size_t have = 0, used;
	int fd;
	double start = 0, end;

	lab_enter(&b->lab, LAB_CLIENT);
	fd = lab_connect(LAB_CLIENT_SIDE, port);
	while (total < b->bytes) {
		ssize_t n = read(fd, buf + have, sizeof(buf) - have);

		if (n <= 0)
			lab_die("client: read");
		if (!total)
			start = lab_now();
		have += (size_t)n;
		total += (uint64_t)n;
		used = check(buf, have, &seq);
		memmove(buf, buf + used, have - used);
		have -= used;
		if (total - told >= b->window / 4) {
			told = total;
			(void)!write(b->credit[1], &total, 8);
		}
	}
	end = lab_now() - start;
	(void)!write(out, &end, sizeof(end));
	_exit(0);
}

/* ---------------------------------------------------------------- movers */

struct result {
	double seconds; /* from the client's first bytes to its last */
	double busy;    /* CPU s, whole machine */
	double cpu;     /* CPU s, the mover's process */
	double ns;      /* of the verdict per skb; 0 = not measured */
	uint64_t skbs, passed;
};

struct job {
	int c, u;
	int out; /* readable when the client is done */
	struct result *res;
};

static bool finished(int out, int timeout_ms)
{
	struct pollfd pf = { .fd = out, .events = POLLIN };

	return poll(&pf, 1, timeout_ms) == 1;
}

static double cpu_used(void)
{
	struct rusage r;

	getrusage(RUSAGE_SELF, &r);
	return (double)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) +
	       (double)(r.ru_utime.tv_usec + r.ru_stime.tv_usec) * 1e-6;
}

/* The executor begins; what setting up has cost does not count. */
static void go(const struct job *j)
{
	j->res->cpu = -cpu_used();
	(void)!write(j->u, "g", 1);
}

static void program_cost(int fd, struct result *res)
{
	struct bpf_prog_info info = { 0 };
	uint32_t len = sizeof(info);

	if (bpf_obj_get_info_by_fd(fd, &info, &len) || info.run_cnt <= res->skbs)
		return;
	res->ns = (double)info.run_time_ns / (double)info.run_cnt;
	res->skbs = info.run_cnt;
}

static uint64_t boot_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_BOOTTIME, &t);
	return (uint64_t)t.tv_sec * NSEC_PER_SEC + (uint64_t)t.tv_nsec;
}

/* The library does not show its programs: the busiest of that name loaded since then. */
static void program_cost_by_name(const char *name, uint64_t since, struct result *res)
{
	uint32_t id = 0;

	while (!bpf_prog_get_next_id(id, &id)) {
		struct bpf_prog_info info = { 0 };
		uint32_t len = sizeof(info);
		int fd = bpf_prog_get_fd_by_id(id);

		if (fd < 0)
			continue;
		if (!bpf_obj_get_info_by_fd(fd, &info, &len) && info.load_time >= since &&
		    !strncmp(info.name, name, sizeof(info.name) - 1))
			program_cost(fd, res);
		close(fd);
	}
}

static void move_rw(const struct job *j)
{
	static uint8_t buf[256 * 1024];

	go(j);
	for (;;) {
		ssize_t n = read(j->u, buf, sizeof(buf));

		if (n <= 0)
			return;
		write_all(j->c, buf, (size_t)n);
	}
}

static void move_bare(const struct job *j)
{
	struct fact *f = fact__open_and_load();
	uint32_t zero = 0;
	uint64_t c = (uint64_t)j->c, u = (uint64_t)j->u;

	if (!f ||
	    bpf_prog_attach(bpf_program__fd(f->progs.walk), bpf_map__fd(f->maps.sources),
			    BPF_SK_SKB_VERDICT, 0) ||
	    bpf_map_update_elem(bpf_map__fd(f->maps.targets), &zero, &c, BPF_ANY) ||
	    bpf_map_update_elem(bpf_map__fd(f->maps.sources), &zero, &u, BPF_ANY))
		lab_die("bare");
	go(j);
	while (!finished(j->out, 1000))
		;
	program_cost(bpf_program__fd(f->progs.walk), j->res);
	fact__destroy(f);
}

static void pump_until_finished(const struct job *j, struct splice_pair *p)
{
	struct pump pump;

	if (pump_init(&pump, p))
		lab_die("pump");
	for (;;) {
		bool full = pump_run(&pump) == -EAGAIN;
		struct pollfd pf[] = { { .fd = full ? splice_inject_fd(p) : splice_tap_fd(p),
					 .events = full ? POLLOUT : POLLIN },
				       { .fd = j->out, .events = POLLIN } };

		poll(pf, 2, -1);
		if (pf[1].revents)
			break;
	}
	pump_free(&pump);
}

static void move_by(const struct job *j, bool tap)
{
	struct sockmap_options opt = { .workers = 1, .pairs = 4, .cgroup = "" };
	struct sockmap_callbacks cb = { 0 };
	struct splice_params params = { .max_frame = H2_DEFAULT_FRAME_SIZE, .tap_limit = GiB };
	char why[SOCKMAP_WHY_MAX];
	struct sockmap *sm;
	struct sockmap_worker *w;
	struct splice_pair *p;
	uint64_t since = boot_ns();
	unsigned lacks;
	int err;

	if (sockmap_new(&opt, &sm, &lacks, why) || sockmap_worker_new(sm, 0, &cb, &w) ||
	    splice_enrol(w, j->c, j->u, &params, &p, &err) != SPLICE_OK ||
	    splice_stream_add(p, 1, UINT64_MAX >> 1)) {
		fprintf(stderr, "lib: %s\n", why);
		_exit(1);
	}
	if (!tap)
		splice_release(p);
	go(j);
	pump_until_finished(j, p);
	program_cost_by_name("upstream_verdict", since, j->res);
	j->res->passed = splice_state(p)->passed;
	splice_free(p);
	sockmap_worker_free(w);
	sockmap_free(sm);
}

static void move_lib(const struct job *j)
{
	move_by(j, false);
}

/* Held all the time: what an excursion costs. */
static void move_tap(const struct job *j)
{
	move_by(j, true);
}

static const struct mode {
	const char *name;
	void (*move)(const struct job *j);
} modes[] = { { "bare", move_bare }, { "lib", move_lib }, { "tap", move_tap }, { "rw", move_rw } };

/* ---------------------------------------------------------------- runs */

static pid_t start_mover(const struct mode *m, const struct job *j)
{
	pid_t pid = lab_fork();
	int sndbuf = SNDBUF;

	if (pid)
		return pid;
	lab_tcp(j->c);
	setsockopt(j->c, SOL_SOCKET, SO_SNDBUFFORCE, &sndbuf, sizeof(sndbuf));
	m->move(j);
	j->res->cpu += cpu_used();
	_exit(0);
}

/* One transfer. 0, or -1 when the client was not satisfied. */
static int transfer(const struct bench *b, const struct mode *m, struct result *res)
{
	uint16_t port, client_port;
	struct job j = { .res = res };
	int done[2], at_executor, at_proxy, status;
	pid_t ex, cl, mv;

	memset(res, 0, sizeof(*res));
	if (pipe(done))
		lab_die("pipe");
	j.out = done[0];
	lab_enter(&b->lab, LAB_EXECUTOR);
	at_executor = lab_listen(LAB_EXECUTOR_ADDR, &port);
	ex = lab_fork();
	if (!ex)
		executor(b, at_executor);
	lab_enter(&b->lab, LAB_PROXY);
	at_proxy = lab_listen(LAB_CLIENT_SIDE, &client_port);
	cl = lab_fork();
	if (!cl)
		client(b, client_port, done[1]);
	j.c = accept(at_proxy, NULL, NULL);
	j.u = lab_connect(LAB_EXECUTOR_ADDR, port);
	res->busy = -lab_busy();
	mv = start_mover(m, &j);
	waitpid(cl, &status, 0);
	res->busy += lab_busy();
	close(j.c);
	close(j.u);
	close(at_executor);
	close(at_proxy);
	waitpid(mv, NULL, 0);
	kill(ex, SIGKILL);
	waitpid(ex, NULL, 0);
	if (!status && read(done[0], &res->seconds, sizeof(double)) != sizeof(double))
		status = -1;
	close(done[0]);
	close(done[1]);
	return status ? -1 : 0;
}

static int compare_double(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *v, int n)
{
	qsort(v, (size_t)n, sizeof(*v), compare_double);
	return v[n / 2];
}

#define MAX_RUNS 64

int main(int argc, char **argv)
{
	struct bench b = { .window = argc > 2 ? strtoull(argv[2], NULL, 0) : 5000000 };
	double gb = argc > 1 ? atof(argv[1]) : 2;
	int runs = argc > 3 ? atoi(argv[3]) : 3, failed = 0, stats = -1;
	const char *which = argc > 4 ? argv[4] : "bare,lib,tap,rw";
	double rate[ARRAY_SIZE(modes)][MAX_RUNS], busy[ARRAY_SIZE(modes)][MAX_RUNS];
	struct result *res =
		mmap(NULL, sizeof(*res), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (geteuid()) {
		printf("SKIP splice_bench: needs root\n");
		return 77;
	}
	b.bytes = ((uint64_t)(gb * 1e9) + WRITE - 1) / WRITE * WRITE;
	if (runs < 1 || runs > MAX_RUNS || res == MAP_FAILED || pipe(b.credit) || lab_new(&b.lab))
		return 1;
	/* The last turn is with program statistics on, and does not count for the medians. */
	for (int i = 0; i <= runs; i++) {
		if (i == runs)
			stats = bpf_enable_stats(BPF_STATS_RUN_TIME);
		for (size_t m = 0; m < ARRAY_SIZE(modes); m++) {
			double n = (double)b.bytes / 1e9;

			if (!strstr(which, modes[m].name))
				continue;
			if (transfer(&b, &modes[m], res)) {
				printf("%-4s FAILED\n", modes[m].name);
				failed = 1;
				continue;
			}
			printf("%-4s %.2f GB/s  machine %.3f CPU s/GB  mover %.4f CPU s/GB",
			       modes[m].name, n / res->seconds, res->busy / n, res->cpu / n);
			if (res->skbs)
				printf("  verdict %.0f ns x %llu skbs (%.0f ns a 64 KiB), passed "
				       "%llu",
				       res->ns, (unsigned long long)res->skbs,
				       res->ns * (double)res->skbs / (double)b.bytes * 65536,
				       (unsigned long long)res->passed);
			printf("\n");
			fflush(stdout);
			if (i < runs) {
				rate[m][i] = n / res->seconds;
				busy[m][i] = res->busy / n;
			}
		}
	}
	close(stats);
	for (size_t m = 0; m < ARRAY_SIZE(modes) && !failed; m++) {
		if (strstr(which, modes[m].name))
			printf("median %-4s %.2f GB/s  %.3f CPU s/GB\n", modes[m].name,
			       median(rate[m], runs), median(busy[m], runs));
	}
	lab_free(&b.lab);
	return failed;
}
