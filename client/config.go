package client

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"time"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/wait"
	"github.com/rdmakv/rdmakv/store/layout"
)

// Config says how to reach a store. Servers is required; the zero value of every
// other field means its default. Fabrics has one in programs that import
// client/fabrics alone: without it, Fabrics is required too.
type Config struct {
	// Servers are host:port addresses, tried in turn until one answers: of one
	// server, which may be reachable by several networks, or of any nodes of one
	// cluster. The other nodes are learned from it.
	Servers []string
	// Fabrics are the kinds of RDMA to use, in order of preference: each
	// connection is made by the first one that reaches the server's address. A
	// server that answers and refuses is not asked again by another fabric.
	// While a later one is in use, the earlier ones are tried again in the
	// background, and the connection moves over when one of them works.
	//
	// Default: those of package client/fabrics, all of this build, if the program
	// imports it. A program that does not import it links the fabrics that it
	// names here, and no others.
	Fabrics []rdma.Fabric
	// Devices are the devices that may be used, by name; a fabric that has none
	// of them is not used. Empty: each fabric takes the one that reaches the
	// server, or chooses.
	Devices []string
	// RequireRDMA refuses fabrics that are done in software by this program.
	// What a kernel does in software (Soft-RoCE, siw) is a device like others.
	RequireRDMA bool
	// Secret is shared with the server and proves each to the other. Empty
	// only for a server that was told to be public.
	Secret []byte
	// Tenant is whose secret that is: a name that the server's operator has given
	// it. Empty: the server's main secret.
	Tenant string
	// Direct uses the one server of Servers that answers and no other, also if it
	// is a node of a cluster: for tools that look at single nodes. Calls for keys
	// of other nodes then fail with ErrMoved.
	Direct bool
	// Timeout ends a call whose context has no deadline. Default 5 s.
	Timeout time.Duration
	// DialTimeout ends one attempt to connect. Default 3 s.
	DialTimeout time.Duration
	// DialOnce has Dial make one attempt and fail with its reason, instead of
	// waiting for a server that is not there yet: for tools that look.
	DialOnce bool
	// OnWait, if not nil, is told why an attempt of Dial has failed that will be
	// made again, and ErrNoMap while a call waits for a cluster's shard map, or
	// ErrUnavailable if there is one and its nodes were not reached. It must not
	// block; calls may come at the same time.
	OnWait func(why error)

	// CacheEntries bounds the location cache of each server: remembered places of
	// items, each worth one round trip and 9.2 bytes. The cache begins small and
	// grows with what is asked for, so that the memory (of the default 18 MB) is
	// taken only by programs that use it. Default 2,000,000; -1 turns the cache off.
	CacheEntries int
	// MaxInflight bounds requests by SEND under way at a time, and writes, those
	// that wait to be sent again included; the server may grant less. In a cluster it is
	// for each node; of writes where there are replicas, for each group. Default 64, at most 1,024.
	MaxInflight int
	// MaxWaiting bounds calls that wait for their turn to SEND; beyond it they
	// fail with ErrOverloaded. Default 65,536.
	MaxWaiting int
	// MaxReads bounds RDMA READs under way at a time. Default 512.
	MaxReads int
	// BufferBytes bounds the registered memory that gets land in, for each
	// device in use. Default 64 MiB, at least 4 MiB.
	BufferBytes int64
	// StagingBytes bounds the registered memory that large puts wait in, for
	// each device in use. Default 128 MiB; it must hold the largest value that
	// is put.
	StagingBytes int64
	// AsyncWindow bounds the puts of PutAsync that have not ended, at all servers
	// together, those included that wait for another put of the same key. Beyond it
	// PutAsync waits. Default 64, at most 65,536; beyond MaxInflight it helps only
	// where there are several servers, or keys that are put often.
	AsyncWindow int
	// AsyncBytes bounds the bytes of their keys and values, which are copies; a put
	// of more is taken when no other is there. Default 16 MiB, at least 64 KiB.
	AsyncBytes int64
	// PartsAbove is the length of a value, in bytes, above which Put, PutWith and PutReader store it
	// in parts, and PartBytes the length of a part. Default and most: 64 MiB, and 16 MiB. A part has
	// at least 64 KiB and a multiple of that, and a value at most 1,024 parts. Both are for tests
	// and for servers with little memory.
	PartsAbove int64
	PartBytes  int
	// LeaseKeep is for how long after the last get the client keeps its lease
	// alive by itself, with one small READ each third of a lease, so that a
	// get after a pause still needs no help from the server's CPU. Default
	// 1 min; -1 keeps it only by gets.
	LeaseKeep time.Duration
	// Wait says how a call waits for its completion. The zero value,
	// wait.Adaptive, polls for a time that each connection learns from its
	// last waits, and then parks.
	Wait wait.Mode
	// Spin is for how long a call polls before it parks, at most. Default: what
	// suits the fabric, see wait.SpinTime; to park and be woken costs more than a
	// READ takes. Up to wait.MaxSpin, 1 ms; -1: never.
	Spin time.Duration

	// Logger takes connects, losses and refusals. Default: none.
	Logger *slog.Logger
}

