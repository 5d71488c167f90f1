/* SPDX-License-Identifier: Apache-2.0 */
/*
 * top.c - see top.h.
 *
 * A snapshot is taken once a second unless paused, and the screen is drawn from it whenever that or
 * what is wanted of it (kind, order, filter, place) changes. A snapshot that cannot be had leaves the
 * last one on the screen, with the reason above it: a proxy that ends must not take with it what one
 * was looking at.
 *
 *	line 0  process, version, state
 *	     1  streams, clients, connections
 *	     2  bytes per second by datapath; dropped, granted, held
 *	     3  what is wrong with a process, or with reading
 *	     4  kinds, order, filter
 *	     5  titles; below them the rows
 *	  last  keys, or the filter being typed
 */
#include "cli/top.h"

#include <ncurses.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/units.h"
#include "cli/view.h"

#define FILTER_MAX 64
#define ESCAPE 27
#define FIRST_ROW 6

struct order {
	const char *title; /* of the column; NULL = the default one */
	bool reverse;
};

struct top {
	const struct look_source *source;
	const char *pin_dir;
	struct snapshot *s;
	struct rates *rates;
	char why[SNAPSHOT_WHY_MAX]; /* the last look failed */
	enum view_kind kind;
	struct order order[VIEW_KINDS];
	unsigned first_row, first_column;
	char filter[FILTER_MAX], typed[FILTER_MAX];
	bool typing, paused, help, quit;
	uint64_t look_at_ms;
};

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / NSEC_PER_MSEC;
}

static void take(struct top *t)
{
	struct snapshot *s;

	t->look_at_ms = now_ms() + LOOK_PERIOD_MS;
	t->why[0] = '\0';
	if (t->source->read(t->pin_dir, &s, t->why))
		return;
	rates_update(t->rates, s);
	t->source->free(t->s);
	t->s = s;
}

/* ---------------------------------------------------------------- drawing */

/* Clips at the screen's edge. */
static void printf_like(4, 5) line(int y, int x, attr_t attributes, const char *format, ...)
{
	char text[1024];
	va_list args;

	if (y >= LINES || x >= COLS)
		return;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	attron(attributes);
	mvaddnstr(y, x, text, COLS - x);
	attroff(attributes);
}

static void add_totals(struct board_totals *to, const struct board_totals *from)
{
	to->streams += from->streams;
	to->streams_opened += from->streams_opened;
	to->streams_complete += from->streams_complete;
	to->clients += from->clients;
	to->clients_refused += from->clients_refused;
	to->executor_connections += from->executor_connections;
	to->executor_connections_idle += from->executor_connections_idle;
	to->dial_failures += from->dial_failures;
	to->bytes_dropped += from->bytes_dropped;
	to->granted_bytes += from->granted_bytes;
	to->held_bytes += from->held_bytes;
}

static void draw_process(const struct top *t)
{
	const struct snapshot_instance *i = &t->s->instances[0];
	uint64_t started = i->build.started_unix_ms, now = t->s->taken_unix_ms;
	char up[UNITS_LEN];

	units_duration(up, now > started ? now - started : 0);
	if (t->s->n_instances > 1)
		line(0, 0, A_BOLD, "flightsplice  %u processes in %s", t->s->n_instances,
		     t->pin_dir);
	else
		line(0, 0, A_BOLD, "flightsplice %s  process %u on %s  up %s  %s", i->build.version,
		     i->build.pid, i->build.listen, up, i->totals.state);
	if (t->paused)
		line(0, COLS - 8, A_REVERSE, " PAUSED ");
}

static void draw_totals(const struct top *t)
{
	char relay[UNITS_LEN], kernel[UNITS_LEN], dropped[UNITS_LEN], granted[UNITS_LEN],
		held[UNITS_LEN];
	struct board_totals sum = { .streams = 0 };
	double by_relay = 0, by_kernel = 0;

	for (unsigned i = 0; i < t->s->n_instances; i++) {
		struct rates_of_instance r = rates_instance(t->rates, i);

		add_totals(&sum, &t->s->instances[i].totals);
		by_relay += r.relay > 0 ? r.relay : 0;
		by_kernel += r.kernel > 0 ? r.kernel : 0;
	}
	line(1, 0, A_NORMAL,
	     "streams %llu (%llu opened, %llu complete)  clients %llu (%llu refused)  executor "
	     "connections %llu (%llu idle)  failed dials %llu",
	     (unsigned long long)sum.streams, (unsigned long long)sum.streams_opened,
	     (unsigned long long)sum.streams_complete, (unsigned long long)sum.clients,
	     (unsigned long long)sum.clients_refused, (unsigned long long)sum.executor_connections,
	     (unsigned long long)sum.executor_connections_idle,
	     (unsigned long long)sum.dial_failures);
	line(2, 0, A_NORMAL, "relay %s  sockmap %s  dropped %s  granted %s  held %s",
	     units_rate(relay, by_relay), units_rate(kernel, by_kernel),
	     units_bytes(dropped, sum.bytes_dropped), units_bytes(granted, sum.granted_bytes),
	     units_bytes(held, sum.held_bytes));
}

