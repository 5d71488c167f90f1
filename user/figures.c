/* SPDX-License-Identifier: Apache-2.0 */
#include "figures.h"

#include <ctype.h>
#include <time.h>

#include "obs/exposition.h"

void figures_datapath(FILE *out, const char *datapath, const char *why)
{
	static const char name[] = "flightsplice_datapath_info";
	const struct expo_label labels[] = { { "datapath", datapath }, { "reason", why } };

	expo_family(out, name, EXPO_GAUGE,
		    "Where large results are promoted to, and why not elsewhere; always 1.");
	expo_labelled_u64(out, name, labels, ARRAY_SIZE(labels), 1);
}

void figures_selftest(FILE *out, const struct selftest *t)
{
	static const char name[] = "flightsplice_selftest_result";

	expo_family(out, name, EXPO_GAUGE,
		    "Checks of the self-test at the start, by what they said; always 1.");
	for (size_t i = 0; i < t->n; i++) {
		char status[16] = "";
		const struct expo_label labels[] = { { "check", t->checks[i].name },
						     { "result", status } };

		snprintf(status, sizeof(status), "%s", selftest_status_name(t->checks[i].status));
		for (char *c = status; *c; c++)
			*c = (char)tolower((unsigned char)*c);
		expo_labelled_u64(out, name, labels, ARRAY_SIZE(labels), 1);
	}
}

static const char *refusal_label(unsigned i)
{
	return splice_refusal_name((enum splice_refusal)i);
}

static const char *reason_label(unsigned i)
{
	return abi_reason_name((enum abi_reason)i);
}

static void put_by(FILE *out, const char *name, const char *help, const uint64_t *values,
		   unsigned first, unsigned n, const char *(*label_value)(unsigned i))
{
	char word[EXPO_WORD];

	expo_family(out, name, EXPO_COUNTER, help);
	for (unsigned i = first; i < n; i++) {
		const struct expo_label label = { "reason", expo_word(word, label_value(i)) };

		expo_labelled_u64(out, name, &label, 1, values[i]);
	}
}

void figures_sockmap(FILE *out, const struct sockmap_stats *s)
{
	const struct {
		const char *name, *help;
		uint64_t value;
	} counters[] = {
		{ "flightsplice_splice_enrolled_total",
		  "Pairs of client and executor put into the kernel.", s->enrolled },
		{ "flightsplice_splice_dead_total",
		  "Pairs that the kernel gave up: each ends its client's connection.", s->dead },
		{ "flightsplice_splice_redirected_bytes_total",
		  "Bytes on the wire that the kernel forwarded, frame headers included.",
		  s->redirected },
		{ "flightsplice_splice_tapped_bytes_total",
		  "Bytes on the wire that the kernel passed to the process.", s->passed },
		{ "flightsplice_splice_injected_bytes_total",
		  "Bytes on the wire that the process sent into the kernel's stream.",
		  s->injected },
		{ "flightsplice_splice_inject_lost_total",
		  "Own frames that found no socket of the client.", s->inject_lost },
		{ "flightsplice_splice_excursions_total", "Times that the fast path was left.",
		  s->excursions },
		{ "flightsplice_splice_holds_total", "Times that the process held the fast path.",
		  s->holds },
		{ "flightsplice_ring_events_total", "Events of the kernel that were read.",
		  s->events },
		{ "flightsplice_ring_events_lost_total", "Events that found the ring buffer full.",
		  s->lost_events },
		{ "flightsplice_ring_events_stale_total",
		  "Events about a pair that was gone already (harmless).", s->stale_events },
		{ "flightsplice_ring_resyncs_total",
		  "Times that all pairs were looked at because events had been lost.", s->resyncs },
	};

	expo_single(out, "flightsplice_splice_pairs", EXPO_GAUGE, "Pairs in the kernel.",
		    (double)s->pairs);
	for (unsigned i = 0; i < ARRAY_SIZE(counters); i++) {
		expo_family(out, counters[i].name, EXPO_COUNTER, counters[i].help);
		expo_labelled_u64(out, counters[i].name, NULL, 0, counters[i].value);
	}
	put_by(out, "flightsplice_splice_refused_total",
	       "Pairs that could not be put into the kernel, by why.", s->refused, SPLICE_OK + 1,
	       SPLICE_REFUSALS, refusal_label);
	put_by(out, "flightsplice_splice_verdicts_total",
	       "Socket buffers of executors, by what the kernel's program did with them and why.",
	       s->reasons, 0, ABI_REASONS, reason_label);
}

static uint64_t monotonic_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * NSEC_PER_SEC + (uint64_t)t.tv_nsec;
}

static void put_worker(FILE *out, const char *name, struct worker *w, uint64_t ns)
{
	char index[12];
	const struct expo_label label = { "worker", index };

	snprintf(index, sizeof(index), "%u", worker_index(w));
	expo_labelled(out, name, &label, 1, (double)ns / (double)NSEC_PER_SEC);
}

/* How long the turn that the worker is in takes already; 0 when it sleeps. */
static uint64_t lag(const struct worker *w, uint64_t now)
{
	uint64_t began = __atomic_load_n(&worker_loop_stats(w)->turn_began_ns, __ATOMIC_RELAXED);

	return began && now > began ? now - began : 0;
}

void figures_workers(FILE *out, struct worker *const *workers, unsigned n)
{
	static const char lag_name[] = "flightsplice_worker_lag_seconds",
			  busy_name[] = "flightsplice_worker_busy_seconds_total",
			  turn_name[] = "flightsplice_worker_turn_seconds";
	uint64_t now = monotonic_now();
	struct histogram turns = { .sum_ns = 0 };

	expo_family(out, lag_name, EXPO_GAUGE,
		    "How long a worker has been at its current turn: what is ready waits so long.");
	for (unsigned i = 0; i < n; i++)
		put_worker(out, lag_name, workers[i], lag(workers[i], now));
	expo_family(out, busy_name, EXPO_COUNTER,
		    "Time that a worker was not asleep; its rate is the share of a CPU.");
	for (unsigned i = 0; i < n; i++)
		put_worker(out, busy_name, workers[i],
			   __atomic_load_n(&worker_loop_stats(workers[i])->turns.sum_ns,
					   __ATOMIC_RELAXED));
	for (unsigned i = 0; i < n; i++)
		histogram_sum(&turns, &worker_loop_stats(workers[i])->turns);
	expo_family(out, turn_name, EXPO_HISTOGRAM,
		    "Turns of the workers' loops, from waking to going to sleep again.");
	expo_histogram(out, turn_name, &turns);
}
