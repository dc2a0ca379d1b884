package jobs

import (
	"context"
	"fmt"
	"time"

	"github.com/rdmakv/rdmakv/internal/load"
)

// A Target is the server, or the cluster, that a load is for.
type Target struct {
	System  string // rdmakv, redis, memcached, etcd, or pebble in the worker itself
	Network string // tcp or unix, of peers
	Addr    string // or the directory
	// Others are the addresses of the other nodes of a cluster.
	Others []string
	Sync   bool   // of pebble
	Fabric string // shm or iwarp, of rdmakv
	ShmDir string
	Wait   string
	// Cache is CacheEntries of the client: 0 is its default, -1 no cache.
	Cache int
	// Registered has each caller put from and get into a registered client.Buffer.
	Registered bool
	// Bound is how old gets of rdmakv may be; 0: they are new.
	Bound time.Duration
	// Acks is how many replicas of Redis WAIT waits for behind a SET; 0: there is no WAIT.
	Acks int
	// Etcd says how etcd is asked.
	Etcd Etcd
	// PIDs are those of the servers whose processor time is measured; nil: there are none.
	PIDs []int
	// Leader is the one of PIDs that leads the others, whose processor time is told apart from
	// theirs; 0: it is not.
	Leader int
}

// Etcd are the ways in which etcd is asked.
type Etcd struct {
	Serializable bool // gets are answered by one member, which may be behind
	Many         bool // each caller has a client of its own
	AtLeader     bool // the member that leads is asked, and no other
}

// A Load is a load on one server.
type Load struct {
	Target   Target
	Records  uint64
	Value    int
	Op       string // get or put
	Choice   string // uniform or zipf
	Callers  int
	Batch    int
	Warm     time.Duration
	Duration time.Duration
	// Touch gets every key twice beforehand, so that its place is known.
	Touch bool
	Seed  uint64
}

// Keys are those of redis-benchmark, key:000000000000 on.
func Keys() load.Keys { return load.Keys{Prefix: "key:", Size: 16} }

// Stores makes the store of a caller, by the caller's number.
type Stores = func(context.Context, int) (load.Store, error)

// An Opener returns how callers reach a server, with values of so many bytes, and what to
// close at the end.
type Opener func(ctx context.Context, t *Target, value int) (open Stores, end func() error, err error)

// Options translates the job into the options of package load. open may be nil for
// choices alone.
func (l *Load) Options(open Stores) (load.Options, error) {
	choice, ok := load.ChoiceByName(l.Choice)
	if !ok {
		return load.Options{}, fmt.Errorf("choice %q is unknown", l.Choice)
	}
	mix, err := load.ParseMix(l.Op + "=1")
	if err != nil {
		return load.Options{}, err
	}
	return load.Options{
		Open: open, Records: l.Records, Keys: Keys(), Values: load.FixedSize(l.Value), Mix: mix, Choice: choice,
		Workers: l.Callers, Batch: max(1, l.Batch), Warmup: l.Warm, Duration: l.Duration, Seed: l.Seed,
	}, nil
}
