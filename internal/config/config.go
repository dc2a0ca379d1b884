package config

import (
	"time"
)

// Config is every setting of kvserver and kvclient. The struct is the single
// list of keys: tags name the key, who uses it, and the help text of its flag;
// Default holds the defaults; config.yaml at the root of the repository
// documents each, and a test holds the two together.
//
// Limits that are part of the format (the longest key, the largest value) are
// no settings and stand in store/layout.
type Config struct {
	// Both programs.
	Fabric       string   `mapstructure:"fabric" scope:"both" usage:"how to do RDMA: auto, verbs, iwarp or shm"`
	Device       []string `mapstructure:"device" scope:"both" usage:"RDMA devices to use; none lets the program choose and say why"`
	RequireRDMA  bool     `mapstructure:"require_rdma" scope:"both" usage:"refuse a fabric that is done in software"`
	VerbsConnect string   `mapstructure:"verbs_connect" scope:"both" usage:"how verbs connections are made: cm (librdmacm) or tcp"`
	GIDIndex     int      `mapstructure:"gid_index" scope:"both" usage:"entry of the port's GID table; -1 chooses by address"`
	TrafficClass int      `mapstructure:"traffic_class" scope:"both" usage:"traffic class (DSCP << 2) of verbs connections"`
	ServiceLevel int      `mapstructure:"service_level" scope:"both" usage:"InfiniBand service level of verbs connections"`
	PathMTU      int      `mapstructure:"path_mtu" scope:"both" usage:"bytes in a packet of a verbs connection; 0 takes the port's"`
	AckTimeout   int      `mapstructure:"ack_timeout" scope:"both" usage:"exponent of the wait for an acknowledgement: 4.096 us * 2^n"`
	RetryCount   int      `mapstructure:"retry_count" scope:"both" usage:"times that a verbs device sends again before it gives up"`
	Wait         string   `mapstructure:"wait_mode" scope:"both" usage:"how to wait for messages and completions: adaptive, poll or event"`
	Spin         Spin     `mapstructure:"spin" scope:"both" usage:"longest time to spin before sleeping; auto leaves it to the fabric"`
	Cores        CPUs     `mapstructure:"cores" scope:"both" usage:"processors that this process runs on, as 0,2-5; none: all it may use"`
	Shm          string   `mapstructure:"shm" scope:"both" usage:"shared memory with processes of this host: user (of the same user), trusted or off"`
	ShmDir       string   `mapstructure:"shm_dir" scope:"both" usage:"directory of the UNIX sockets of shared memory; empty: the usual one"`
	SecretFile   string   `mapstructure:"secret_file" scope:"both" usage:"file with the secret that clients and servers share (or its text in $RDMAKV_SECRET); empty: everybody may connect"`
	TLS          TLS      `mapstructure:"tls" scope:"both"`
	LogLevel     string   `mapstructure:"log_level" scope:"both" usage:"debug, info, warn or error"`
	LogFormat    string   `mapstructure:"log_format" scope:"both" usage:"text or json"`

	// kvserver.
	DataDir         string        `mapstructure:"data_dir" scope:"server" usage:"directory of the durable store; made when missing"`
	Listen          []string      `mapstructure:"listen" scope:"server" usage:"HOST:PORT for RDMA connections; port 0 picks a free one"`
	AdminListen     string        `mapstructure:"admin_listen" scope:"server" usage:"HOST:PORT for /metrics, /healthz and /readyz; empty: none"`
	PProf           bool          `mapstructure:"pprof" scope:"server" usage:"serve Go profiles and the debug switch on the admin port"`
	Mode            string        `mapstructure:"mode" scope:"server" usage:"durable keeps everything on disk, cache keeps what memory holds"`
	Sync            string        `mapstructure:"sync" scope:"server" usage:"when a put is durable: always, interval or off"`
	SyncInterval    time.Duration `mapstructure:"sync_interval" scope:"server" usage:"time between two syncs with --sync interval"`
	Shards          int           `mapstructure:"shards" scope:"server" usage:"shards of a new store; fixed at its birth"`
	MemoryLimit     Size          `mapstructure:"memory_limit" scope:"server" usage:"registered memory for index and items"`
	RegionSize      Size          `mapstructure:"region_size" scope:"server" usage:"size of a region of items; the unit of registration"`
	IndexRegionSize Size          `mapstructure:"index_region_size" scope:"server" usage:"size of a region of index segments"`
	WatchBytes      Size          `mapstructure:"watch_bytes" scope:"server" usage:"memory for the events that watches are answered from; 0: no watches"`
	ScrubRate       Size          `mapstructure:"scrub_rate" scope:"server" usage:"bytes of items verified in memory per second; 0: none"`
	HugePages       string        `mapstructure:"huge_pages" scope:"server" usage:"huge pages for registered memory: off, try or on"`
	NUMANode        int           `mapstructure:"numa_node" scope:"server" usage:"NUMA node that registered memory is taken from; -1: any"`
	Prefault        bool          `mapstructure:"prefault" scope:"server" usage:"take the pages of a region from the machine when it is made, not when they are first used"`
	Lease           Term          `mapstructure:"lease" scope:"server" usage:"how long a client may believe memory it has read a beat from; off is for debugging"`
	Credits         int           `mapstructure:"credits" scope:"server" usage:"requests that one session may have in flight"`
	MaxSessions     int           `mapstructure:"max_sessions" scope:"server" usage:"clients connected at a time"`

	MaxSessionsPerHost int      `mapstructure:"max_sessions_per_host" scope:"server" usage:"of those, from one address; 0: as many"`
	TenantsFile        string   `mapstructure:"tenants_file" scope:"server" usage:"file that lists the tenants, their secrets and rights; empty: none"`
	RkeyMaxAge         Term     `mapstructure:"rkey_max_age" scope:"server" usage:"age at which a region gets another rkey"`
	RegionIdle         Term     `mapstructure:"region_idle" scope:"server" usage:"time after which a region without an item is given back"`
	NodeID             string   `mapstructure:"node_id" scope:"server" usage:"this node's name in its cluster, for ever; empty: a server alone"`
	Advertise          []string `mapstructure:"advertise" scope:"server" usage:"HOST that clients of the cluster are told; none: those of listen"`
	Insecure           bool     `mapstructure:"insecure" scope:"server" usage:"allow a cluster without a gossip key, a secret or a name of its own"`
	Gossip             Gossip   `mapstructure:"gossip" scope:"server"`
	Cluster            Cluster  `mapstructure:"cluster" scope:"server"`

	// kvclient.
	Servers      []string      `mapstructure:"servers" scope:"client" flag:"server" usage:"HOST:PORT of the server"`
	Timeout      time.Duration `mapstructure:"timeout" scope:"client" usage:"limit for one operation, connecting included"`
	CacheEntries int           `mapstructure:"cache_entries" scope:"client" usage:"places of items to remember; a remembered one is read in one READ"`
	MaxInflight  int           `mapstructure:"max_inflight" scope:"client" usage:"requests by SEND in flight at a time; more wait"`
	Tenant       string        `mapstructure:"tenant" scope:"client" usage:"name of the tenant whose secret this is; empty: the server's own secret"`
}

