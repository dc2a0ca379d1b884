package config

import (
	"reflect"
	"time"
)

// Config is every setting of kvserver and kvclient. The struct is the single
// list of keys: tags name the key, the programs that use it, its default, the values
// that it takes (see rule), and the help text of its flag; config.yaml at the root
// of the repository documents each, and a test holds the two together.
//
// Limits that are part of the format (the longest key, the largest value) are
// no settings and stand in store/layout.
type Config struct {
	// Both programs.
	Fabric       string   `mapstructure:"fabric" scope:"both" default:"auto" oneof:"auto,verbs,iwarp,shm" usage:"how to do RDMA: auto, verbs, iwarp or shm"`
	Device       []string `mapstructure:"device" scope:"both" usage:"RDMA devices to use; none lets the program choose and say why"`
	RequireRDMA  bool     `mapstructure:"require_rdma" scope:"both" usage:"refuse a fabric that is done in software"`
	VerbsConnect string   `mapstructure:"verbs_connect" scope:"both" default:"cm" oneof:"cm,tcp" usage:"how verbs connections are made: cm (librdmacm) or tcp"`
	GIDIndex     int      `mapstructure:"gid_index" scope:"both" default:"-1" range:"1..255" or:"-1" usage:"entry of the port's GID table; -1 chooses by address"`
	TrafficClass int      `mapstructure:"traffic_class" scope:"both" default:"0" range:"0..255" usage:"traffic class (DSCP << 2) of verbs connections"`
	Wait         string   `mapstructure:"wait_mode" scope:"both" default:"adaptive" oneof:"adaptive,poll,event" usage:"how to wait for messages and completions: adaptive, poll or event"`
	Shm          string   `mapstructure:"shm" scope:"both" default:"user" oneof:"user,trusted,off" usage:"shared memory with processes of this host: user (of the same user), trusted or off"`
	ShmDir       string   `mapstructure:"shm_dir" scope:"both" usage:"directory of the UNIX sockets of shared memory; empty: the usual one"`
	SecretFile   string   `mapstructure:"secret_file" scope:"both" usage:"file with the secret that clients and servers share (or its text in $RDMAKV_SECRET); empty: everybody may connect"`
	TLS          TLS      `mapstructure:"tls" scope:"both"`
	LogLevel     string   `mapstructure:"log_level" scope:"both" default:"info" oneof:"debug,info,warn,error" usage:"debug, info, warn or error"`
	LogFormat    string   `mapstructure:"log_format" scope:"both" default:"text" oneof:"text,json" usage:"text or json"`

	// kvserver.
	DataDir      string        `mapstructure:"data_dir" scope:"server" default:"rdmakv-data" usage:"directory of the durable store; made when missing"`
	Listen       []string      `mapstructure:"listen" scope:"server" default:"127.0.0.1:7400" usage:"HOST:PORT for RDMA connections; port 0 picks a free one"`
	AdminListen  string        `mapstructure:"admin_listen" scope:"server" default:"127.0.0.1:7401" usage:"HOST:PORT for /metrics, /healthz and /readyz; empty: none"`
	PProf        bool          `mapstructure:"pprof" scope:"server" usage:"serve Go profiles and the debug switch on the admin port"`
	Mode         string        `mapstructure:"mode" scope:"server" default:"durable" oneof:"durable,cache" usage:"durable keeps everything on disk, cache keeps what memory holds"`
	Sync         string        `mapstructure:"sync" scope:"server" default:"always" oneof:"always,interval,off" usage:"when a put is durable: always, interval or off"`
	SyncInterval time.Duration `mapstructure:"sync_interval" scope:"server" default:"100ms" range:"1ms..1m" usage:"time between two syncs with --sync interval"`
	Shards       int           `mapstructure:"shards" scope:"server" default:"32" range:"1..4096" usage:"shards of a new store; fixed at its birth"`
	// 4 TiB is half of what places can name: no place is used twice.
	MemoryLimit Size `mapstructure:"memory_limit" scope:"server" default:"1GiB" range:"8MiB..4TiB" multiple:"1MiB" usage:"registered memory for index and items"`
	// The bounds are the store's.
	WatchBytes  Size   `mapstructure:"watch_bytes" scope:"server" default:"16MiB" range:"1MiB..1GiB" or:"0" multiple:"1MiB" usage:"memory for the events that watches are answered from; 0: no watches"`
	LogBytes    Size   `mapstructure:"log_bytes" scope:"server" default:"256MiB" range:"8MiB..64GiB" multiple:"1MiB" usage:"bound of the log, which a start after a crash reads"`
	HugePages   string `mapstructure:"huge_pages" scope:"server" default:"auto" oneof:"auto,off,try,on" usage:"huge pages for registered memory: auto, off, try or on"`
	Lease       Term   `mapstructure:"lease" scope:"server" default:"2s" range:"1s..1m" or:"off" usage:"how long a client may believe memory it has read a beat from; off is for debugging"`
	MaxSessions int    `mapstructure:"max_sessions" scope:"server" default:"4096" range:"1..65536" usage:"clients connected at a time"`

	TenantsFile string   `mapstructure:"tenants_file" scope:"server" usage:"file that lists the tenants, their secrets and rights; empty: none"`
	RkeyMaxAge  Term     `mapstructure:"rkey_max_age" scope:"server" default:"off" range:"5s..10000h" or:"off" usage:"age at which a region gets another rkey"`
	MemoryKeep  Term     `mapstructure:"memory_keep" scope:"server" default:"off" range:"1s..24h" or:"off" usage:"with --mode cache: how long the memory waits for the next start of this node"`
	NodeID      string   `mapstructure:"node_id" scope:"server" usage:"this node's name in its cluster, for ever; empty: a server alone"`
	Advertise   []string `mapstructure:"advertise" scope:"server" usage:"HOST that clients of the cluster are told; none: those of listen"`
	Insecure    bool     `mapstructure:"insecure" scope:"server" usage:"allow a cluster without a gossip key, a secret or a name of its own"`
	Gossip      Gossip   `mapstructure:"gossip" scope:"server"`
	Cluster     Cluster  `mapstructure:"cluster" scope:"server"`

	// kvclient.
	Servers      []string      `mapstructure:"servers" scope:"client" flag:"server" default:"127.0.0.1:7400" usage:"HOST:PORT of the server"`
	Timeout      time.Duration `mapstructure:"timeout" scope:"client" default:"10s" range:"1ms..1h" usage:"limit for one operation, connecting included"`
	CacheEntries int           `mapstructure:"cache_entries" scope:"client" default:"2000000" range:"0..67108864" usage:"places of items to remember; a remembered one is read in one READ"`
	Tenant       string        `mapstructure:"tenant" scope:"client" usage:"name of the tenant whose secret this is; empty: the server's own secret"`

	Expert Expert `mapstructure:"expert"`
}

