package config

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Limits of numbers, as [least, most]. Those of memory follow from the format
// in store/layout: regions come in units of 1 MiB, a shard number has 12 bits.
const (
	granule     = Size(1) << 20
	hugeGranule = Size(2) << 20
	minRegion   = Size(2) << 20
	maxRegion   = Size(1) << 36 // 64 GiB
	minWatch    = Size(1) << 20
	maxWatch    = Size(1) << 30 // the store's bound
	maxScrub    = Size(1) << 36 // more than any memory delivers
	maxMemory   = Size(1) << 42 // 4 TiB: half of the place space, because places are not used twice
)

// Validate checks the settings against their limits and each other and
// reports every fault at once, as Faults.
func (c *Config) Validate() error { return c.faults().orNil() }

// checker collects faults.
type checker struct{ faults Faults }

func (k *checker) fault(key, format string, args ...any) {
	k.faults = append(k.faults, Fault{Key: key, Reason: fmt.Sprintf(format, args...)})
}

func (k *checker) oneOf(key, v string) {
	allowed := Choices(key)
	if !slices.Contains(allowed, v) {
		hint := ""
		if n := Nearest(v, allowed); n != "" {
			hint = fmt.Sprintf("; did you mean %q?", n)
		}
		k.fault(key, "%s is not one of %s%s", quote(v), strings.Join(allowed, ", "), hint)
	}
}

// distinct refuses a list that names something twice.
func (k *checker) distinct(key string, list []string) {
	for i, v := range list {
		if slices.Contains(list[:i], v) {
			k.fault(key, "%s stands in it twice", quote(v))
			return
		}
	}
}

func (k *checker) number(key string, v, least, most int) {
	if v < least || v > most {
		k.fault(key, "%d is out of range: %d to %d", v, least, most)
	}
}

func (k *checker) duration(key string, v, least, most time.Duration) {
	if v < least || v > most {
		k.fault(key, "%v is out of range: %v to %v", v, least, most)
	}
}

func (k *checker) size(key string, v, least, most Size) {
	switch {
	case v < least || v > most:
		k.fault(key, "%s is out of range: %s to %s", v, least, most)
	case v%granule != 0:
		k.fault(key, "%s is not a multiple of %s", v, granule)
	}
}

// hugeMultiple is size for memory in huge pages.
func (k *checker) hugeMultiple(key string, v Size) {
	if v%granule == 0 && v%hugeGranule != 0 {
		k.fault(key, "%s is not a multiple of %s, the huge page that huge_pages asks for", v, hugeGranule)
	}
}

// address checks HOST:PORT. The host may be a name: whether it resolves is
// found out when it is used.
func (k *checker) address(key, v string, zeroPort bool) {
	host, port, err := net.SplitHostPort(v)
	if err != nil {
		k.fault(key, "%s is not HOST:PORT, as in 127.0.0.1:7400 or [::1]:7400", quote(v))
		return
	}
	n, err := parseDigits(port)
	if err != nil || n > 65535 || n == 0 && !zeroPort {
		least := 1
		if zeroPort {
			least = 0
		}
		k.fault(key, "%s has the port %s, want a number from %d to 65535", quote(v), quote(port), least)
	}
	if strings.ContainsAny(host, " \t\r\n/@\x00") || len(host) > 253 {
		k.fault(key, "%s has no valid host", quote(v))
	}
}

func (k *checker) path(key, v string, mayBeEmpty bool) {
	switch {
	case v == "" && !mayBeEmpty:
		k.fault(key, "is empty, want a path")
	case strings.ContainsRune(v, 0):
		k.fault(key, "%s has a NUL byte in it", quote(v))
	case len(v) > 4096:
		k.fault(key, "has %s characters, at most 4096 are allowed", strconv.Itoa(len(v)))
	}
}

// faults checks everything, in the order of the struct.
func (c *Config) faults() Faults {
	k := &checker{}
	k.oneOf("fabric", c.Fabric)
	k.distinct("device", c.Device)
	for _, name := range c.Device {
		switch {
		case name == "":
			k.fault("device", "has an empty name in it; [] lets the program choose")
		case len(name) > 256:
			k.fault("device", "has %d characters, at most 256 are allowed", len(name))
		}
	}
	if c.RequireRDMA && (c.Fabric == "iwarp" || c.Fabric == "shm") {
		k.fault("require_rdma", "forbids software fabrics, and fabric: %s is one", c.Fabric)
	}
	c.verbsFaults(k)
	c.waitingFaults(k)
	k.path("secret_file", c.SecretFile, true)
	c.tlsFaults(k)
	k.oneOf("log_level", c.LogLevel)
	k.oneOf("log_format", c.LogFormat)
	c.serverFaults(k)
	c.clientFaults(k)
	return k.faults
}

