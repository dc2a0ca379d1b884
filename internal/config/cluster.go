package config

import (
	"net"
	"net/netip"
	"slices"
	"strings"
)

// maxNodeName bounds names of nodes, clusters and tenants: what fits into one
// label of a host name.
const maxNodeName = 63

// name checks the name of a node, a cluster or a tenant. They stand in gossip,
// in maps, in metrics and in the names of directories, so few characters are
// allowed.
func (k *checker) name(key, v string) {
	bad := strings.IndexFunc(v, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' || r == '.')
	})
	if v == "" || len(v) > maxNodeName || bad >= 0 || strings.Trim(v, "-.") != v {
		k.fault(key, "%s is no name: want 1 to %d of a-z, 0-9, - and ., not at the ends", quote(v), maxNodeName)
	}
}

// host checks a HOST without a port.
func (k *checker) host(key, v string) {
	ip, err := netip.ParseAddr(v)
	switch {
	case v == "" || len(v) > 253 || strings.ContainsAny(v, " \t\r\n/@\x00"):
		k.fault(key, "%s has no valid host", quote(v))
	case err == nil && ip.IsUnspecified():
		k.fault(key, "%s is every address and none: name one that others reach", quote(v))
	case err != nil && strings.ContainsAny(v, ":[]"):
		k.fault(key, "%s is not HOST, as in 10.0.0.1 or kv1.example: the ports are those of listen", quote(v))
	}
}

// tlsFaults: both ends prove their identity, so only a part of the keys is of
// no use.
func (c *Config) tlsFaults(k *checker) {
	parts := []struct{ key, path string }{{"tls.cert", c.TLS.Cert}, {"tls.key", c.TLS.Key}, {"tls.ca", c.TLS.CA}}
	some, given := c.TLS != TLS{}, ""
	var empty []string
	for _, p := range parts {
		k.path(p.key, p.path, true)
		switch {
		case p.path == "":
			empty = append(empty, p.key)
		case given == "":
			given = p.key
		}
	}
	if some && len(empty) > 0 {
		k.fault(given, "is given without %s: TLS needs all of tls.cert, tls.key and tls.ca, because both ends prove themselves", strings.Join(empty, " and "))
	}
	if some && (c.Fabric == "verbs" || c.RequireRDMA) {
		k.fault("tls.cert", "TLS is of iwarp alone, and here only RDMA devices are used: they cannot encrypt")
	}
}

// clusterFaults checks what makes a server a node of a cluster.
func (c *Config) clusterFaults(k *checker) {
	g := &c.Gossip
	if c.NodeID != "" {
		k.name("node_id", c.NodeID)
	}
	for _, h := range c.Advertise {
		k.host("advertise", h)
	}
	k.distinct("advertise", c.Advertise)
	c.gossipFaults(k)
	if c.Cluster.Name != "" {
		k.name("cluster.name", c.Cluster.Name)
	}
	if g.Bind != "" {
		if c.NodeID == "" {
			k.fault("node_id", "is empty: a node of a cluster (gossip.bind) needs a name, the same after every start")
		}
		return
	}
	// A setting that has no effect would be believed to be in effect.
	for _, one := range []struct {
		key   string
		given bool
	}{
		{"node_id", c.NodeID != ""}, {"advertise", len(c.Advertise) > 0},
		{"gossip.advertise", g.Advertise != ""}, {"gossip.join", len(g.Join) > 0}, {"gossip.key_file", g.KeyFile != ""},
		{"gossip.allow", len(g.Allow) > 0}, {"cluster.name", c.Cluster.Name != ""},
		{"cluster.move_rate", c.Cluster.MoveRate != DefaultMoveRate}, {"cluster.hold_level", c.Cluster.HoldLevel},
	} {
		if one.given {
			k.fault(one.key, "means nothing without gossip.bind, which makes this server a node of a cluster")
		}
	}
}

// gossipFaults checks the section gossip, by itself and against the other
// addresses.
func (c *Config) gossipFaults(k *checker) {
	g := &c.Gossip
	if g.Bind != "" {
		k.address("gossip.bind", g.Bind, true)
		if _, port, _ := net.SplitHostPort(g.Bind); port != "0" {
			if slices.Contains(c.Listen, g.Bind) {
				k.fault("gossip.bind", "is the same address as listen")
			}
			if g.Bind == c.AdminListen {
				k.fault("gossip.bind", "is the same address as admin_listen")
			}
		}
	}
	if g.Advertise != "" {
		k.address("gossip.advertise", g.Advertise, false)
		host, _, _ := net.SplitHostPort(g.Advertise)
		if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
			k.fault("gossip.advertise", "%s is every address and none: name one that the other nodes reach", quote(g.Advertise))
		}
	}
	for _, seed := range g.Join {
		k.address("gossip.join", seed, false)
	}
	k.distinct("gossip.join", g.Join)
	if g.Bind != "" && len(g.Join) == 1 && (g.Join[0] == g.Bind || g.Join[0] == g.Advertise) {
		k.fault("gossip.join", "%s is this node itself: name other nodes of the cluster, or none if this is the first", quote(g.Join[0]))
	}
	k.path("gossip.key_file", g.KeyFile, true)
	for _, text := range g.Allow {
		p, err := netip.ParsePrefix(text)
		switch {
		case err != nil:
			k.fault("gossip.allow", "%s is not a network, as in 10.0.0.0/8 or fd00::/8; one address is 10.0.0.1/32", quote(text))
		case p != p.Masked():
			k.fault("gossip.allow", "%s has bits behind its length: is it %s?", quote(text), p.Masked())
		}
	}
	k.distinct("gossip.allow", g.Allow)
}