// Defaults and bounds of Config.
const (
	DefaultTimeout      = 5 * time.Second
	DefaultDialTimeout  = 3 * time.Second
	DefaultCacheEntries = 2_000_000
	DefaultMaxInflight  = 64
	DefaultMaxWaiting   = 64 << 10
	DefaultMaxReads     = 512
	DefaultBufferBytes  = 64 << 20
	DefaultStagingBytes = 128 << 20
	DefaultAsyncWindow  = 64
	DefaultAsyncBytes   = 16 << 20
	DefaultLeaseKeep    = time.Minute
	DefaultSpin         = wait.DefaultSpin // on devices

	maxInflight    = 1024
	maxReads       = 8192
	minBufferBytes = 4 << 20
	maxAsyncWindow = 64 << 10
	minAsyncBytes  = 64 << 10
	maxAsyncBytes  = 1 << 40
)

// withDefaults returns a copy with every zero field filled in.
func (c Config) withDefaults() Config {
	def(&c.Timeout, DefaultTimeout)
	def(&c.DialTimeout, DefaultDialTimeout)
	def(&c.CacheEntries, DefaultCacheEntries)
	def(&c.MaxInflight, DefaultMaxInflight)
	def(&c.MaxWaiting, DefaultMaxWaiting)
	def(&c.MaxReads, DefaultMaxReads)
	def(&c.BufferBytes, DefaultBufferBytes)
	def(&c.StagingBytes, DefaultStagingBytes)
	def(&c.AsyncWindow, DefaultAsyncWindow)
	def(&c.AsyncBytes, DefaultAsyncBytes)
	def(&c.LeaseKeep, DefaultLeaseKeep)
	def(&c.PartsAbove, layout.MaxValueLen)
	def(&c.PartBytes, layout.MaxPartLen)
	if c.Fabrics == nil && base.Builtin != nil {
		c.Fabrics = base.Builtin()
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func def[T comparable](p *T, value T) {
	var zero T
	if *p == zero {
		*p = value
	}
}

// Validate reports every field that is out of range, all at once; each error
// wraps ErrConfig. Zero fields are in range: they mean the default.
func (c Config) Validate() error {
	d := c.withDefaults()
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: "+format, append([]any{ErrConfig}, args...)...))
	}
	if len(d.Servers) == 0 {
		bad("Servers is empty: name at least one host:port")
	}
	for _, addr := range d.Servers {
		if _, port, err := net.SplitHostPort(addr); err != nil {
			bad("Servers: %q is not host:port: %v", addr, err)
		} else if port == "" || port == "0" {
			bad("Servers: %q has no port to connect to", addr)
		} else if _, err := net.LookupPort("tcp", port); err != nil {
			bad("Servers: %q: %q is no port: 1 to 65535, or the name of a service", addr, port)
		}
	}
	if len(d.Fabrics) == 0 {
		bad("Fabrics is empty: name one (rdma/shm, rdma/verbs, rdma/iwarp), or import _ %q for all of this build", base.FabricsPackage)
	}
	for i, f := range d.Fabrics {
		if f == nil {
			bad("Fabrics[%d] is nil", i)
		}
	}
	if slices.Contains(d.Devices, "") {
		bad("Devices has an empty name")
	}
	if d.Timeout < time.Millisecond {
		bad("Timeout is %v, must be at least 1ms", d.Timeout)
	}
	if d.DialTimeout < time.Millisecond {
		bad("DialTimeout is %v, must be at least 1ms", d.DialTimeout)
	}
	if d.CacheEntries < -1 || d.CacheEntries > 1<<30 {
		bad("CacheEntries is %d, must be -1 (none) or up to %d", d.CacheEntries, 1<<30)
	}
	if d.MaxInflight < 1 || d.MaxInflight > maxInflight {
		bad("MaxInflight is %d, must be 1 to %d", d.MaxInflight, maxInflight)
	}
	if d.MaxWaiting < 1 {
		bad("MaxWaiting is %d, must be at least 1", d.MaxWaiting)
	}
	if d.MaxReads < base.MinReads || d.MaxReads > maxReads {
		bad("MaxReads is %d, must be %d to %d", d.MaxReads, base.MinReads, maxReads)
	}
	if d.BufferBytes < minBufferBytes {
		bad("BufferBytes is %d, must be at least %d", d.BufferBytes, minBufferBytes)
	}
	if d.StagingBytes < 1 {
		bad("StagingBytes is %d, must be positive", d.StagingBytes)
	}
	if d.AsyncWindow < 1 || d.AsyncWindow > maxAsyncWindow {
		bad("AsyncWindow is %d, must be 1 to %d", d.AsyncWindow, maxAsyncWindow)
	}
	if d.AsyncBytes < minAsyncBytes || d.AsyncBytes > maxAsyncBytes {
		bad("AsyncBytes is %d, must be %d to %d", d.AsyncBytes, minAsyncBytes, int64(maxAsyncBytes))
	}
	if d.PartsAbove < 1 || d.PartsAbove > layout.MaxValueLen {
		bad("PartsAbove is %d, must be 1 to %d", d.PartsAbove, layout.MaxValueLen)
	}
	if err := (layout.Shape{Total: 1, PartLen: d.PartBytes}).Check(); err != nil {
		bad("PartBytes: %v", err)
	}
	if d.LeaseKeep < -1 {
		bad("LeaseKeep is %v, must be -1 (off) or positive", d.LeaseKeep)
	}
	if d.Wait > wait.Event {
		bad("Wait is %v, must be adaptive, poll or event", d.Wait)
	}
	if d.Spin < -1 || d.Spin > wait.MaxSpin {
		bad("Spin is %v, must be -1 (never) or up to %v: a longer wait is not worth a processor", d.Spin, wait.MaxSpin)
	}
	return errors.Join(errs...)
}
