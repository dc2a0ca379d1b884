package config

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
)

// granule and hugeGranule are what sizes of regions are multiples of: by the format of
// store/layout, and where memory is taken from huge pages.
const (
	granule     = Size(1) << 20
	hugeGranule = Size(2) << 20
	minRegion   = Size(2) << 20
)

// Validate checks the settings against their limits and each other and
// reports every fault at once, as Faults.
func (c *Config) Validate() error { return c.faults().orNil() }

// checker collects faults.
type checker struct{ faults Faults }

func (k *checker) fault(key, format string, args ...any) {
	k.faults = append(k.faults, Fault{Key: key, Reason: fmt.Sprintf(format, args...)})
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

// hugeMultiple refuses the size of a region that leaves a rest of a huge page behind
// it, which would be lost. A size that is no multiple of a granule has a fault already.
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

// faults checks each key by the rule of its tags, in the order of the struct, and then
// what depends on other keys: a value that is wrong by itself is named before what
// follows from it.
func (c *Config) faults() Faults {
	k := &checker{}
	for _, key := range Keys() {
		if reason := key.rule.check(key.raw(c)); reason != "" {
			k.fault(key.Name, "%s", reason)
		}
	}
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
	c.serverFaults(k)
	c.clientFaults(k)
	return k.faults
}

// verbsFaults checks what the fabric verbs makes its connections of; the words
// are those of ibv_modify_qp(3) and rdma_connect(3).
func (c *Config) verbsFaults(k *checker) {
	if mtus := []int{0, 256, 512, 1024, 2048, 4096}; !slices.Contains(mtus, c.Expert.PathMTU) {
		k.fault("expert.path_mtu", "%d is not one of 0 (the port's), 256, 512, 1024, 2048, 4096", c.Expert.PathMTU)
	}
}

// serverFaults checks the keys of kvserver.
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
	// Where a size follows from memory_limit there is room for it.
	if need := max(c.Expert.RegionSize, minRegion) + max(c.Expert.IndexRegionSize, minRegion); need > c.MemoryLimit {
		k.fault("memory_limit", "%s holds not even one region of each kind: they need %s (expert.region_size, expert.index_region_size)", c.MemoryLimit, need)
	}
	if c.HugePages == "try" || c.HugePages == "on" {
		k.hugeMultiple("expert.region_size", c.Expert.RegionSize)
		k.hugeMultiple("expert.index_region_size", c.Expert.IndexRegionSize)
	}
	if c.MemoryKeep != 0 {
		switch {
		case c.Mode != "cache":
			k.fault("memory_keep", "is for mode: cache; a durable node fills its memory from its disk")
		case c.Clustered():
			k.fault("memory_keep", "is for a server alone: another node of the cluster may take newer values of the same keys meanwhile")
		case c.HugePages == "try" || c.HugePages == "on":
			k.fault("memory_keep", "cannot be had with huge_pages: %s, want auto or off", c.HugePages)
		case c.Lease == 0:
			k.fault("memory_keep", "cannot be had with lease: off")
		}
	}
	if n := c.Expert.MaxSessionsPerHost; n != 0 && (n < 0 || n > c.MaxSessions) {
		k.fault("expert.max_sessions_per_host", "%d is out of range: 1 to %d", n, c.MaxSessions)
	}
	k.path("tenants_file", c.TenantsFile, true)
	c.clusterFaults(k)
}

// clientFaults checks the keys of kvclient.
func (c *Config) clientFaults(k *checker) {
	if len(c.Servers) == 0 {
		k.fault("servers", "is empty, want at least one HOST:PORT")
	}
	for _, s := range c.Servers {
		k.address("servers", s, false)
	}
	if c.Tenant != "" {
		k.name("tenant", c.Tenant)
	}
}
