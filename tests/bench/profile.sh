#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# profile.sh [PEER [LOAD [SECONDS]]]: where the CPU time of a proxy goes while a load runs
# (fs-relay 1c 5; PEER and LOAD as for tests/bench/run, further arguments of run in BENCH).
#
# Prints, with kernel symbols: the proxy's top functions, who calls the top ones, its split into
# user and kernel, its context switches, and in a second pass of the load its system calls (strace
# slows the proxy down: their number tells, their time does not). Events are software clock ticks,
# which virtual machines have too. Without perf it samples what system call each thread is in.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
peer=${1:-fs-relay} load=${2:-1c} seconds=${3:-5}

# Called by run, beside the load. PROXY_PIDS: the proxy's processes, with commas.
if [ "${1:-}" = --sample ]; then
	seconds=$2
	first=${PROXY_PIDS%%,*}
	totals() { # user ticks, system ticks, voluntary and involuntary switches of all threads
		local pid tasks=()
		for pid in ${PROXY_PIDS//,/ }; do tasks+=("/proc/$pid"/task/*); done
		awk '/^voluntary/ { v += $2 } /^nonvoluntary/ { n += $2 }
			FILENAME ~ /stat$/ { sub(/.*\) /, ""); u += $12; s += $13 }
			END { print u + 0, s + 0, v + 0, n + 0 }' \
			"${tasks[@]/%//stat}" "${tasks[@]/%//status}" 2>/dev/null || true
	}
	read -r u0 s0 v0 n0 < <(totals)
	if [ "$MODE" = strace ]; then
		attach=()
		for pid in ${PROXY_PIDS//,/ }; do attach+=(-p "$pid"); done
		timeout -s INT "$seconds" strace -c -f -U calls,errors,name "${attach[@]}" 2>"$OUT/strace.all" || true
		grep -v '^strace:' "$OUT/strace.all" >"$OUT/strace.txt"
	elif perf record -e cpu-clock -o /dev/null -- true >/dev/null 2>&1; then
		perf record -q -e cpu-clock -F 2999 -g -p "$PROXY_PIDS" -o "$OUT/perf.data" -- sleep "$seconds"
	else
		for ((i = 0; i < seconds * 50; i++)); do
			cat /proc/"$first"/task/*/syscall 2>/dev/null | cut -d' ' -f1 || true
			sleep 0.02
		done >"$OUT/samples.txt"
	fi
	read -r u1 s1 v1 n1 < <(totals)
	echo "user $((u1 - u0)) kernel $((s1 - s0)) ticks of 10 ms; switches: $((v1 - v0)) waits, $((n1 - n0)) preempted" \
		>"$OUT/totals-$MODE.txt"
	exit 0
fi

case $load in
1k*) fetches=$((seconds * 3)) ;; # times 2000: about 8,000 a second are possible
*) fetches=$((seconds * 2 + 2)) ;;
esac
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
for MODE in perf strace; do
	[ $MODE = perf ] || command -v strace >/dev/null || continue
	export MODE
	# shellcheck disable=SC2086
	"$here/run" --peers "$peer" --loads "$load" --reps 1 --scale "$fetches" --out "$out" \
		--during "bash '$here/profile.sh' --sample $seconds" ${BENCH:-} >"$out/$MODE.md" 2>"$out/$MODE.err" ||
		{ cat "$out/$MODE.err" >&2; exit 1; }
	if [ $MODE = strace ]; then
		printf '\n== system calls in %s s of a load under strace\n' "$seconds"
		cat "$out/strace.txt" "$out/totals-strace.txt"
		continue
	fi
	printf '== %s under %s\n' "$peer" "$load"
	grep "^| $peer" "$out/perf.md"
	cat "$out/totals-perf.txt"
	if [ -e "$out/perf.data" ]; then
		printf '\n== top functions\n'
		perf report -i "$out/perf.data" --stdio --no-children -g none --percent-limit 0.7 2>/dev/null |
			grep -v '^#' | grep -v '^$'
		printf '\n== with what they call\n'
		perf report -i "$out/perf.data" --stdio --children -g none --percent-limit 3 2>/dev/null |
			grep -v '^#' | grep -v '^$'
	else
		printf '\n== no perf here; system call numbers the threads were in (running: on a CPU)\n'
		sort "$out/samples.txt" | uniq -c | sort -rn
	fi
done