static void draw_remark(const struct top *t)
{
	char buf[VIEW_REMARK] = "";

	for (unsigned i = 0; !*buf && i < t->s->n_instances; i++)
		view_remark(t->s, i, buf);
	if (t->why[0])
		line(3, 0, A_REVERSE, "%s", t->why);
	else if (*buf || t->s->problem[0])
		line(3, 0, A_REVERSE, "%s", *buf ? buf : t->s->problem);
}

static unsigned sort_column(const struct top *t, const struct view *v)
{
	const char *title = t->order[t->kind].title;

	for (unsigned c = 0; title && c < view_columns(v); c++)
		if (!strcmp(view_column(v, c)->title, title))
			return c;
	return view_default_column(v);
}

static void draw_kinds(const struct top *t, const struct view *v)
{
	int x = 0;

	for (unsigned k = 0; k < VIEW_KINDS; k++) {
		const char *name = view_kind_name((enum view_kind)k);

		line(4, x, k == t->kind ? A_REVERSE : A_NORMAL, " %u %s ", k + 1, name);
		x += (int)strlen(name) + 5;
	}
	line(4, x, A_NORMAL, "  by %s%s", view_column(v, sort_column(t, v))->title,
	     t->order[t->kind].reverse ? " reversed" : "");
	x += 5 + (int)strlen(view_column(v, sort_column(t, v))->title) +
	     (t->order[t->kind].reverse ? 9 : 0);
	if (t->filter[0])
		line(4, x, A_BOLD, "  only '%s' (%u hidden)", t->filter, view_hidden(v));
}

static unsigned width_of(const struct view *v, unsigned column, unsigned from, unsigned to)
{
	unsigned width = (unsigned)strlen(view_column(v, column)->title);
	char buf[VIEW_CELL];

	for (unsigned r = from; r < to; r++)
		width = (unsigned)max_u64(width, strlen(view_cell(v, r, column, buf)));
	return width;
}

static void draw_table(const struct top *t, const struct view *v)
{
	unsigned room = LINES > FIRST_ROW + 1 ? (unsigned)LINES - FIRST_ROW - 1 : 0;
	unsigned from = t->first_row,
		 to = (unsigned)min_u64(view_rows(v), (uint64_t)t->first_row + room);
	char buf[VIEW_CELL];
	int x = 0;

	line(5, 0, A_REVERSE, "%*s", COLS, "");
	for (unsigned c = t->first_column; c < view_columns(v) && x < COLS; c++) {
		const struct view_column *col = view_column(v, c);
		int width = (int)width_of(v, c, from, to);

		line(5, x, A_REVERSE | (c == sort_column(t, v) ? A_BOLD : 0), "%*s",
		     col->right ? width : -width, col->title);
		for (unsigned r = from; r < to; r++)
			line(FIRST_ROW + (int)(r - from), x, A_NORMAL, "%*s",
			     col->right ? width : -width, view_cell(v, r, c, buf));
		x += width + 2;
	}
	if (!view_rows(v) && room)
		line(FIRST_ROW, 0, A_DIM, "none");
}

static void draw_help(void)
{
	static const char *const text[] = {
		"1-5, Tab      streams, executors, clients, datapaths, drops",
		"s, S          order by the next column, by the one before",
		"r             the other way round",
		"/             only rows that contain a text; Escape: all again",
		"Space, p      stop and go on",
		"Up, Down, PgUp, PgDn, Home   through the rows",
		"Left, Right   through the columns",
		"q             end",
		"",
		"SINCE is for how long a stream has not moved, WAITS FOR says who is to act:",
		"client window (it grants nothing), client socket (it does not read), executor ...",
	};

	for (unsigned i = 0; i < ARRAY_SIZE(text); i++)
		line(FIRST_ROW + (int)i, 2, A_NORMAL, "%s", text[i]);
}

static void draw(struct top *t)
{
	struct view *v = view_new(t->kind, t->s, t->rates, t->filter);

	erase();
	if (v) {
		view_sort(v, sort_column(t, v), t->order[t->kind].reverse);
		if (t->first_row >= view_rows(v))
			t->first_row = view_rows(v) ? view_rows(v) - 1 : 0;
		if (t->first_column >= view_columns(v))
			t->first_column = view_columns(v) - 1;
		draw_process(t);
		draw_totals(t);
		draw_remark(t);
		draw_kinds(t, v);
		if (t->help)
			draw_help();
		else
			draw_table(t, v);
	}
	if (t->typing)
		line(LINES - 1, 0, A_BOLD, "only rows with: %s_", t->typed);
	else
		line(LINES - 1, 0, A_DIM,
		     "q end  Tab next  s order  r reverse  / filter  Space pause  ? help");
	refresh();
	view_free(v);
}

/* ---------------------------------------------------------------- keys */

