// SPDX-License-Identifier: GPL-2.0-only
/*
 * The time series: one JSON object a line, appended once a second, at every mark and at exit.
 * Counters only grow; a reader takes differences. `t` is seconds since the plugin was loaded,
 * on the host's monotonic clock.
 */
#include "model.h"

#include <pthread.h>
#include <stdio.h>
#include <time.h>

struct vcpu vcpus[MAX_VCPUS];

static FILE *out;
static struct timespec start;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)(now.tv_sec - start.tv_sec) + (double)(now.tv_nsec - start.tv_nsec) * 1e-9;
}

static uint64_t sum(size_t offset)
{
	uint64_t total = 0;

	for (unsigned int i = 0; i < opt.vcpus; i++)
		total += __atomic_load_n((uint64_t *)((char *)&vcpus[i] + offset), __ATOMIC_RELAXED);
	return total;
}

static uint64_t writebacks(unsigned int node, enum writer writer)
{
	return sum(offsetof(struct vcpu, node) + node * sizeof(struct node_count) +
		   offsetof(struct node_count, writeback) + writer * sizeof(uint64_t));
}

#define NODE(n, field) sum(offsetof(struct vcpu, node) + (n) * sizeof(struct node_count) + \
			   offsetof(struct node_count, field))

/* Writes `text` as a JSON string. Control bytes become '?': marks are meant to be read. */
static void json_string(const char *text)
{
	fputc('"', out);
	for (; *text; text++) {
		if (*text == '"' || *text == '\\')
			fputc('\\', out);
		fputc((unsigned char)*text < 0x20 ? '?' : *text, out);
	}
	fputc('"', out);
}

static void write_node(unsigned int n)
{
	const uint64_t copy = writebacks(n, WRITER_COPY), clear = writebacks(n, WRITER_CLEAR);

	fprintf(out,
		"%s{\"loads\":%lu,\"stores\":%lu,\"stream\":%lu,\"tiering_loads\":%lu,"
		"\"tiering_stores\":%lu,\"kernel_loads\":%lu,\"kernel_stores\":%lu,"
		"\"kernel_read_bytes\":%lu,\"kernel_write_bytes\":%lu,\"writebacks\":%lu,"
		"\"writebacks_copy\":%lu,\"writebacks_clear\":%lu,\"delay_ns\":%.0f,\"queue_ns\":%.0f}",
		n ? "," : "", NODE(n, load), NODE(n, store), NODE(n, stream), NODE(n, tload),
		NODE(n, tstore), NODE(n, kload), NODE(n, kstore), NODE(n, kread_bytes),
		NODE(n, kwrite_bytes),
		writebacks(n, WRITER_PROGRAM) + copy + clear, copy, clear,
		(double)NODE(n, delay_ticks) / ticks_per_ns,
		(double)NODE(n, queue_ticks) / ticks_per_ns);
}

static void write_line(const char *event, const char *name)
{
	pthread_mutex_lock(&lock);
	if (!out) {
		pthread_mutex_unlock(&lock);
		return;
	}
	fprintf(out, "{\"event\":\"%s\",\"t\":%.6f,", event, seconds());
	if (name) {
		fputs("\"name\":", out);
		json_string(name);
		fputc(',', out);
	}
	fprintf(out, "\"watching\":%s,\"accesses\":%lu,\"llc_hits\":%lu,\"line_bytes\":%u,",
		watching ? "true" : "false", sum(offsetof(struct vcpu, access)),
		sum(offsetof(struct vcpu, hit)), 1u << opt.line_shift);
	if (opt.pmu[0]) {
		const struct pmu_count pmu = pmu_count();

		fprintf(out,
			"\"pmu\":{\"samples\":%lu,\"lost\":%lu,\"throttled\":%lu,\"misses\":%lu},",
			pmu.samples, pmu.lost, pmu.throttled, pmu.misses);
	}
	fputs("\"nodes\":[", out);
	for (unsigned int n = 0; n < opt.nodes; n++)
		write_node(n);
	fputs("]}\n", out);
	fflush(out);
	pthread_mutex_unlock(&lock);
}

static void *ticker(void *unused)
{
	struct timespec next;

	(void)unused;
	clock_gettime(CLOCK_MONOTONIC, &next);
	for (;;) {
		next.tv_sec++;
		while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL))
			;
		write_line("tick", NULL);
	}
	return NULL;
}

int report_open(void)
{
	pthread_t thread;

	out = fopen(opt.series, "we");
	if (!out) {
		perror(opt.series);
		return -1;
	}
	clock_gettime(CLOCK_MONOTONIC, &start);
	if (pthread_create(&thread, NULL, ticker, NULL))
		return -1;
	pthread_detach(thread);
	return 0;
}

void report_mark(const char *name)
{
	write_line("mark", name);
}

void report_close(void)
{
	write_line("end", NULL);
	pthread_mutex_lock(&lock);
	if (out)
		fclose(out);
	out = NULL;
	pthread_mutex_unlock(&lock);
}
