// SPDX-License-Identifier: GPL-2.0-only
/*
 * Options, as the runner (lab/src/plugin.rs) writes them:
 *
 *   series=FILE llc=BYTES ways=N line=BYTES dilation=X below4g=BYTES
 *   node=ID:END                     where a node ends, counted in guest memory
 *   vcpu=ID:SOCKET
 *   path=SOCKET:NODE:r:w:rl:wl:rs:ws   ns: latency, transfer of a line, next line of a stream
 *   pmu=PERIOD:RATE:CHARGE:ROOM:FILE   the emulated PMU, see pmu.h; may be left out
 *
 * Anything else, or a missing one, is an error: the runner and the plugin are built together.
 */
#include "model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct options opt;

static int parse_node(const char *value)
{
	unsigned int id;
	unsigned long long end;

	if (sscanf(value, "%u:%llu", &id, &end) != 2 || id >= MAX_NODES)
		return -1;
	opt.end[id] = end;
	if (id + 1 > opt.nodes)
		opt.nodes = id + 1;
	return 0;
}

static int parse_vcpu(const char *value)
{
	unsigned int id, socket;

	if (sscanf(value, "%u:%u", &id, &socket) != 2 || id >= MAX_VCPUS || socket >= MAX_SOCKETS)
		return -1;
	opt.vcpu_socket[id] = socket;
	if (id + 1 > opt.vcpus)
		opt.vcpus = id + 1;
	if (socket + 1 > opt.sockets)
		opt.sockets = socket + 1;
	return 0;
}

static int parse_path(const char *value)
{
	unsigned int s, n;
	double v[6];

	if (sscanf(value, "%u:%u:%lf:%lf:%lf:%lf:%lf:%lf", &s, &n, &v[0], &v[1], &v[2], &v[3],
		   &v[4], &v[5]) != 8 || s >= MAX_SOCKETS || n >= MAX_NODES)
		return -1;
	memcpy(opt.ns[s][n], v, sizeof(v));
	return 0;
}

static int parse_pmu(const char *value)
{
	int used = 0;

	if (sscanf(value, "%lu:%lu:%lu:%lu:%n", &opt.pmu_period, &opt.pmu_rate,
		   &opt.pmu_charge_ns, &opt.pmu_room, &used) != 4 || !used || !value[used])
		return -1;
	return snprintf(opt.pmu, sizeof(opt.pmu), "%s", value + used) < (int)sizeof(opt.pmu) ? 0
											     : -1;
}

static int parse_one(const char *arg)
{
	const char *value = strchr(arg, '=');
	size_t key;

	if (!value)
		return -1;
	key = (size_t)(value++ - arg);
#define IS(name) (key == sizeof(name) - 1 && !memcmp(arg, name, key))
	if (IS("series"))
		return snprintf(opt.series, sizeof(opt.series), "%s", value) <
				       (int)sizeof(opt.series) ? 0 : -1;
	if (IS("llc"))
		return (opt.llc_bytes = strtoull(value, NULL, 10)) ? 0 : -1;
	if (IS("ways"))
		return (opt.ways = (unsigned int)strtoul(value, NULL, 10)) ? 0 : -1;
	if (IS("line")) {
		opt.line_shift = (unsigned int)__builtin_ctzl(strtoul(value, NULL, 10) | 1ul << 63);
		return opt.line_shift >= 4 && opt.line_shift <= 12 ? 0 : -1;
	}
	if (IS("dilation"))
		return (opt.dilation = strtod(value, NULL)) > 0 ? 0 : -1;
	if (IS("below4g")) {
		opt.below_4g = strtoull(value, NULL, 10);
		return 0;
	}
	if (IS("node"))
		return parse_node(value);
	if (IS("vcpu"))
		return parse_vcpu(value);
	if (IS("path"))
		return parse_path(value);
	if (IS("pmu"))
		return parse_pmu(value);
#undef IS
	return -1;
}

int options_parse(int argc, char **argv)
{
	for (int i = 0; i < argc; i++) {
		if (parse_one(argv[i])) {
			fprintf(stderr, "terrace-lab plugin: bad option '%s'\n", argv[i]);
			return -1;
		}
	}
	if (!opt.series[0] || !opt.llc_bytes || !opt.ways || !opt.line_shift || opt.dilation <= 0 ||
	    !opt.nodes || !opt.vcpus) {
		fprintf(stderr, "terrace-lab plugin: an option is missing\n");
		return -1;
	}
	for (unsigned int i = 0; i < opt.vcpus; i++)
		vcpus[i].socket = opt.vcpu_socket[i];
	return 0;
}