static void next_order(struct top *t, int step)
{
	struct view *v = view_new(t->kind, t->s, t->rates, NULL);
	unsigned n;

	if (!v)
		return;
	n = view_columns(v);
	t->order[t->kind].title =
		view_column(v, (sort_column(t, v) + n + (unsigned)step) % n)->title;
	view_free(v);
}

static void show_kind(struct top *t, unsigned kind)
{
	t->kind = (enum view_kind)(kind % VIEW_KINDS);
	t->first_row = t->first_column = 0;
}

static void type(struct top *t, int key)
{
	size_t len = strlen(t->typed);

	if (key == ESCAPE) {
		t->typing = false;
	} else if (key == '\n' || key == '\r' || key == KEY_ENTER) {
		memcpy(t->filter, t->typed, sizeof(t->filter));
		t->typing = false;
		t->first_row = 0;
	} else if (key == KEY_BACKSPACE || key == 127 || key == '\b') {
		if (len)
			t->typed[len - 1] = '\0';
	} else if (key >= ' ' && key < 127 && len + 1 < sizeof(t->typed)) {
		t->typed[len] = (char)key;
		t->typed[len + 1] = '\0';
	}
}

static void scroll_rows(struct top *t, int by)
{
	if (by < 0 && t->first_row < (unsigned)-by)
		t->first_row = 0;
	else
		t->first_row += (unsigned)by; /* draw() bounds it */
}

static void move_by_key(struct top *t, int key)
{
	int page = LINES > FIRST_ROW + 2 ? LINES - FIRST_ROW - 2 : 1;

	switch (key) {
	case KEY_UP:
		scroll_rows(t, -1);
		break;
	case KEY_DOWN:
		scroll_rows(t, 1);
		break;
	case KEY_PPAGE:
		scroll_rows(t, -page);
		break;
	case KEY_NPAGE:
		scroll_rows(t, page);
		break;
	case KEY_HOME:
		t->first_row = t->first_column = 0;
		break;
	case KEY_LEFT:
		t->first_column -= t->first_column > 0;
		break;
	case KEY_RIGHT:
		t->first_column++; /* draw() bounds it */
		break;
	default:
		break;
	}
}

static void press(struct top *t, int key)
{
	if (t->typing) {
		type(t, key);
		return;
	}
	if (key >= '1' && key < '1' + VIEW_KINDS) {
		show_kind(t, (unsigned)(key - '1'));
		return;
	}
	switch (key) {
	case 'q':
		t->quit = true;
		break;
	case '\t':
		show_kind(t, t->kind + 1);
		break;
	case KEY_BTAB:
		show_kind(t, t->kind + VIEW_KINDS - 1);
		break;
	case 's':
		next_order(t, 1);
		break;
	case 'S':
		next_order(t, -1);
		break;
	case 'r':
		t->order[t->kind].reverse = !t->order[t->kind].reverse;
		break;
	case '/':
		t->typing = true;
		t->typed[0] = '\0';
		break;
	case ESCAPE:
		t->filter[0] = '\0';
		t->help = false;
		break;
	case ' ':
	case 'p':
		t->paused = !t->paused;
		break;
	case '?':
	case 'h':
		t->help = !t->help;
		break;
	default:
		move_by_key(t, key);
		break;
	}
}

static void run(struct top *t)
{
	while (!t->quit) {
		uint64_t now = now_ms();
		int key;

		if (!t->paused && now >= t->look_at_ms) {
			take(t);
			now = now_ms();
		}
		draw(t);
		timeout(t->paused ? -1 : t->look_at_ms > now ? (int)(t->look_at_ms - now) : 0);
		key = getch();
		/* KEY_RESIZE is only a reason to draw. */
		if (key != ERR)
			press(t, key);
	}
}

/* The terminal's settings come back, whatever ends us: ncurses catches SIGINT and SIGTERM. */
static int on_screen(struct top *t)
{
	SCREEN *screen;

	if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO)) {
		fprintf(stderr, "flightsplice top: needs a terminal; without one there is "
				"flightsplice streams --watch\n");
		return CLI_FAILURE;
	}
	screen = newterm(NULL, stdout, stdin);
	if (!screen) {
		fprintf(stderr, "flightsplice top: cannot use this terminal (TERM=%s)\n",
			getenv("TERM") ? getenv("TERM") : "");
		return CLI_FAILURE;
	}
	cbreak();
	noecho();
	keypad(stdscr, TRUE);
	set_escdelay(50);
	curs_set(0);
	run(t);
	endwin();
	delscreen(screen);
	return CLI_OK;
}

int top_main(const struct look_source *source, const char *pin_dir)
{
	struct top t = { .source = source, .pin_dir = pin_dir, .rates = rates_new() };
	int code = CLI_FAILURE;

	if (!t.rates) {
		fprintf(stderr, "flightsplice: out of memory\n");
		return CLI_FAILURE;
	}
	take(&t);
	if (!t.s)
		fprintf(stderr, "flightsplice top: %s\n", t.why);
	else
		code = on_screen(&t);
	source->free(t.s);
	rates_free(t.rates);
	return code;
}