// Expert is the section expert: settings whose value follows from the other settings or
// from the machine, for tests and for a machine where that goes wrong. Help texts leave
// them out.
type Expert struct {
	// A longer one is a sleep that burns a core.
	Spin         Spin `mapstructure:"spin" scope:"both" default:"auto" range:"0s..1ms" or:"auto" usage:"longest time to spin before sleeping; auto leaves it to the fabric"`
	Cores        CPUs `mapstructure:"cores" scope:"both" usage:"processors that this process runs on, as 0,2-5; none: all it may use"`
	ServiceLevel int  `mapstructure:"service_level" scope:"both" default:"0" range:"0..15" usage:"service level of verbs connections: InfiniBand's SL, the VLAN priority of RoCE"`
	PathMTU      int  `mapstructure:"path_mtu" scope:"both" default:"0" usage:"bytes in a packet of a verbs connection; 0 takes the port's"`

	Prefault           string `mapstructure:"prefault" scope:"server" default:"auto" oneof:"auto,on,off" usage:"take the pages of a region from the machine when it is made: auto (with huge_pages try or on), on or off"`
	RegionSize         Size   `mapstructure:"region_size" scope:"server" default:"0" range:"2MiB..64GiB" or:"0" multiple:"1MiB" usage:"size of a region of items, the unit of registration; 0: by memory_limit"`
	IndexRegionSize    Size   `mapstructure:"index_region_size" scope:"server" default:"0" range:"2MiB..64GiB" or:"0" multiple:"1MiB" usage:"size of a region of index segments; 0: by memory_limit"`
	MaxSessionsPerHost int    `mapstructure:"max_sessions_per_host" scope:"server" default:"0" usage:"clients connected from one address; 0: max_sessions"`
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
	Profile   string   `mapstructure:"profile" default:"lan" oneof:"lan,fast,wan" usage:"how soon a silent node is given up: lan, fast or wan"`
	Allow     []string `mapstructure:"allow" usage:"networks whose nodes may gossip, as 10.0.0.0/8; none: all"`
}

// Cluster is the section cluster.
type Cluster struct {
	Name     string `mapstructure:"name" usage:"name of the cluster; nodes of another one are not heard"`
	MoveRate Size   `mapstructure:"move_rate" default:"64MiB" range:"1MiB..64GiB" usage:"bytes a second of each replica that comes to this node"`
	// One node that says so is enough.
	HoldLevel bool `mapstructure:"hold_level" usage:"keep the cluster at its feature level after an upgrade, so that nodes can go back to the program of before"`
}

// DefaultMoveRate is that of cluster.move_rate.
const DefaultMoveRate Size = 64 << 20

// DefaultCluster is the name of a cluster that needs none of its own.
const DefaultCluster = "rdmakv"

// Clustered says whether this server is a node of a cluster.
func (c *Config) Clustered() bool { return c.Gossip.Bind != "" }

// ClusterName is the name in force: without security a user need not choose
// one.
func (c *Config) ClusterName() string {
	if c.Cluster.Name == "" {
		return DefaultCluster
	}
	return c.Cluster.Name
}

// Default returns the settings in force where nothing else is said.
func Default() (c Config) {
	at := reflect.ValueOf(&c).Elem()
	for _, k := range Keys() {
		// A switch has no default and is off: "" parses as no switch.
		if v, err := parse(k.Kind, k.rule.def); err == nil {
			at.FieldByIndex(k.field).Set(reflect.ValueOf(v))
		}
	}
	return c
}