// verbsFaults checks what the fabric verbs makes its connections of; the words
// are those of ibv_modify_qp(3) and rdma_connect(3).
func (c *Config) verbsFaults(k *checker) {
	k.oneOf("verbs_connect", c.VerbsConnect)
	if c.GIDIndex != -1 {
		k.number("gid_index", c.GIDIndex, 1, 255)
	}
	k.number("traffic_class", c.TrafficClass, 0, 255)
	k.number("service_level", c.ServiceLevel, 0, 15)
	if mtus := []int{0, 256, 512, 1024, 2048, 4096}; !slices.Contains(mtus, c.PathMTU) {
		k.fault("path_mtu", "%d is not one of 0 (the port's), 256, 512, 1024, 2048, 4096", c.PathMTU)
	}
	// 0 would be for ever, and 22 is 17 s for one packet.
	k.number("ack_timeout", c.AckTimeout, 1, 22)
	// 0 gives up a connection for one packet; 7 is for ever on some devices.
	k.number("retry_count", c.RetryCount, 1, 6)
}

func (c *Config) serverFaults(k *checker) {
	k.path("data_dir", c.DataDir, false)
	if len(c.Listen) == 0 {
		k.fault("listen", "is empty, want at least one HOST:PORT")
	}
	k.distinct("listen", c.Listen)
	for _, addr := range c.Listen {
		k.address("listen", addr, true)
	}
	if c.AdminListen != "" {
		k.address("admin_listen", c.AdminListen, true)
		if _, port, _ := net.SplitHostPort(c.AdminListen); slices.Contains(c.Listen, c.AdminListen) && port != "0" {
			k.fault("admin_listen", "is the same address as listen")
		}
	}
	if c.PProf && c.AdminListen == "" {
		k.fault("pprof", "needs admin_listen, which is empty")
	}
	k.oneOf("mode", c.Mode)
	k.oneOf("sync", c.Sync)
	k.duration("sync_interval", c.SyncInterval, time.Millisecond, time.Minute)
	k.number("shards", c.Shards, 1, 4096)
	k.size("memory_limit", c.MemoryLimit, 8<<20, maxMemory)
	k.size("region_size", c.RegionSize, minRegion, maxRegion)
	k.size("index_region_size", c.IndexRegionSize, minRegion, maxRegion)
	if need := c.RegionSize + c.IndexRegionSize; need > c.MemoryLimit {
		k.fault("memory_limit", "%s holds not even one region of each kind: region_size %s and index_region_size %s need %s",
			c.MemoryLimit, c.RegionSize, c.IndexRegionSize, need)
	}
	if c.WatchBytes != 0 {
		k.size("watch_bytes", c.WatchBytes, minWatch, maxWatch)
	}
	if c.ScrubRate != 0 {
		k.size("scrub_rate", c.ScrubRate, granule, maxScrub)
	}
	k.oneOf("huge_pages", c.HugePages)
	if c.HugePages != "off" {
		// What is left of a huge page behind a region would be lost.
		k.hugeMultiple("region_size", c.RegionSize)
		k.hugeMultiple("index_region_size", c.IndexRegionSize)
	}
	if c.NUMANode != -1 {
		k.number("numa_node", c.NUMANode, 0, maxNode)
	}
	if c.Lease != 0 {
		k.duration("lease", time.Duration(c.Lease), time.Second, time.Minute)
	}
	k.number("credits", c.Credits, 2, 1024)
	k.number("max_sessions", c.MaxSessions, 1, 65536)
	if c.MaxSessionsPerHost != 0 {
		k.number("max_sessions_per_host", c.MaxSessionsPerHost, 1, c.MaxSessions)
	}
	k.path("tenants_file", c.TenantsFile, true)
	if c.RkeyMaxAge != 0 {
		k.duration("rkey_max_age", time.Duration(c.RkeyMaxAge), 5*time.Second, 10000*time.Hour)
	}
	if c.RegionIdle != 0 {
		k.duration("region_idle", time.Duration(c.RegionIdle), time.Second, 10000*time.Hour)
	}
	c.clusterFaults(k)
}

func (c *Config) clientFaults(k *checker) {
	if len(c.Servers) == 0 {
		k.fault("servers", "is empty, want at least one HOST:PORT")
	}
	for _, s := range c.Servers {
		k.address("servers", s, false)
	}
	k.duration("timeout", c.Timeout, time.Millisecond, time.Hour)
	k.number("cache_entries", c.CacheEntries, 0, 1<<26)
	k.number("max_inflight", c.MaxInflight, 1, 1024)
	if c.Tenant != "" {
		k.name("tenant", c.Tenant)
	}
}