// TLS is the section tls: what iwarp encrypts its connections with, at both
// ends.
type TLS struct {
	Cert string `mapstructure:"cert" usage:"file with this end's certificate, PEM: iwarp goes over TLS, and both ends prove themselves"`
	Key  string `mapstructure:"key" usage:"file with its private key, PEM"`
	CA   string `mapstructure:"ca" usage:"file with the certificates that the other end's must be signed by, PEM"`
}

// Gossip is the section gossip: how the nodes of a cluster find each other.
type Gossip struct {
	Bind      string   `mapstructure:"bind" usage:"HOST:PORT for gossip, TCP and UDP; empty: this server is alone"`
	Advertise string   `mapstructure:"advertise" usage:"HOST:PORT that other nodes are told for gossip; empty: that of gossip.bind"`
	Join      []string `mapstructure:"join" flag:"join" usage:"gossip HOST:PORT of nodes of the cluster; they need not be up"`
	KeyFile   string   `mapstructure:"key_file" usage:"file with the gossip keys, base64, one a line, the first in use (or in $RDMAKV_GOSSIP_KEY)"`
	Profile   string   `mapstructure:"profile" usage:"how soon a silent node is given up: lan, fast or wan"`
	Allow     []string `mapstructure:"allow" usage:"networks whose nodes may gossip, as 10.0.0.0/8; none: all"`
}

// Cluster is the section cluster.
type Cluster struct {
	Name string `mapstructure:"name" usage:"name of the cluster; nodes of another one are not heard"`
}

// DefaultCluster is the name of a cluster that needs none of its own.
const DefaultCluster = "rdmakv"

// Clustered says whether this server is a node of a cluster.
func (c *Config) Clustered() bool { return c.Gossip.Bind != "" }

// ClusterName is the name in force: without security nobody has to think of
// one.
func (c *Config) ClusterName() string {
	if c.Cluster.Name == "" {
		return DefaultCluster
	}
	return c.Cluster.Name
}

// Default returns the settings in force where nothing else is said.
func Default() Config {
	return Config{
		Fabric:       "auto",
		Device:       []string{},
		VerbsConnect: "cm",
		GIDIndex:     -1,
		AckTimeout:   14,
		RetryCount:   6,
		Wait:         "adaptive",
		Spin:         SpinAuto,
		Cores:        CPUs{},
		Shm:          "user",
		LogLevel:     "info",
		LogFormat:    "text",

		DataDir:         "rdmakv-data",
		Listen:          []string{"127.0.0.1:7400"},
		AdminListen:     "127.0.0.1:7401",
		Mode:            "durable",
		Sync:            "always",
		SyncInterval:    100 * time.Millisecond,
		Shards:          32,
		MemoryLimit:     1 << 30,
		RegionSize:      128 << 20,
		IndexRegionSize: 16 << 20,
		WatchBytes:      16 << 20,
		ScrubRate:       8 << 20,
		HugePages:       "off",
		NUMANode:        -1,
		Lease:           Term(2 * time.Second),
		Credits:         64,
		MaxSessions:     4096,
		RegionIdle:      Term(10 * time.Minute),
		Advertise:       []string{},
		Gossip:          Gossip{Join: []string{}, Profile: "lan", Allow: []string{}},

		Servers:      []string{"127.0.0.1:7400"},
		Timeout:      10 * time.Second,
		CacheEntries: 2_000_000,
		MaxInflight:  64,
	}
}
